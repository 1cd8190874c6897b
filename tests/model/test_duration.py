"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND, span, spoken
from pitboss.model.errors import InvalidInput

UNITS = {"us": 1, "ms": 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(list(UNITS))), min_size=1, max_size=4))
def test_parts_are_added(parts: list[tuple[int, str]]) -> None:
    expected = sum(count * UNITS[unit] for count, unit in parts)
    for separator in ("", " ", "  "):
        assert span(separator.join(f"{count}{unit}" for count, unit in parts)) == expected


@given(st.integers(0, 10**15))
def test_numbers_and_timedeltas_are_seconds(micros: int) -> None:
    assert span(timedelta(microseconds=micros)) == micros
    assert abs(span(micros / SECOND) - micros) <= 1


@given(st.integers(0, 10**15))
def test_what_is_spoken_is_read_and_is_not_more(micros: int) -> None:
    heard = span(spoken(micros))
    assert micros / 2 <= heard <= micros


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0ms"),
        (1500, "1.5ms"),
        (456_972, "456ms"),
        (SECOND, "1s"),
        (90 * SECOND, "1m30s"),
        (90_061 * SECOND, "1d1h"),
        (7 * UNITS["d"], "7d"),
    ],
)
def test_spoken(micros: int, text: str) -> None:
    assert spoken(micros) == text


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "5",
        "s",
        "5 parsecs",
        "-5s",
        "5s!",
        "1h 30",
        -1,
        -0.1,
        float("nan"),
        float("inf"),
        True,
        None,
        b"5s",
        [5],
        10**12,
    ],
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="is not a duration"):
        span(value)


@pytest.mark.parametrize(
    ("text", "micros"), [("1.5s", 1_500_000), (" 2m ", 120 * SECOND), ("0.5ms", 500), ("1w", 7 * UNITS["d"])]
)
def test_other_forms(text: str, micros: int) -> None:
    assert span(text) == micros
