"""How fast tasks come and go, from counts in buckets of time: since the load last changed, and without bursts."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

from pitboss.model.duration import SECOND, Moment, Span

# Enough for a rate, unless the load changed before.
_EVENTS, _TIME = 200, 120 * SECOND
# The load has changed where a bucket differs by more than this many standard deviations.
_CHANGED, _FEW = 4.0, 3
_TAILS = (1, 3, 6, 12, 24)
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

    @property
    def with_bursts(self) -> float:
        """Tasks per second in the long run, with those of the bursts if there are several."""
        every = self.every
        size = sum(number for _, number in self.bursts) / len(self.bursts) if every else 0.0
        return self.speed.rate + (size * SECOND / every if every else 0.0)

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
    least = max(_SHORT, 2 * period)
    # The numbers of events and the time up to each bucket, from now backwards.
    events, times = [0], [0]
    for one in reversed(tides):
        events.append(events[-1] + count(one))
        times.append(times[-1] + one.span)
        if changed := _changed(events, times, least):
            del events[-changed:], times[-changed:]
            break
        if events[-1] >= _EVENTS and times[-1] >= max(_TIME, least):
            break
    if period:
        whole = times[-1] // period * period
        while whole and times[-2] >= whole:
            del events[-1], times[-1]
    time = times[-1]
    if not time:
        return Speed(known=False)
    return Speed(events[-1] * SECOND / time, sqrt(events[-1]) * SECOND / time, time >= _SHORT)


def _changed(events: Sequence[int], times: Sequence[Span], least: Span) -> int:
    """How many of the oldest buckets differ from the newer ones by more than chance; 0 if none do. Few of them differ
    at once, more of them also if the difference is small."""
    for tail in _TAILS:
        if tail >= len(times) or times[-1 - tail] < least:
            break
        newer, older = events[-1 - tail], events[-1] - events[-1 - tail]
        expected = newer / times[-1 - tail] * (times[-1] - times[-1 - tail])
        if abs(older - expected) > _CHANGED * sqrt(max(older, expected)) + _FEW:
            return tail
    return 0


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
