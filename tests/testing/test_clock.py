"""The clock moves only when it is told to, and never backwards."""

from datetime import timedelta

import pytest

from pitboss.model.errors import InvalidInput
from pitboss.testing.clock import START, FakeClock


def test_a_clock_stands_still() -> None:
    clock = FakeClock()
    assert clock.now() == clock.now() == START


@pytest.mark.parametrize(
    ("by", "moved"),
    [(1, 1_000_000), (0.5, 500_000), ("1us", 1), ("1h30m", 5_400_000_000), (timedelta(days=1), 86_400_000_000)],
)
def test_a_clock_moves_as_far_as_it_is_told(by: float | str | timedelta, moved: int) -> None:
    clock = FakeClock(100)
    assert clock.ahead(by) == 100 + moved
    assert clock.advance(by) == clock.now() == 100 + moved
    assert clock.since(100) == moved


def test_a_clock_never_goes_back() -> None:
    clock = FakeClock(100)
    assert clock.advance_to(50) == clock.now() == 100
    with pytest.raises(InvalidInput):
        clock.advance(-1)
