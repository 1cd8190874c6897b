"""How long the tasks of a queue will take, and what limits them. Pure: `operate.plan` reads, this computes.

Each limit alone gives a time; the longest one binds. A time is a range: it is wider if few durations were measured or
they differ much; limits of resources count at best with all members, at worst with those that are in service now.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import inf, sqrt
from statistics import fmean, pstdev
from typing import NamedTuple

import msgspec

from pitboss.model.assignment import WORTH, WORTH_SHARE, KeyLoad, divided
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.eta import ENOUGH_ITEMS, LIKELY
from pitboss.model.limits import Window
from pitboss.model.supply import Supply, shortest
from pitboss.model.text import counted

UNKNOWN = f"unknown until {ENOUGH_ITEMS} tasks have ended; declare usual= for an estimate before that"
# The part by which a declared duration, and the losses of a limit that is used to the full, may be wrong.
_DECLARED = 0.25
_LOSSES = 0.1
_MOST_UNSURE = 0.9
# The part of a task's time that handing it out may take in addition. More than that is a wait for something else.
_OVERHEAD = 0.15
# How many intervals between two ends of a worker say how fast it is.
_ENOUGH_OF_ONE = 3
_MINUTE, _HOUR, _DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
_SECONDS_UP_TO, _MINUTES_UP_TO, _HOURS_UP_TO = 100 * SECOND, 100 * _MINUTE, 48 * _HOUR
_ROUND_FROM = 10


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long a run of a task takes: on average, and by which part that may be wrong. `runs` is how many runs a task
    needs, `pace` how many tasks one worker ended per second lately, and `uses` one member of a resource pool (0:
    unknown). `samples` is how many ended tasks this is from; 0: it is declared."""

    mean: Span
    unsure: float
    runs: float = 1.0
    pace: float = 0.0
    uses: float = 0.0
    samples: int = 0


class Ended(NamedTuple):
    """A task that was completed: its worker, how long its last run took and when that ended, the number of its runs,
    and the member of a resource pool that it held."""

    worker: Hashable
    took: Span
    at: Moment
    runs: int = 1
    member: Hashable = None


class Time(msgspec.Struct, frozen=True):
    """The likely time of some work, and the shortest and longest that are likely."""

    least: float
    middle: float
    most: float


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of a queue, named for people ("proxies", "workers"), and the time that all its tasks take by it. `rate`
    is how many tasks per second it allows in the long run, if that is not simply all of them in that time."""

    name: str
    time: Time
    kind: str
    rate: float | None = None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The unfinished tasks of a queue, and what they share.

    `seats` is how many run at the same time in all workers together, `per_worker` in one; a worker pauses for `delay`
    after a task. `others` is the time that tasks of other queues take in the same workers. `usable` are the members of
    the resource pool `pool` that are in service now, `members` all that are enabled. `keys` has the unfinished tasks by
    key, and `slots` those of each slot where only the owner takes them; `movable`: the leader moves keys between slots;
    `held`: without a worker in its slot, a key waits. `waiting` has the tasks, by key, that no slot takes, and `paused`
    is how many others belong to paused batches; both are not part of `left`.
    """

    left: int
    seats: int
    per_worker: int = 1
    delay: Span = 0
    others: Span = 0
    timing: Timing | None = None
    rate: tuple[Window, ...] = ()
    pool: str = ""
    usable: Supply | None = None
    members: Supply | None = None
    keys: Mapping[str, int] = {}
    max_per_key: int | None = None
    slots: Mapping[str, int] = {}
    movable: bool = False
    held: bool = False
    waiting: Mapping[str, int] = {}
    paused: int = 0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The bound that decides, and all bounds, the longest first. `timed`: the duration of a task is known; without it,
    the time is at least that of the limits. `left` tasks can end; `waiting` ones cannot start."""

    left: int
    waiting: int = 0
    bound: Bound | None
    bounds: tuple[Bound, ...] = ()
    timed: bool = True

    @property
    def time(self) -> Time | None:
        """The earliest and the latest end by any bound."""
        if self.bound is None:
            return None
        times = [one.time for one in self.bounds]
        return Time(max(one.least for one in times), self.bound.time.middle, max(one.most for one in times))

    @property
    def rate(self) -> float | None:
        """Tasks per second in the long run."""
        if self.bound is None or self.bound.time.middle in (0, inf):
            return None
        return self.bound.rate or self.left * SECOND / self.bound.time.middle


def timing(ended: Sequence[Ended], declared: Span | None = None, remembered: Sequence[Span] = ()) -> Timing | None:
    """From tasks that have ended lately, if they are enough; else from runs that managers measured before, if those
    are; else as declared."""
    if len(ended) < ENOUGH_ITEMS <= len(remembered):
        mean, unsure = _mean(remembered)
        return Timing(mean=mean, unsure=max(unsure, _LOSSES), samples=len(remembered))
    if len(ended) < ENOUGH_ITEMS:
        return None if declared is None else Timing(mean=declared, unsure=_DECLARED)
    mean, unsure = _mean([one.took for one in ended])
    return Timing(
        mean=mean,
        unsure=unsure,
        runs=fmean(one.runs for one in ended),
        pace=_pace([(one.worker, one.at) for one in ended], _ENOUGH_OF_ONE),
        uses=_pace([(one.member, one.at) for one in ended if one.member is not None], 1),
        samples=len(ended),
    )


def _mean(durations: Sequence[Span]) -> tuple[Span, float]:
    """How long they take on average, and by which part that may be wrong."""
    mean = max(fmean(durations), 1.0)
    return round(mean), min(LIKELY * pstdev(durations) / mean / sqrt(len(durations)), _MOST_UNSURE)


def _pace(ends: Sequence[tuple[Hashable, Moment]], enough: int) -> float:
    """Ends per second of one worker or member, on average over those with enough intervals between two ends."""
    each: dict[Hashable, list[Moment]] = {}
    for name, at in ends:
        each.setdefault(name, []).append(at)
    spans = [(len(at) - 1, max(at) - min(at)) for at in each.values()]
    paces = [number * SECOND / span for number, span in spans if number >= enough and span > 0]
    return fmean(paces) if paces else 0.0


def estimate(work: Work) -> Estimate:
    """What binds, and how long it takes."""
    return _estimate(work, _place_between(work))


def what_if(work: Work) -> dict[str, Estimate]:
    """The same work with other means, by what is different."""
    found: dict[str, Work] = {}
    replace = msgspec.structs.replace
    by_table = bool(work.slots) and not work.movable
    if by_table:
        found["with mode balanced"] = _balanced(work)
    if work.seats > work.per_worker:
        found["with half the workers"] = _halved(work)
    if work.usable is not None and work.members is not None:
        more = replace(work, usable=_twice(work.usable), members=_twice(work.members))
        found[f"with twice the {work.pool}"] = more
    elif not by_table:
        found["with twice the workers"] = replace(work, seats=work.seats * 2)
    place = _place_between(work)
    return {name: _estimate(one, place) for name, one in found.items()}


def _balanced(work: Work) -> Work:
    """All keys divided among the slots as for a new queue; then no key waits for a slot."""
    keys = {**work.keys, **work.waiting}
    owners = divided([KeyLoad(key, None, tasks) for key, tasks in sorted(keys.items())], list(work.slots))
    slots = dict.fromkeys(work.slots, 0)
    for key, slot in owners.items():
        slots[slot] += keys[key]
    left = work.left + sum(work.waiting.values())
    return msgspec.structs.replace(work, left=left, keys=keys, waiting={}, slots=slots, movable=True)


def _halved(work: Work) -> Work:
    """With half the workers. Keys of the table whose slot is missing then wait, or other slots take them."""
    fewer = msgspec.structs.replace(work, seats=max(work.per_worker, work.seats // 2))
    if not work.held:
        return msgspec.structs.replace(fewer, movable=True) if work.slots else fewer
    first = dict(list(work.slots.items())[: max(1, len(work.slots) // 2)])
    return msgspec.structs.replace(fewer, slots=first, left=sum(first.values()))


def _estimate(work: Work, place: float) -> Estimate:
    found = sorted(_bounds(work, place), key=lambda one: -one.time.middle)
    return Estimate(
        left=work.left,
        waiting=sum(work.waiting.values()) + work.paused,
        bound=found[0] if found and work.left else None,
        bounds=tuple(found),
        timed=work.timing is not None,
    )


def told(found: Estimate) -> str:
    """ "bound by proxies: 2,500/h; 309,720 tasks; 5.2 days (4.6–5.9)"."""
    time = found.time
    if not found.left:
        return f"no end: {counted(found.waiting, 'task')} cannot start" if found.waiting else "nothing is left to do"
    if time is None or found.bound is None:
        return UNKNOWN
    if time.middle == inf:
        return f"bound by {found.bound.name}: {counted(found.left, 'task')} cannot end"
    said = f"bound by {found.bound.name}: {spoken_rate(found.rate or 0)}; {counted(found.left, 'task')}"
    if not found.timed:
        return f"{said}; at least {spoken_time(time.middle)}; how long a task takes is {UNKNOWN}"
    return f"{said}; {spoken_range(time)}"


def spoken_rate(per_second: float) -> str:
    """Per hour, or per minute or second where that is fast; per day where it is slow."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_second * seconds >= _ROUND_FROM**3 or (unit == "h" and per_second * seconds >= 1):
            return f"{per_second * seconds:,.0f}/{unit}"
    return f"{per_second * 86_400:,.3g}/day"


def spoken_time(time: float) -> str:
    """ "5.2 days"."""
    if time == inf:
        return "never"
    size, unit = _unit(time)
    return f"{_figure(time / size)} {unit}"


def spoken_range(time: Time) -> str:
    """ "5.2 days (4.6–5.9)", all in one unit."""
    if time.middle == inf:
        return "never"
    size, unit = _unit(time.middle)
    if time.most == inf:
        return f"{_figure(time.middle / size)} {unit} or more"
    least, middle, most = (_figure(one / size) for one in (time.least, time.middle, time.most))
    return f"{middle} {unit}" if least == most else f"{middle} {unit} ({least}–{most})"


def _bounds(work: Work, place: float) -> Iterator[Bound]:
    """The time that each limit alone allows. `place` is that of `_place_between`."""
    runs = 1.0 if work.timing is None else work.timing.runs
    if work.timing is not None:
        yield from _of_time(work, work.timing)
    if work.rate:
        per_second = min(window.count * SECOND / window.per for window in work.rate)
        said = ", ".join(f"{window.count:,} per {spoken(window.per)}" for window in work.rate)
        yield Bound(name=f"the rate ({said})", time=_limited(work.left * runs, per_second), kind="rate")
    if work.usable is not None and work.members is not None:
        yield _of_resources(work, work.usable, work.members, place)


def _of_resources(work: Work, usable: Supply, members: Supply, place: float) -> Bound:
    """At best all members take part and a use ends as it is made; at worst only those in service do, and a use lasts as
    long as its task."""
    found = work.timing or Timing(mean=0, unsure=0.0)
    here, uses = usable if usable.members else members, work.left * found.runs
    if not here.members:
        return Bound(name=f"{work.pool}, which has no enabled member", time=Time(inf, inf, inf), kind="resources")
    best, worst = (shortest(here, uses, found.mean, whole=whole) for whole in (False, True))
    fast, slow = (here.rate(found.mean, whole=whole) for whole in (False, True))
    if not best or fast == inf:
        return Bound(name=work.pool, time=Time(0.0, best, worst), kind="resources")
    return Bound(
        name=work.pool,
        # The budgets of windows may be used up by now: then all uses are at the steady rate.
        time=Time(
            shortest(members, uses, found.mean, whole=False),
            1 / (place / best + (1 - place) / worst),
            max(worst, uses / slow * SECOND) * (1 + _LOSSES),
        ),
        kind="resources",
        rate=(slow + place * (fast - slow)) / found.runs,
    )


def _place_between(work: Work) -> float:
    """Where between worst (0) and best (1) the uses of members were lately; in the middle if that is unknown, as with
    members that were not used to the full."""
    found = work.timing
    if found is None or work.usable is None or not work.usable.members:
        return 0.5
    best, worst = work.usable.rate(found.mean, whole=False), work.usable.rate(found.mean, whole=True)
    seen = found.uses * work.usable.members
    if best in (worst, inf) or seen < worst * (1 - _LOSSES):
        return 0.5
    return min(max((seen - worst) / (best - worst), 0.0), 1.0)


def _of_time(work: Work, timing: Timing) -> Iterator[Bound]:
    """The bounds that follow from how long a task takes."""
    turn = _turn(work, timing)
    if not work.seats:
        yield Bound(name="workers: none serves the queue", time=Time(inf, inf, inf), kind="workers")
    else:
        rounds = max(work.left / work.seats, 1.0 if work.left else 0.0)
        yield Bound(name="workers", time=_likely(rounds * turn + work.others / work.seats, timing), kind="workers")
    largest = max(work.keys, key=lambda key: work.keys[key], default=None)
    if largest is not None and work.max_per_key is not None:
        time = _likely(work.keys[largest] * timing.mean * timing.runs / work.max_per_key, timing)
        name = (
            f"max_per_key ({work.max_per_key:,} at once of key {largest}, which has {_share(work, work.keys[largest])})"
        )
        yield Bound(name=name, time=time, kind="max_per_key")
    if not work.slots:
        return
    if work.movable and largest is not None:
        yield Bound(
            name=f"key {largest}, which has {_share(work, work.keys[largest])}",
            time=_likely(work.keys[largest] * turn / work.per_worker, timing),
            kind="key",
        )
    slot = max(work.slots, key=lambda name: work.slots[name])
    longest = work.slots[slot] * turn / work.per_worker
    even = sum(work.slots.values()) * turn / work.per_worker / len(work.slots)
    if work.movable and longest - even > max(WORTH, WORTH_SHARE * longest):
        # The leader evens it out. It moves no key that saves less.
        return
    yield Bound(
        name=f"slot {slot}, which has {_share(work, work.slots[slot])}", time=_likely(longest, timing), kind="slot"
    )


def _turn(work: Work, timing: Timing) -> float:
    """How long a task occupies a seat, with the pause after it, and a little more if that was observed."""
    least = (timing.mean + work.delay) * timing.runs
    seen = work.per_worker / timing.pace * SECOND if timing.pace else 0.0
    return min(max(least, seen), least * (1 + _OVERHEAD))


def _share(work: Work, tasks: int) -> str:
    return f"{tasks / work.left:.0%} of the work" if work.left else "no work"


def _likely(time: float, timing: Timing) -> Time:
    return Time(time * (1 - timing.unsure), time, time * (1 + timing.unsure))


def _limited(uses: float, per_second: float) -> Time:
    """By a limit that is used to the full, except for some losses."""
    time = uses / per_second * SECOND
    return Time(time, time, time * (1 + _LOSSES))


def _twice(supply: Supply) -> Supply:
    return msgspec.structs.replace(supply, limits=tuple((limits, 2 * count) for limits, count in supply.limits))


def _unit(time: float) -> tuple[Span, str]:
    if time < _SECONDS_UP_TO:
        return SECOND, "s"
    if time < _MINUTES_UP_TO:
        return _MINUTE, "min"
    return (_HOUR, "h") if time < _HOURS_UP_TO else (_DAY, "days")


def _figure(value: float) -> str:
    return f"{value:,.1f}" if value < _ROUND_FROM else f"{value:,.0f}"
