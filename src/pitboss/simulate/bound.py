"""The earliest times that limits allow: every member is used again as soon as it may be.

No plan can be faster for tasks that all take the same time. A use is open until its task ends: windows and gaps count
from there. Cooldowns and the guard do not count, and with `use_within` 0 uses count from their start: then this is the
bound for requests that are sent at once. A real run is measured against it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heapreplace
from itertools import islice, takewhile

from pitboss.model.duration import Moment, Span
from pitboss.model.leasing import open_span
from pitboss.model.resource import Limits


def starts(members: Sequence[Limits], *, service: Span, slots: int | None = None) -> Iterator[tuple[Moment, int]]:
    """The start of each use, counted from 0, and the index of its member; without end. At most `slots` run at once.

    Of a gap's jitter the mean counts.
    """
    pool = [_Member(limits, service) for limits in members]
    soonest = [(0, index) for index in range(len(pool))]
    # When each slot is free again; empty if there is no limit.
    free: list[Moment] = [0] * (slots or 0)
    heapify(soonest)
    while soonest:
        opens, index = soonest[0]
        at = max(opens, free[0]) if slots else opens
        pool[index].use(at)
        heapreplace(soonest, (pool[index].opens, index))
        if slots:
            heapreplace(free, at + service)
        yield at, index


def soonest_end(members: Sequence[Limits], tasks: int, *, service: Span, slots: int | None = None) -> Moment:
    """When this number of tasks can have ended, counted from the start."""
    last = deque(islice(starts(members, service=service, slots=slots), tasks), maxlen=1)
    return last[0][0] + service if last else 0


def most_starts(members: Sequence[Limits], within: Span, *, service: Span, slots: int | None = None) -> int:
    """How many uses can start within this time."""
    all_starts = starts(members, service=service, slots=slots)
    return sum(1 for _ in takewhile(lambda start: start[0] < within, all_starts))


class _Member:
    """One member: its latest uses, and when the next one may start."""

    def __init__(self, limits: Limits, service: Span) -> None:
        self._limits, self._service = limits, service
        self._lasts = min(service, open_span(limits))
        self._gap = limits.min_delay + limits.jitter // 2
        longest = max([limits.concurrency or 0, *(window.count for window in limits.windows)])
        self._uses: deque[Moment] = deque(maxlen=longest or 1)
        self.opens: Moment = 0

    def use(self, at: Moment) -> None:
        self._uses.append(at)
        limits = self._limits
        waits = [at + (self._gap and self._lasts + self._gap) if limits.delay_from == "start" else at]
        full = [window for window in limits.windows if self._full(window.count)]
        waits += [self._uses[-window.count] + self._lasts + window.per for window in full]
        if limits.concurrency is not None and self._full(limits.concurrency):
            rest = self._gap if limits.delay_from == "end" else 0
            waits.append(self._uses[-limits.concurrency] + self._service + rest)
        self.opens = max(waits)

    def _full(self, count: int) -> bool:
        return len(self._uses) >= count


__all__ = ["most_starts", "soonest_end", "starts"]
