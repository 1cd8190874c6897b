"""Rates, compared with counting by brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.errors import InvalidInput
from pitboss.model.limits import Window, allowed, horizon, opens_at, rate

windows = st.lists(st.builds(Window, st.integers(1, 5), st.integers(1, 30)), max_size=3)
moments = st.lists(st.integers(0, 60), max_size=12).map(sorted)


def started_within(starts: list[int], begin: int, per: int) -> int:
    """Starts in the half-open span of `per` that begins here."""
    return sum(begin <= start < begin + per for start in starts)


def broken(windows: list[Window], starts: list[int]) -> bool:
    """Some span, wherever it begins, has more starts than its window allows."""
    return any(
        started_within(starts, begin, window.per) > window.count for window in windows for begin in range(-31, 130)
    )


@given(windows, moments, st.integers(0, 40))
def test_allowed_is_the_most_that_breaks_nothing(windows: list[Window], wishes: list[int], later: int) -> None:
    starts: list[int] = []
    for wish in wishes:
        if allowed(windows, starts, wish) != 0:
            starts.append(wish)
    assert not broken(windows, starts)
    now = (wishes[-1] if wishes else 0) + later
    room = allowed(windows, starts, now)
    if room is None:
        assert not windows
        return
    assert not broken(windows, [*starts, *[now] * room])
    assert broken(windows, [*starts, *[now] * (room + 1)])


@given(windows, moments, st.integers(0, 100))
def test_a_window_opens_exactly_when_something_may_start(windows: list[Window], starts: list[int], later: int) -> None:
    now = (starts[-1] if starts else 0) + later
    assert (allowed(windows, starts, now) != 0) == (opens_at(windows, starts) <= now)


@given(windows, moments, st.integers(0, 100))
def test_starts_beyond_the_horizon_change_nothing(windows: list[Window], starts: list[int], later: int) -> None:
    now = (starts[-1] if starts else 0) + later
    recent = [start for start in starts if start > now - horizon(windows)]
    assert allowed(windows, starts, now) == allowed(windows, recent, now)


def test_a_start_exactly_one_window_ago_does_not_count() -> None:
    windows = [Window(1, 10)]
    assert allowed(windows, [100], 109) == 0
    assert allowed(windows, [100], 110) == 1
    assert opens_at(windows, [100]) == 110


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20/min", [(20, 60_000_000)]),
        ("1/s", [(1, 1_000_000)]),
        (" 3 / 500ms ", [(3, 500_000)]),
        ("2/s, 100/10m", [(2, 1_000_000), (100, 600_000_000)]),
        ("50/hour,7/day", [(50, 3_600_000_000), (7, 86_400_000_000)]),
        ("9/1h30m", [(9, 5_400_000_000)]),
    ],
)
def test_rates_are_read(text: str, expected: list[tuple[int, int]]) -> None:
    assert rate(text) == tuple(Window(*pair) for pair in expected)


@pytest.mark.parametrize("text", ["", "5", "/s", "0/s", "5/0s", "-5/s", "5/parsec", "5/s,", "1.5/s", "5/s/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        rate(text)
