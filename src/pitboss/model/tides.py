"""How fast tasks come and go, from counts in buckets of time: since the load last changed, and without bursts."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

from pitboss.model.duration import SECOND, Moment, Span

# Enough for a rate, unless the load changed before.
_EVENTS, _TIME = 200, 120 * SECOND
# The load has changed where a bucket differs by more than this many standard deviations.
_CHANGED, _FEW = 4.0, 3
_SHORT: Span = 30 * SECOND
# A rush that is over and was shorter than this is a burst.
_BURST: Span = 120 * SECOND
_YOUNG: Span = 20 * SECOND
_LEAST_BURST = 10
_BURSTS_LOOKED_AT = 500
_QUIET_SHARE = 0.75


class Tide(NamedTuple):
    """One bucket: how many tasks of a queue came to wait, and how many ended."""

    at: Moment
    span: Span
    came: int = 0
    went: int = 0

    @property
    def until(self) -> Moment:
        return self.at + self.span


class Speed(NamedTuple):
    """Tasks per second, by how much that may be off (one standard deviation), and whether there is enough to say."""

    rate: float = 0.0
    unsure: float = 0.0
    known: bool = True


class Arrivals(NamedTuple):
    """How fast tasks come; `bursts` are short rushes beside that, each with its moment and size."""

    speed: Speed
    bursts: Sequence[tuple[Moment, int]] = ()

    @property
    def every(self) -> Span | None:
        """The time from burst to burst; None if there were not two."""
        gaps = len(self.bursts) - 1
        return (self.bursts[-1][0] - self.bursts[0][0]) // gaps if gaps > 0 else None

    def time_to_clear(self, backlog: int, out: float, now: Moment) -> Span | None:
        """How long it takes until nothing waits, if all goes on like this; None if it never comes to that."""
        spare, every = out - self.speed.rate, self.every
        if spare <= 0:
            return None
        left, took = backlog / spare * SECOND, 0.0
        if every is None:
            return round(left)
        size = sum(n for _, n in self.bursts) / len(self.bursts)
        # The next burst is due one interval after the last; one that is overdue may not come any more.
        following = max(0, self.bursts[-1][0] + every - now) or every
        for _ in range(_BURSTS_LOOKED_AT):
            if left <= following:
                return round(took + left)
            left, took, following = left - following + size / spare * SECOND, took + following, every
        return None


def rate_of(tides: Sequence[Tide], count: Callable[[Tide], int], period: Span = 0) -> Speed:
    """The rate of the newest buckets since it last changed. Counts are even over `period` and longer."""
    events, time = 0, 0
    least = max(_SHORT, 2 * period)
    for one in reversed(tides):
        n = count(one)
        if time >= least:
            expected = events / time * one.span
            if abs(n - expected) > _CHANGED * sqrt(max(n, expected)) + _FEW:
                break
            if events >= _EVENTS and time >= max(_TIME, least):
                break
        events, time = events + n, time + one.span
    if not time:
        return Speed(known=False)
    return Speed(events * SECOND / time, sqrt(events) * SECOND / time, time >= _SHORT)


def arrivals(tides: Sequence[Tide]) -> Arrivals:
    """How fast tasks come, and the bursts beside that."""
    quiet = sorted(tides, key=lambda one: one.came / max(1, one.span))[: max(1, round(len(tides) * _QUIET_SHARE))]
    time = sum(one.span for one in quiet)
    usual = sum(one.came for one in quiet) / time if time else 0.0
    rushes: list[list[Tide]] = []
    for place, one in enumerate(tides):
        expected = usual * one.span
        if one.came > 3 * expected + 4 * sqrt(expected) + _LEAST_BURST:
            if rushes and rushes[-1][-1] is tides[place - 1]:
                rushes[-1].append(one)
            else:
                rushes.append([one])
    # One that lasts is how fast tasks come.
    over = [rush for rush in rushes if rush[-1].until - rush[0].at <= (_YOUNG if rush[-1] is tides[-1] else _BURST)]
    burst = {one.at for rush in over for one in rush}
    speed = rate_of([one for one in tides if one.at not in burst], lambda one: one.came)
    return Arrivals(speed, [(rush[0].at, sum(one.came for one in rush)) for rush in over])


def levels(tides: Sequence[Tide], now: int) -> list[int]:
    """How many tasks were unfinished at the beginning of each bucket, if `now` are at the end of the last one."""
    found: list[int] = []
    for one in reversed(tides):
        now = max(0, now - one.came + one.went)
        found.append(now)
    return found[::-1]
