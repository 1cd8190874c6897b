"""The suite itself: no subject hides a test of another."""

from pitboss.testing.conformance import Conformance, DurableConformance

MIN_CASES = 250


def names(subject: type) -> list[str]:
    return [name for name in vars(subject) if name.startswith("test_")]


def test_every_test_of_every_subject_is_run() -> None:
    for suite in (Conformance, DurableConformance):
        all_names = [name for subject in suite.__mro__ for name in names(subject)]
        assert len(all_names) == len(set(all_names))
        assert len(all_names) >= MIN_CASES


def test_every_test_is_a_sentence() -> None:
    for subject in DurableConformance.__mro__:
        for name in names(subject):
            assert name == name.lower()
            assert name.count("_") >= 1
