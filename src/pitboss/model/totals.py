"""Totals since a store began: what happened to tasks, and what managers measured. They only grow.

Figures are rolled up and forgotten as they age; totals are counted in the same acts, and stay. They are counters for
a monitoring system, so there is a bounded number of them. The first queues, handlers and pools get their own; what
comes later is added up under one name. Who has a place keeps it: otherwise a total would go back.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.figures import OTHERS, Flow, HandlerFigures, Histogram, PoolSample, ResourceSample, Sample
from pitboss.model.quantiles import BOUNDS

# The length of the one bucket that never ends. It begins at 0.
EVER: Span = 0
EVER_BEGAN: Moment = 0
OWN_HANDLERS = 80
OWN_QUEUES = 30
OWN_POOLS = 10
# The upper limits of the buckets in which waits and runs are counted.
LIMITS: tuple[Span, ...] = tuple(
    round(seconds * SECOND) for seconds in (0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)
)
# By the place of a value in `quantiles.BOUNDS`: the first limit that it certainly does not exceed.
_SLOTS = tuple(next((slot for slot, limit in enumerate(LIMITS) if bound <= limit), len(LIMITS)) for bound in BOUNDS)


class Places:
    """The pairs of queue and handler that have totals of their own, and those that would get them."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = {pair for pair in pairs if OTHERS not in pair}
        self._queues = {queue for queue, _ in self._pairs}

    @property
    def full(self) -> bool:
        return len(self._pairs) >= OWN_HANDLERS

    def has(self, queue: str, handler: str) -> bool:
        return (queue, handler) in self._pairs

    def counted(self, queue: str, handler: str) -> tuple[str, str]:
        """Under which names it counts."""
        if (queue, handler) in self._pairs:
            return queue, handler
        if queue not in self._queues and (len(self._queues) >= OWN_QUEUES or self.full):
            return OTHERS, OTHERS
        return (queue, OTHERS) if self.full else (queue, handler)

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """These have come: in the order of their names, as far as there is room."""
        for queue, handler in sorted(set(pairs)):
            if OTHERS not in self.counted(queue, handler):
                self._pairs.add((queue, handler))
                self._queues.add(queue)


class Spread(msgspec.Struct, array_like=True):
    """How many values lie up to each of `LIMITS` and above the one before, then those above all; and their sum."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(LIMITS) + 1))
    sum: Span = 0

    def add(self, values: Histogram) -> None:
        for place, n in values.counts.items():
            self.counts[_SLOTS[place] if place < len(_SLOTS) else -1] += n
        self.sum += values.sum


class QueueTotals(msgspec.Struct, array_like=True):
    """How long its tasks waited since they were due, and how long their runs took."""

    wait: Spread = msgspec.field(default_factory=Spread)
    run: Spread = msgspec.field(default_factory=Spread)

    def add(self, one: HandlerFigures) -> None:
        self.wait.add(one.wait)
        self.run.add(one.run)


class PoolTotals(msgspec.Struct, array_like=True):
    """Workers of a pool that were started again, and that died."""

    restarts: int = 0
    crashes: int = 0

    def add(self, one: PoolSample) -> None:
        self.restarts += one.restarts
        self.crashes += one.crashes


class ResourceTotals(msgspec.Struct, array_like=True):
    """Uses of members that tasks began, claims that found no member, and members that were refused."""

    uses: int = 0
    limits_met: int = 0
    refusals: int = 0

    def add(self, one: ResourceSample) -> None:
        self.uses += one.uses
        self.limits_met += one.limits_met
        self.refusals += sum(one.refusals.values())


class Measured(msgspec.Struct):
    """What all samples together say, by the names of queues, worker pools and resource pools."""

    queues: dict[str, QueueTotals] = {}
    pools: dict[str, PoolTotals] = {}
    resources: dict[str, ResourceTotals] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Samples that were not added before."""
        for sample in samples:
            for handler in sample.handlers:
                self.queues.setdefault(_own(handler.queue, self.queues, OWN_QUEUES), QueueTotals()).add(handler)
            for name, pool in sample.pools.items():
                self.pools.setdefault(_own(name, self.pools, OWN_POOLS), PoolTotals()).add(pool)
            for name, resource in sample.resources.items():
                kept = _own(name, self.resources, OWN_POOLS)
                self.resources.setdefault(kept, ResourceTotals()).add(resource)


class Totals(NamedTuple):
    """Everything since the store began. The flows are those of one bucket without an end."""

    flows: list[Flow]
    measured: Measured


def _own(name: str, known: Iterable[str], most: int) -> str:
    names = set(known) - {OTHERS}
    return name if name in names or len(names) < most else OTHERS
