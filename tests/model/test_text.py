"""Text for people."""

import pytest

from pitboss.model.text import clean, counted, listed, masked, one_line


def test_text_from_a_store_cannot_control_a_terminal() -> None:
    assert clean("a\x1b[31m\x00\u009b\tb\nc") == "a\\x1b[31m\\x00\\x9b\tb\nc"
    assert clean("a\u202egpj.exe\u2066\u200f\u2028") == "a\\u202egpj.exe\\u2066\\u200f\\u2028"
    assert clean("é 漢 👩‍💻") == "é 漢 👩‍💻"
    assert one_line("first\nsecond") == "first"
    assert one_line("x" * 30, 10) == "x" * 9 + "…"


def test_numbers_and_lists() -> None:
    assert (counted(1, "task"), counted(2000, "task"), counted(2, "crash", "crashes")) == (
        "1 task",
        "2,000 tasks",
        "2 crashes",
    )
    assert (listed(["a", "b"], 2), listed(["a", "b", "c"], 2), listed([])) == ("a, b", "a, b and 1 more", "")


def test_a_password_is_masked() -> None:
    assert masked("postgresql://me:secret@host/db?x=1") == "postgresql://me:***@host/db?x=1"
    assert masked("sqlite:///pitboss.db") == "sqlite:///pitboss.db"
    assert masked("postgresql://host/db?password=secret&x=1") == "postgresql://host/db?password=***&x=1"


@pytest.mark.parametrize("password", ["p@ss", "pa/ss", "p#ss", "p?ss", "p@s/s#1", "a:b@c"])
def test_a_password_that_should_have_been_encoded_is_masked_whole(password: str) -> None:
    assert masked(f"amqp://me:{password}@host:5672/v") == "amqp://me:***@host:5672/v"
