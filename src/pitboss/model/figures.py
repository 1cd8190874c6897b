"""Figures over time: what happened to tasks, counted exactly, and what managers measured. Everything here adds up.

A bucket is a span of time that begins at a multiple of its length. Short buckets are rolled up into longer ones as
they age: adding figures up loses no count, and quantiles stay as exact as they were.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

import msgspec

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.quantiles import BOUNDS, value_at
from pitboss.model.states import FINISHED, State

RAW: Span = 10 * SECOND
MINUTE: Span = 60 * SECOND
HOUR: Span = 3600 * SECOND
SPANS = (RAW, MINUTE, HOUR)
# In a sample, and in a rolled-up bucket, these many handlers are told apart. Others are added up under one name.
MOST_HANDLERS = 200
OTHERS = "(others)"
UNKNOWN = "(unknown)"
MOST_DESTINATIONS = 20
MOST_WORKERS = 200


def bucket(moment: Moment, span: Span) -> Moment:
    """The beginning of the bucket that a moment is in."""
    return moment - moment % span


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the tasks of a queue and handler in one bucket.

    `put`: they were created. `completed`, `failed` and `cancelled`: they ended so. `retried`: a run failed, and the
    task waits to be tried again. `lost`: a run was lost with its worker or session. `revived`: an ended task was made
    to wait again.
    """

    at: Moment
    span: Span = RAW
    queue: str = ""
    handler: str = ""
    put: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    lost: int = 0
    revived: int = 0

    @property
    def arrived(self) -> int:
        """How many tasks came to wait."""
        return self.put + self.revived

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled


KINDS = ("put", "completed", "failed", "cancelled", "retried", "lost", "revived")


def kinds_of_end(state: State, *, charged: bool = False, lost: bool = False) -> tuple[str, ...]:
    """What the end of a claim counts as, by the task's state after it: nothing if the run was only given back."""
    run = ("lost",) if lost else ("retried",) if charged and state not in FINISHED else ()
    return (state.value, *run) if state in FINISHED else run


class FlowCounts:
    """Counts of one bucket."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str], int] = {}

    def add(self, kind: str, queue: str, handler: str, n: int = 1) -> None:
        key = (queue, handler, kind)
        self.counts[key] = self.counts.get(key, 0) + n

    def flows(self, at: Moment, span: Span = RAW) -> list[Flow]:
        """As flows of this bucket, in the order of their keys."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for (queue, handler, kind), n in self.counts.items():
            found.setdefault((queue, handler), {})[kind] = n
        return [
            Flow(at=at, span=span, queue=queue, handler=handler, **found[queue, handler])
            for queue, handler in sorted(found)
        ]


def added_flows(flows: Iterable[Flow], span: Span, *, by_handler: bool = True) -> list[Flow]:
    """The flows in buckets of this span, at least as long as their own."""
    found: dict[tuple[Moment, str, str], list[int]] = {}
    for one in flows:
        sums = found.setdefault((bucket(one.at, span), one.queue, one.handler if by_handler else ""), [0] * len(KINDS))
        for place, kind in enumerate(KINDS):
            sums[place] += getattr(one, kind)
    return [
        Flow(at=at, span=span, queue=queue, handler=handler, **dict(zip(KINDS, found[at, queue, handler], strict=True)))
        for at, queue, handler in sorted(found)
    ]


def rolled(flows: Iterable[Flow], into: Span) -> list[Flow]:
    """Flows of one bucket of `into`, as they are stored there: the handlers with the fewest are added up, by queue."""
    added = added_flows(flows, into)
    if len(added) <= MOST_HANDLERS:
        return added
    ranked = sorted(added, key=lambda one: (one.handler != OTHERS, -_size(one), one.queue, one.handler))
    # Those that were added up before stay so: they are not handlers.
    others = sum(one.handler == OTHERS for one in ranked)
    kept, rest = ranked[others:][:MOST_HANDLERS], [*ranked[:others], *ranked[others:][MOST_HANDLERS:]]
    return added_flows([*kept, *(msgspec.structs.replace(one, handler=OTHERS) for one in rest)], into)


def _size(flow: Flow) -> int:
    return sum(getattr(flow, kind) for kind in KINDS)


class Histogram(msgspec.Struct, array_like=True):
    """How often which values occurred: counts by the buckets of `model.quantiles`, and the sum of the values."""

    counts: dict[int, int] = {}
    sum: int = 0

    def add(self, value: int) -> None:
        """Count a value, which is not below 0. Written out, as it is called twice for every task."""
        counts, place = self.counts, bisect_left(BOUNDS, value)
        counts[place] = counts.get(place, 0) + 1
        self.sum += value

    def merge(self, other: "Histogram") -> None:
        for place, n in other.counts.items():
            self.counts[place] = self.counts.get(place, 0) + n
        self.sum += other.sum

    @property
    def n(self) -> int:
        return sum(self.counts.values())

    @property
    def mean(self) -> int | None:
        n = self.n
        return round(self.sum / n) if n else None

    def spread(self, most: int) -> list[int]:
        """As many values as were counted, but at most `most`, that are spread as these are."""
        number = min(most, self.n)
        found = (self.quantile((place + 0.5) / number) for place in range(number))
        return [value for value in found if value is not None]

    def quantile(self, share: float) -> int | None:
        """The value that this share of the values does not exceed, to 5 %; None if there are no values."""
        left, place = share * self.n, None
        for place in sorted(self.counts):
            left -= self.counts[place]
            if left <= 0:
                break
        return None if place is None else value_at(place)


class HandlerFigures(msgspec.Struct, array_like=True):
    """What managers measured of one handler in one queue: starts, how long tasks waited since they were due, how long
    their runs took, and the bytes of memory that those needed which ran alone in their worker."""

    queue: str
    handler: str
    started: int = 0
    wait: Histogram = msgspec.field(default_factory=Histogram)
    run: Histogram = msgspec.field(default_factory=Histogram)
    memory: Histogram = msgspec.field(default_factory=Histogram)

    def merge(self, other: "HandlerFigures") -> None:
        self.started += other.started
        self.wait.merge(other.wait)
        self.run.merge(other.run)
        self.memory.merge(other.memory)


class PoolSample(msgspec.Struct, array_like=True):
    """A worker pool: seconds that its workers were in each state, megabytes times seconds, and ends of workers.

    `restarts` are workers that were replaced or started again, for whatever reason; `crashes` those that died.
    """

    workers: dict[str, int] = {}
    memory: int = 0
    restarts: int = 0
    crashes: int = 0

    def merge(self, other: "PoolSample") -> None:
        _add(self.workers, other.workers)
        self.memory += other.memory
        self.restarts += other.restarts
        self.crashes += other.crashes


class ResourceSample(msgspec.Struct, array_like=True):
    """A resource pool: seconds that its members were in each condition, which the leader alone tells; and what each
    manager saw: uses that tasks began, claims that found no member, and members that were refused, by destination.
    `destinations` are all uses that have ended, by where they went."""

    members: dict[str, int] = {}
    usable: int = 0
    uses: int = 0
    limits_met: int = 0
    refusals: dict[str, int] = {}
    destinations: dict[str, int] = {}

    def merge(self, other: "ResourceSample") -> None:
        _add(self.members, other.members)
        _add(self.refusals, other.refusals)
        _add(self.destinations, other.destinations)
        self.usable += other.usable
        self.uses += other.uses
        self.limits_met += other.limits_met

    def bound(self) -> None:
        """Tell `MOST_DESTINATIONS` apart: those that refused most, and those that were used most."""
        uses, refusals = self.destinations, self.refusals
        names = {*uses, *refusals} - {OTHERS}
        if len(names) <= MOST_DESTINATIONS:
            return
        by_use = sorted(names, key=lambda name: (-uses.get(name, 0), -refusals.get(name, 0), name))
        by_refusal = sorted(by_use, key=lambda name: -refusals.get(name, 0))
        kept = list(dict.fromkeys([*by_refusal[: MOST_DESTINATIONS // 2], *by_use]))[:MOST_DESTINATIONS]
        self.destinations, self.refusals = _kept(uses, kept), _kept(refusals, kept)


class WorkerSample(msgspec.Struct, array_like=True):
    """A worker, by its host and its name, which its successors have too: seconds in which it was alive, tasks that
    succeeded and failed in it, how long these took together, megabytes times seconds, and the moment of the last one.
    """

    host: str
    name: str
    pool: str = ""
    alive: int = 0
    succeeded: int = 0
    failed: int = 0
    busy: Span = 0
    memory: int = 0
    last: Moment = 0

    def merge(self, other: "WorkerSample") -> None:
        self.alive += other.alive
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.busy += other.busy
        self.memory += other.memory
        self.last = max(self.last, other.last)


class SampleKey(NamedTuple):
    """Which sample: the length and the beginning of its bucket, and the session that wrote it (0: rolled up)."""

    span: Span
    at: Moment
    session: int


class Sample(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the managers measured in one bucket. `covered` is for how many seconds of it there was at least one. Those
    are the first ones, or else the ranges `seen`. `led` is for how many seconds leaders told about resource pools."""

    at: Moment
    span: Span = RAW
    session: int = 0
    covered: int = 0
    led: int = 0
    handlers: list[HandlerFigures] = []
    pools: dict[str, PoolSample] = {}
    resources: dict[str, ResourceSample] = {}
    workers: list[WorkerSample] = []
    seen: list[tuple[int, int]] = []

    @property
    def key(self) -> SampleKey:
        return SampleKey(self.span, self.at, self.session)

    def bounded(self) -> Self:
        """With the busiest handlers, destinations and workers only; the others are added up."""
        self.handlers = _bounded_handlers(self.handlers)
        # Those that did least are left out: what they did is in the flows.
        self.workers = sorted(self.workers, key=lambda one: -one.succeeded - one.failed)[:MOST_WORKERS]
        for one in self.resources.values():
            one.bound()
        return self


class SampleSum:
    """The sum of samples of one time: of several sessions, and of the parts of that time. The order does not matter."""

    def __init__(self, at: Moment, span: Span) -> None:
        self.at, self.span = at, span
        self.handlers: dict[tuple[str, str], HandlerFigures] = {}
        self.pools: dict[str, PoolSample] = {}
        self.resources: dict[str, ResourceSample] = {}
        self.workers: dict[tuple[str, str], WorkerSample] = {}
        self.led = 0
        self._seen: list[tuple[int, int]] = []

    def add(self, part: Sample) -> None:
        """Managers that ran at the same time covered it once."""
        begun = (part.at - self.at) // SECOND
        self._seen = _joined([*self._seen, *((begun + a, begun + b) for a, b in part.seen or [(0, part.covered)])])
        self.led += part.led
        for one in part.handlers:
            if (one.queue, one.handler) not in self.handlers:
                self.handlers[one.queue, one.handler] = HandlerFigures(one.queue, one.handler)
            self.handlers[one.queue, one.handler].merge(one)
        for name, pool in part.pools.items():
            self.pools.setdefault(name, PoolSample()).merge(pool)
        for name, resource in part.resources.items():
            self.resources.setdefault(name, ResourceSample()).merge(resource)
        for worker in part.workers:
            self.workers.setdefault(
                (worker.host, worker.name), WorkerSample(worker.host, worker.name, worker.pool)
            ).merge(worker)

    @property
    def covered(self) -> int:
        """Seconds in which at least one manager ran."""
        return sum(b - a for a, b in self._seen)

    def sample(self) -> Sample:
        return Sample(
            at=self.at,
            span=self.span,
            covered=self.covered,
            led=self.led,
            handlers=list(self.handlers.values()),
            pools=self.pools,
            resources=self.resources,
            workers=list(self.workers.values()),
            seen=[] if self._seen[:1] == [(0, self.covered)] else self._seen,
        )


def merged_samples(samples: Iterable[Sample], span: Span) -> list[Sample]:
    """The samples of all sessions in buckets of this span, at least as long as their own."""
    return [one.bounded() for one in summed_samples(samples, span)]


def summed_samples(samples: Iterable[Sample], span: Span) -> list[Sample]:
    """The same, with every handler and worker."""
    found: dict[Moment, SampleSum] = {}
    for one in samples:
        at = bucket(one.at, span)
        found.setdefault(at, SampleSum(at, span)).add(one)
    return [found[at].sample() for at in sorted(found)]


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in their order, each second once."""
    found: list[tuple[int, int]] = []
    for begun, ended in sorted(ranges):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        elif begun < ended:
            found.append((begun, ended))
    return found


def _bounded_handlers(handlers: Sequence[HandlerFigures]) -> list[HandlerFigures]:
    if len(handlers) <= MOST_HANDLERS:
        return list(handlers)
    ranked = sorted(handlers, key=lambda one: (one.handler != OTHERS, one.started + one.run.n), reverse=True)
    kept, rest = ranked[:MOST_HANDLERS], dict[str, HandlerFigures]()
    for one in ranked[MOST_HANDLERS:]:
        rest.setdefault(one.queue, HandlerFigures(one.queue, OTHERS)).merge(one)
    return [*kept, *rest.values()]


def _kept(counts: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    kept = {name: counts[name] for name in names if name in counts}
    rest = sum(counts.values()) - sum(kept.values())
    return kept | {OTHERS: rest} if rest else kept


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, n in more.items():
        sums[name] = sums.get(name, 0) + n
