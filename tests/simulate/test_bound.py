"""The earliest times that limits allow, compared with schedules worked out by hand."""

from itertools import islice

from pitboss.model.duration import SECOND
from pitboss.model.limits import Window
from pitboss.model.resource import Limits
from pitboss.simulate.bound import most_starts, soonest_end, starts


def seconds(*members: Limits, count: int, service: float = 0, slots: int | None = None) -> list[float]:
    found = islice(starts(members, service=round(service * SECOND), slots=slots), count)
    return [at / SECOND for at, _ in found]


def test_windows_all_at_once_and_again_when_they_open() -> None:
    limits = Limits(windows=(Window(2, 10 * SECOND),), concurrency=None)
    assert seconds(limits, count=5) == [0, 0, 10, 10, 20]


def test_two_windows_each_hold() -> None:
    limits = Limits(windows=(Window(2, 10 * SECOND), Window(3, 25 * SECOND)), concurrency=None)
    assert seconds(limits, count=7) == [0, 0, 10, 25, 25, 35, 50]


def test_gaps_from_the_start_and_from_the_end() -> None:
    assert seconds(Limits(min_delay=3 * SECOND, use_within=0), count=3, service=1) == [0, 3, 6]
    assert seconds(Limits(min_delay=3 * SECOND, delay_from="end"), count=3, service=1) == [0, 4, 8]


def test_a_limited_number_at_a_time() -> None:
    assert seconds(Limits(concurrency=2), count=5, service=4) == [0, 0, 4, 4, 8]


def test_members_share_the_slots() -> None:
    two = (Limits(concurrency=None), Limits(concurrency=None))
    assert seconds(*two, count=4, service=5, slots=1) == [0, 5, 10, 15]


def test_the_guard_is_no_part_of_it() -> None:
    assert seconds(Limits(min_delay=SECOND, guard=SECOND), count=3) == [0, 1, 2]


def test_windows_and_gaps_count_from_the_end_of_an_open_use() -> None:
    assert seconds(Limits(min_delay=3 * SECOND), count=3, service=1) == [0, 4, 8]
    assert seconds(Limits(windows=(Window(1, 5 * SECOND),)), count=3, service=2) == [0, 7, 14]
    assert seconds(Limits(min_delay=3 * SECOND, concurrency=2), count=3, service=30) == [0, 13, 30]


def test_ends_and_counts() -> None:
    hourly = [Limits(windows=(Window(50, 3600 * SECOND),), min_delay=20 * SECOND, use_within=0)] * 50
    # Four hours' worth of 2,500 each; the last hour's fifty uses are 20 seconds apart.
    assert soonest_end(hourly, 10_000, service=SECOND) == (3 * 3600 + 49 * 20 + 1) * SECOND
    assert most_starts(hourly, 3600 * SECOND, service=SECOND) == 2_500
    assert soonest_end(hourly, 0, service=SECOND) == 0
