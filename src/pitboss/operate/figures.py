"""Figures over time, as a person reads them: one value for each step, and None where no manager measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from pitboss.client.samples import read_samples
from pitboss.engines.capabilities import capabilities, figures_of
from pitboss.engines.figure_protocol import Figures
from pitboss.engines.protocol import Store
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Moment, Span, span, spoken
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.figures import (
    HOUR,
    KINDS,
    MINUTE,
    OTHERS,
    RAW,
    UNKNOWN,
    Flow,
    HandlerFigures,
    Histogram,
    PoolSample,
    ResourceSample,
    Sample,
    SampleSum,
    bucket,
)
from pitboss.model.happening import Kind
from pitboss.model.retention import Retention
from pitboss.model.text import listed
from pitboss.operate.documents import Document, utc
from pitboss.operate.lookup import did_you_mean
from pitboss.operate.queues import find_queue

# A sample is written this long after its bucket is over, at the latest, if the store answers.
_WRITTEN_WITHIN: Span = 3 * SECOND
MOST_POINTS = 120
_MOST_RELEASES = 20
_STEPS = tuple(map(span, ("10s", "20s", "30s", "1m", "2m", "5m", "10m", "15m", "30m", "1h", "2h", "6h", "12h", "1d")))
_DEFAULT = Retention()
TOO_MANY = "there are more samples of managers than are read at once: workers, waits and runs are those since {}"
Values = tuple[float | int | None, ...]


class Release(msgspec.Struct, frozen=True):
    """When another release of the code of an app began to run."""

    at: Moment
    app: str
    release: str


class Destination(msgspec.Struct, frozen=True):
    """Uses of members of a resource pool that went there and have ended, and those of them that it refused."""

    uses: int
    refused: int


class FigureReading(msgspec.Struct, frozen=True, kw_only=True):
    """Series with one value for each step, oldest first. Spans are seconds.

    Flows (`in`, `out` and so on) are exact. What managers measure is None in a step in which no manager ran, and
    quantiles also in one without values. `covered` is the part of a step in which a manager ran. Where managers wrote
    more samples than are read, those are None, with `covered`, before `measured_since`. `releases` are the newest ones
    of this time, oldest first.
    """

    since: Moment
    until: Moment
    step: Span
    queue: str | None
    handler: str | None
    pool: str | None
    series: dict[str, Values]
    destinations: dict[str, Destination]
    measured_since: Moment | None = None
    releases: tuple[Release, ...] = ()

    @property
    def moments(self) -> list[Moment]:
        return list(range(self.since, self.until, self.step))

    def per_second(self, name: str) -> Values:
        """A series of counts as rates. The last step is not over yet: its rate is that of the time that has passed."""
        values, last = self.series[name], self.until - self.moments[-1]
        spans = [*[self.step] * (len(values) - 1), min(last, self.step)]
        return tuple(
            None if value is None else value * SECOND / span for value, span in zip(values, spans, strict=True)
        )

    @property
    def refusals(self) -> dict[str, int]:
        """How often which destination refused."""
        return {name: one.refused for name, one in self.destinations.items() if one.refused}

    @property
    def unmeasured(self) -> list[tuple[Moment, Moment]]:
        """The times in which no manager ran, between those in which one did."""
        found: list[tuple[Moment, Moment]] = []
        covered = self.series["covered"]
        known = [place for place, part in enumerate(covered) if part]
        for place in range(known[0], known[-1]) if known else ():
            at = self.since + place * self.step
            if not covered[place]:
                begun = found.pop()[0] if found and found[-1][1] == at else at
                found.append((begun, at + self.step))
        return found


async def read_figures(
    store: Store,
    now: Moment,
    *,
    since: Span = 2 * HOUR,
    step: Span | None = None,
    queue: str | None = None,
    handler: str | None = None,
    pool: str | None = None,
    points: int = MOST_POINTS,
) -> FigureReading:
    """The figures of the last `since`: of all tasks, of a queue, of a handler, or of a worker pool or resource pool.

    Without a step it chooses one for at most `points` values. Figures that were added up since have longer steps.
    """
    figures = figures_of(store)
    if queue is not None:
        await find_queue(store, queue)
    until = bucket(now - _WRITTEN_WITHIN, RAW)
    step = _checked_step(since, step, await _longest(figures, until - since, until), points)
    first = bucket(until - since, step)
    until = max(until, first + RAW)
    flows = await figures.flows(first, until, span=step, queue=queue, handler=handler)
    places = list(range(first, until, step))
    sums = {at: SampleSum(at, step) for at in places}

    def add(one: Sample) -> None:
        if one.at >= first:
            sums[bucket(one.at, step)].add(_wanted(one, queue, handler, pool))

    known = await read_samples(figures, first, until, add)
    measured = [sums[at].sample() if at >= (known or first) else Sample(at=at, span=step) for at in places]
    series = _flow_series(flows, places, step) | _task_series(measured)
    if known is not None:
        series["covered"] = tuple(
            one if at >= known else None for at, one in zip(places, series["covered"], strict=True)
        )
    destinations: dict[str, Destination] = {}
    if handler is not None and not any(series["in"]) and not any(series["started"]):
        await _check_handler(store, handler)
    if pool is not None:
        own, destinations = _pool_series(measured, pool)
        series = {"covered": series["covered"], **own}
    return FigureReading(
        since=first,
        until=until,
        step=step,
        queue=queue,
        handler=handler,
        pool=pool,
        series=series,
        destinations=destinations,
        measured_since=known,
        releases=await _releases(store, first, until),
    )


async def read_destinations(store: Store, now: Moment, pool: str, since: Span = HOUR) -> dict[str, Destination]:
    """Where the members of a resource pool were used; nothing if no place is known, or nothing was measured."""
    if capabilities(store).figures is None:
        return {}
    with suppress(NotFound):
        found = (await read_figures(store, now, since=since, pool=pool)).destinations
        return found if any(name not in (UNKNOWN, OTHERS) for name in found) else {}
    return {}


def figures_document(reading: FigureReading) -> Document:
    return {
        "since": utc(reading.since),
        "until": utc(reading.until),
        "step": reading.step / SECOND,
        "queue": reading.queue,
        "handler": reading.handler,
        "pool": reading.pool,
        "at": [utc(at) for at in reading.moments],
        "series": {name: list(values) for name, values in reading.series.items()},
        "refusals": reading.refusals,
        "destinations": msgspec.to_builtins(reading.destinations),
        "measured_since": utc(reading.measured_since),
        "releases": [{"at": utc(one.at), "app": one.app, "release": one.release} for one in reading.releases],
        "unmeasured": [{"since": utc(begun), "until": utc(ended)} for begun, ended in reading.unmeasured],
    }


async def _releases(store: Store, since: Moment, until: Moment) -> tuple[Release, ...]:
    log = capabilities(store).happenings
    if log is None:
        return ()
    found = await log.happenings(limit=_MOST_RELEASES, since=since, kinds=[Kind.RELEASE_CHANGED])
    told = [(one, from_json(one.details).get("release", "")) for one in reversed(found) if one.at < until]
    return tuple(Release(one.at, one.subject.removeprefix("app "), release) for one, release in told if release)


async def _longest(figures: Figures, since: Moment, until: Moment) -> Span:
    """The length of the longest samples of this time."""
    for length in (HOUR, MINUTE):
        if await figures.samples(bucket(since, length), until, span=length, limit=1):
            return length
    return RAW


def _wanted(sample: Sample, queue: str | None, handler: str | None, pool: str | None) -> Sample:
    """The part of it that is asked for."""
    if pool is not None:
        return msgspec.structs.replace(sample, handlers=[], workers=[])
    return msgspec.structs.replace(
        sample,
        handlers=[one for one in sample.handlers if queue in (None, one.queue) and handler in (None, one.handler)],
        pools={},
        resources={},
        workers=[],
    )


def _checked_step(since: Span, asked: Span | None, longest: Span, most: int) -> Span:
    if since < MINUTE or (asked is not None and (asked < RAW or asked % RAW)):
        raise InvalidInput(
            f"figures of {spoken(since)} in steps of {spoken(asked or RAW)} cannot be read",
            why=f"they are kept in steps of {spoken(RAW)} or longer, and for at least {spoken(MINUTE)}",
            fix="ask for a longer time, or for a step such as 10s, 1m or 1h",
        )
    best = next((one for one in _STEPS if since < one * most), _STEPS[-1])
    least = max(longest, _kept_step(since))
    found = max(least, best if asked is None else asked)
    return found + -found % least


def _kept_step(since: Span) -> Span:
    """How long the buckets of that age are, unless the settings say otherwise."""
    if _DEFAULT.figures_1m is not None and since > _DEFAULT.figures_1m:
        return HOUR
    return MINUTE if _DEFAULT.figures_10s is not None and since > _DEFAULT.figures_10s else RAW


def _flow_series(flows: Sequence[Flow], places: Sequence[Moment], step: Span) -> dict[str, Values]:
    sums = {at: dict.fromkeys((*KINDS, "in", "out"), 0) for at in places}
    for one in flows:
        counts = sums[bucket(one.at, step)]
        for kind in KINDS:
            counts[kind] += getattr(one, kind)
        counts["in"], counts["out"] = counts["in"] + one.arrived, counts["out"] + one.ended
    names = ("in", "out", *KINDS)
    return {name: tuple(sums[at][name] for at in places) for name in names}


def _task_series(points: Sequence[Sample]) -> dict[str, Values]:
    chosen = [_together(one.handlers) for one in points]

    def quantile(histogram: Callable[[HandlerFigures], Histogram], share: float) -> Values:
        found = (histogram(one).quantile(share) for one in chosen)
        return tuple(None if value is None else value / SECOND for value in found)

    return {
        "started": tuple(one.started if point.covered else None for one, point in zip(chosen, points, strict=True)),
        "wait_p50": quantile(lambda one: one.wait, 0.5),
        "wait_p95": quantile(lambda one: one.wait, 0.95),
        "run_p50": quantile(lambda one: one.run, 0.5),
        "run_p95": quantile(lambda one: one.run, 0.95),
        "covered": tuple(round(one.covered * SECOND / one.span, 3) for one in points),
    }


def _together(found: Iterable[HandlerFigures]) -> HandlerFigures:
    total = HandlerFigures("", "")
    for one in found:
        total.merge(one)
    return total


def _pool_series(points: Sequence[Sample], pool: str) -> tuple[dict[str, Values], dict[str, Destination]]:
    """Those of the worker pool and of the resource pool of this name; and its uses by destination."""
    workers = [one.pools.get(pool) for one in points]
    resources = [one.resources.get(pool) for one in points]
    if not any(workers) and not any(resources):
        known = sorted({name for one in points for name in (*one.pools, *one.resources)})
        raise NotFound(
            f'there are no figures of a pool "{pool}"',
            why=f"there are some of {listed(known)}" if known else "no manager has run in this time",
            fix=did_you_mean(pool, known, "check the name, or ask for a longer time"),
        )
    series: dict[str, Values] = {}
    if any(workers):
        series |= _worker_series(points, workers)
    if any(resources):
        series |= _resource_series(points, resources)
    return series, _destinations(one for one in resources if one is not None)


def _destinations(found: Iterable[ResourceSample]) -> dict[str, Destination]:
    """Those that refused most first, then by use."""
    total = ResourceSample()
    for one in found:
        total.merge(one)
    total.bound()
    uses, refusals = total.destinations, total.refusals
    told = {name: Destination(uses.get(name, 0), refusals.get(name, 0)) for name in {**refusals, **uses}}
    return dict(sorted(told.items(), key=lambda pair: (-pair[1].refused, -pair[1].uses, pair[0])))


def _worker_series(points: Sequence[Sample], pools: Sequence[PoolSample | None]) -> dict[str, Values]:
    covered = [one.covered for one in points]
    found = [one or PoolSample() for one in pools]
    return {
        **_means("workers", [one.workers for one in found], covered),
        "memory": tuple(
            round(one.memory * 1_000_000 / seconds) if seconds else None
            for one, seconds in zip(found, covered, strict=True)
        ),
        "restarts": tuple(one.restarts if seconds else None for one, seconds in zip(found, covered, strict=True)),
        "crashes": tuple(one.crashes if seconds else None for one, seconds in zip(found, covered, strict=True)),
    }


def _resource_series(points: Sequence[Sample], pools: Sequence[ResourceSample | None]) -> dict[str, Values]:
    led, covered = [one.led for one in points], [one.covered for one in points]
    found = [one or ResourceSample() for one in pools]
    return {
        **_means("members", [one.members for one in found], led),
        "usable": tuple(
            round(one.usable / seconds, 2) if seconds else None for one, seconds in zip(found, led, strict=True)
        ),
        "uses": tuple(one.uses if seconds else None for one, seconds in zip(found, covered, strict=True)),
        "limits_met": tuple(one.limits_met if seconds else None for one, seconds in zip(found, covered, strict=True)),
        "refused": tuple(
            sum(one.refusals.values()) if seconds else None for one, seconds in zip(found, covered, strict=True)
        ),
    }


def _means(prefix: str, found: Sequence[Mapping[str, int]], seconds: Sequence[int]) -> dict[str, Values]:
    """How many there were in each state, on average of the time that is known."""
    return {
        f"{prefix}_{state}": tuple(
            round(one.get(state, 0) / known, 2) if known else None for one, known in zip(found, seconds, strict=True)
        )
        for state in sorted({state for one in found for state in one})
    }


async def _check_handler(store: Store, handler: str) -> None:
    known: list[Any] = [one.name for one in await store.handlers()]
    if handler not in known:
        raise NotFound(
            f'there is no handler "{handler}"',
            why=f"the handlers are {listed(known)}" if known else "no app has registered any",
            fix=did_you_mean(handler, known, "check the name; it is that of the Python function"),
        )
