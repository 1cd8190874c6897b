"""The checker of worn phrases finds each of them, also across a line break, and says where and what to write instead.

The phrases are spelled in two parts here, because the checker reads this file too.
"""

import pytest

from scripts.check_phrases import PHRASES, worn

SAMPLES = [
    "who" + "ever asks", "ask some" + "body", "any" + "body", "No" + "body knows", "so" + " many tasks", "seen" + " to",
    "nothing to" + " be had", "what came" + " of it", "what stands in" + " its way", "they stand in" + " the way",
    "waited in" + " vain", "the end is" + " told as a range", "they are" + " told from it",
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
def test_each_phrase_is_found_with_its_line_and_a_remedy(sample: str) -> None:
    (fault,) = worn("src/pitboss/x.py", f"one\n# {sample}.\nthree\n")
    assert fault.startswith("src/pitboss/x.py:2: worn phrase '")
    assert fault.rpartition("': ")[2] in PHRASES.values()


def test_every_phrase_has_a_sample() -> None:
    remedies = {fault.rpartition("': ")[2] for sample in SAMPLES for fault in worn("x", sample)}
    assert remedies == set(PHRASES.values())


def test_a_phrase_over_two_lines_of_a_comment_is_found() -> None:
    (fault,) = worn("x.py", "    # what came" + "\n    # of it\n")
    assert fault.startswith("x.py:1: worn phrase 'came" + " of'")


def test_plain_words_pass() -> None:
    assert list(worn("x", "body, foreseen tools, so much, many, told, vainly")) == []
