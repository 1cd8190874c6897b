"""The raw log of all uses of members, as the far side sees them, and the uses that break a limit.

Counted by brute force, in real time and not by the store's clock. A member's limits are checked within a *regime*:
between two changes of its limits, or between two moments at which the clock was set forward (no store can notice that).
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from pitboss.model.duration import Moment, Span
from pitboss.model.resource import Limits


class Use(NamedTuple):
    """`arrived` is when the far side saw it; `beside` how many others held the member when it was given."""

    at: Moment
    arrived: Moment
    limits: Limits
    beside: int
    given: bool


class Pause(NamedTuple):
    """From `since` on it must not be used for `span`."""

    since: Moment
    span: Span
    why: str


class Log:
    """`faults` are those found at a use; the others are found at the end."""

    def __init__(self) -> None:
        self._regimes: dict[str, int] = defaultdict(int)
        self._uses: dict[tuple[str, int], list[Use]] = defaultdict(list)
        self._ends: dict[tuple[str, int], Moment] = {}
        self._pauses: dict[tuple[str, int], list[Pause]] = defaultdict(list)
        self.faults: list[str] = []

    def used(self, name: str, use: Use) -> None:
        key = self._now(name)
        self._uses[key].append(use)
        found = [*_rest(use, self._ends.get(key)), *_crowd(use), *_disturbed(use, self._pauses[key])]
        self.faults += [f"{name}: {fault}" for fault in found]

    def ended(self, name: str, at: Moment) -> None:
        self._ends[self._now(name)] = at

    def paused(self, name: str, pause: Pause) -> None:
        self._pauses[self._now(name)].append(pause)

    def new_regime(self, name: str) -> None:
        self._regimes[name] += 1

    def count(self) -> int:
        return sum(len(uses) for uses in self._uses.values())

    def violations(self) -> list[str]:
        later = (f"{key[0]}: {fault}" for key, uses in self._uses.items() for fault in (*_windows(uses), *_gaps(uses)))
        return [*self.faults, *later]

    def _now(self, name: str) -> tuple[str, int]:
        return name, self._regimes[name]


def _windows(uses: list[Use]) -> Iterator[str]:
    arrivals = sorted(use.arrived for use in uses)
    for window in uses[0].limits.windows:
        for first, last in zip(arrivals, arrivals[window.count :], strict=False):
            if last - first < window.per:
                yield f"{window.count + 1} uses within {last - first} µs, {window.count} in {window.per} are allowed"


def _gaps(uses: list[Use]) -> Iterator[str]:
    limits = uses[0].limits
    if limits.delay_from == "start":
        for before, after in pairwise(sorted(use.arrived for use in uses)):
            if after - before < limits.min_delay:
                yield f"two uses {after - before} µs apart"


def _rest(use: Use, ended: Moment | None) -> Iterator[str]:
    if use.limits.delay_from == "end" and ended is not None and use.at - ended < use.limits.min_delay:
        yield f"used {use.at - ended} µs after the end of a use"


def _crowd(use: Use) -> Iterator[str]:
    most = use.limits.concurrency
    if use.given and most is not None and use.beside >= most:
        yield f"given while {use.beside} others had it"


def _disturbed(use: Use, pauses: list[Pause]) -> Iterator[str]:
    for pause in pauses:
        if use.at < pause.since + pause.span:
            yield f"used {use.at - pause.since} µs after it was {pause.why} for {pause.span}"
