"""Rolls up figures as they age: the samples of all managers become one, buckets of 10 s become minutes, minutes hours,
and old hours are deleted."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pitboss.engines.figure_protocol import Figures
from pitboss.engines.protocol import Clock
from pitboss.model.duration import Moment, Span
from pitboss.model.figures import HOUR, MINUTE, RAW, Sample, bucket, merged_samples, summed_samples
from pitboss.model.retention import Retention
from pitboss.upkeep.duties import Duty

_ROLL_UP_SECONDS = 60.0
_READ_AT_ONCE = 1000
# A manager writes a sample again for a quarter of an hour, if it does not know whether it is stored. It must find it.
_WRITTEN_WITHIN: Span = 20 * MINUTE
# How far back a new leader looks.
_JOINED_WITHIN: Span = 24 * HOUR


class _Level(NamedTuple):
    """Buckets of `span` that began before `before` go into those of `into`; None: they are deleted."""

    span: Span
    into: Span | None
    before: Moment


def figure_duties(store: Figures | None, retention: Callable[[], Retention], clock: Clock) -> list[Duty]:
    """None for an engine without figures."""
    if store is None:
        return []
    joined: Moment = 0

    async def work(term: int) -> None:
        nonlocal joined
        joined = await join_managers(store, joined, clock.now(), term=term)
        await roll_up(store, retention(), clock, term=term)

    return [Duty("roll up", _ROLL_UP_SECONDS, work)]


async def join_managers(store: Figures, since: Moment, now: Moment, *, term: int) -> Moment:
    """Add up the samples of one bucket of 10 s of all managers, unless they are young: a chart of two hours then costs
    as much for forty managers as for one. Begins at `since`, and returns where to go on."""
    until = bucket(now - _WRITTEN_WITHIN, RAW)
    since = max(since, until - _JOINED_WITHIN)
    while since < until:
        found = await store.samples(since, until, span=RAW, limit=_READ_AT_ONCE)
        # Whole buckets, unless that one alone is too large.
        last = found[-1].at if len(found) == _READ_AT_ONCE else until
        whole = [one for one in found if one.at < last] or found
        managers = Counter(one.at for one in whole)
        parts = [one for one in whole if managers[one.at] > 1]
        if parts and not await store.replace_samples([one.key for one in parts], summed_samples(parts, RAW), term=term):
            return since
        since = last
    return since


async def roll_up(store: Figures, retention: Retention, clock: Clock, *, term: int) -> None:
    """A bucket at a time, so that other writers never wait long. Raises `NotLeader` if the term is over.

    It may be cut short anywhere: each step moves what it adds up in one act.
    """
    for level in _levels(retention, clock.now()):
        while await store.roll_flows(level.span, level.into, level.before, term=term):
            pass
        while await _roll_samples(store, level, term):
            pass


def _levels(retention: Retention, now: Moment) -> Iterator[_Level]:
    """Only whole buckets, so that a bucket is not rolled up while it grows."""
    ages = (
        (RAW, MINUTE, retention.figures_10s),
        (MINUTE, HOUR, retention.figures_1m),
        (HOUR, None, retention.figures_1h),
    )
    for span, into, age in ages:
        if age is not None:
            yield _Level(span, into, bucket(now - age, span if into is None else into))


async def _roll_samples(store: Figures, level: _Level, term: int) -> bool:
    """The oldest samples; False if none is left, or another leader was faster."""
    found = await store.samples(0, level.before, span=level.span, limit=_READ_AT_ONCE)
    if not found:
        return False
    gone, made = [one.key for one in found], list[Sample]()
    if level.into is not None:
        # Whole buckets, unless that one alone is too large, with hundreds of managers.
        first, last = bucket(found[0].at, level.into), bucket(found[-1].at, level.into)
        if len(found) == _READ_AT_ONCE and first < last:
            found = [one for one in found if one.at < last]
            gone = [one.key for one in found]
        there = await store.samples(first, last + level.into, span=level.into)
        made = merged_samples([*there, *found], level.into)
        written = {bucket(one.at, level.into) for one in found}
        made = [one for one in made if one.at in written]
    return await store.replace_samples(gone, made, term=term)
