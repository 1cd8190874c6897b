"""The last hour of a store minute by minute: what came and ended, how long tasks waited, and what workers did."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from pitboss.client.samples import read_samples
from pitboss.engines.capabilities import figures_of
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.figures import HOUR, MINUTE, Flow, Histogram, Sample, SampleSum, bucket
from pitboss.model.fleet import READY
from pitboss.model.queue import is_reserved
from pitboss.model.snapshot import WorkerState

_BUSY = WorkerState.PROCESSING
Values = tuple[float | None, ...]


class RunTimes(msgspec.Struct, frozen=True):
    """How long the tasks of a queue ran."""

    p50: Span | None = None
    p95: Span | None = None


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each minute since `since`, oldest first. `came`, `ended` and `failed` are exact numbers of tasks.
    What managers measure is None in a minute in which none ran, or that was not read: `waited` is in seconds, `busy`
    and `ready` are workers. `usual_wait` is the median of the hour, `runs` are by queue."""

    since: Moment
    until: Moment
    came: Values
    ended: Values
    failed: Values
    waited: Values
    busy: Values
    ready: Values
    usual_wait: Span | None
    runs: Mapping[str, RunTimes]

    def whole(self, values: Values) -> Values:
        """Without the present minute, which is not over yet: its counts are only a part."""
        return values[:-1] if self.until % MINUTE else values

    def unfinished(self, now: int) -> Values:
        """How many tasks waited or ran at the end of each minute, computed backwards from how many do now."""
        gone = [(out or 0) - (come or 0) for come, out in zip(self.came, self.ended, strict=True)]
        before = list(accumulate(reversed(gone), initial=now))[:-1]
        return tuple(max(0, one) for one in reversed(before))


async def read_pulse(store: Store, now: Moment) -> Pulse:
    figures = figures_of(store)
    first = bucket(now - HOUR, MINUTE)
    places = range(first, now, MINUTE)
    flows = [one for one in await figures.flows(first, now + 1, span=MINUTE) if not is_reserved(one.queue)]
    sums = {at: SampleSum(at, MINUTE) for at in places}

    def add(one: Sample) -> None:
        if one.at >= first:
            sums[bucket(one.at, MINUTE)].add(msgspec.structs.replace(one, resources={}, workers=[]))

    known = await read_samples(figures, first, now, add)
    measured = [sums[at].sample() if at >= (known or first) else Sample(at=at, span=MINUTE) for at in places]
    waits = [_waits([one]) for one in measured]
    usual = _waits(measured).quantile(0.5)
    return Pulse(
        since=first,
        until=now,
        came=_sums(flows, places, "arrived"),
        ended=_sums(flows, places, "ended"),
        failed=_sums(flows, places, "failed"),
        waited=tuple(None if (found := one.quantile(0.95)) is None else found / SECOND for one in waits),
        busy=tuple(_workers(one, (_BUSY,)) for one in measured),
        ready=tuple(_workers(one, READY) for one in measured),
        usual_wait=usual,
        runs=_runs(measured),
    )


def _sums(flows: Iterable[Flow], places: Sequence[Moment], kind: str) -> Values:
    found = dict.fromkeys(places, 0)
    for one in flows:
        at = bucket(one.at, MINUTE)
        found[at] = found.get(at, 0) + getattr(one, kind)
    return tuple(found[at] for at in places)


def _waits(samples: Iterable[Sample]) -> Histogram:
    total = Histogram()
    for sample in samples:
        for one in sample.handlers:
            if not is_reserved(one.queue):
                total.merge(one.wait)
    return total


def _workers(sample: Sample, states: Iterable[WorkerState]) -> float | None:
    """How many were in one of these states, on average."""
    if not sample.covered:
        return None
    return sum(pool.workers.get(state, 0) for pool in sample.pools.values() for state in states) / sample.covered


def _runs(samples: Iterable[Sample]) -> dict[str, RunTimes]:
    found: dict[str, Histogram] = {}
    for sample in samples:
        for one in sample.handlers:
            found.setdefault(one.queue, Histogram()).merge(one.run)
    return {queue: RunTimes(one.quantile(0.5), one.quantile(0.95)) for queue, one in found.items()}
