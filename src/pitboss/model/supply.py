"""How many uses a resource pool can provide: at most, as a steady rate, for how many workers, and why none now."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf

import msgspec

from pitboss.model.batch import Batch, BatchStatus
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.leasing import condition, limits_of
from pitboss.model.limits import Window
from pitboss.model.resource import Condition, Limits, PoolRules, Resource, ResourcePool, Stage
from pitboss.model.scaling import PoolLoad
from pitboss.model.states import State

# Conditions that end by themselves come first.
_TOLD = (Condition.BUSY, Condition.RESTING, Condition.COOLING, Condition.BLACKLISTED, Condition.DISABLED)
_FAR: Span = 100 * 366 * 86_400 * SECOND


class ResourcePoolView(msgspec.Struct, frozen=True):
    """A resource pool with all its members, read at one moment; or only with the number of those that are `ready`."""

    name: str
    rules: PoolRules
    members: Sequence[Resource] = ()
    ready: int = 0

    def supply(self, now: Moment, *, waits: bool = False) -> "Supply":
        """`waits`: with the waits of single members, such as those whose windows are used up."""
        enabled = [member for member in self.members if member.enabled]
        standing = [condition(member, self.rules, now) for member in enabled]
        ready = any(how in (Condition.READY, Condition.BUSY) for how, _ in standing)
        back = [until for _, until in standing if until is not None]
        limits = Counter(limits_of(member, self.rules) for member in enabled)
        later = Counter(
            (limits_of(member, self.rules), ceil((until - now) / SECOND) * SECOND)
            for member, (_, until) in zip(enabled, standing, strict=True)
            if waits and until is not None and until > now
        )
        return Supply(
            tuple(limits.items()),
            0 if ready or not back else max(0, min(back) - now),
            tuple((one, count, wait) for (one, wait), count in later.items()),
        )

    def shortage(self, now: Moment) -> str | None:
        """Why no member can be used now, and when one can be; None if one can be used now."""
        if not self.members:
            return f"{self.name} has no members"
        standing = [condition(member, self.rules, now) for member in self.members]
        counts = Counter(how for how, _ in standing)
        if counts[Condition.READY]:
            return None
        back = [until for _, until in standing if until is not None]
        following = f", next in {spoken(max(SECOND, min(back) - now))}" if back else ""
        return f"{_counted(self.name, counts)}{following}"


class Supply(msgspec.Struct, frozen=True):
    """The limits of a pool's enabled members, each with the number of members that have them; and how long it takes
    until the first of them can be used. `later` has those of these members, by their limits, that can be used only
    after a wait."""

    limits: tuple[tuple[Limits, int], ...]
    wait: Span = 0
    later: tuple[tuple[Limits, int, Span], ...] = ()

    @property
    def members(self) -> int:
        return sum(count for _, count in self.limits)

    @property
    def steady(self) -> float:
        """Uses per second in the long run; infinite without limits."""
        return sum((steady(limits) * count for limits, count in self.limits), 0.0)

    def rate(self, use: Span, *, whole: bool) -> float:
        """Uses per second in the long run, if each takes this time. `whole`: it stays open until its end, as with a
        client of the user's own; otherwise it ends as soon as it is made."""
        return sum((steady(limits, use, use if whole else 0) * count for limits, count in self.limits), 0.0)

    def most(self, time: Span) -> float:
        """Uses that can begin within this time at best."""
        there = Counter[Limits]()
        for limits, count in self.limits:
            there[limits] += count
        for limits, count, _ in self.later:
            there[limits] -= count
        spans = [(limits, count, time) for limits, count in there.items()]
        spans += [(limits, count, time - wait) for limits, count, wait in self.later if wait <= time]
        return sum((most(limits, left) * count for limits, count, left in spans if count > 0), 0.0)


def steady(limits: Limits, use: Span = 0, opened: Span = 0) -> float:
    """Uses per second of one member in the long run, if a task holds it for `use` and its use is open for `opened`:
    windows and gaps count from there."""
    later = limits.guard or min(opened, limits.use_within)
    rates = [window.count * SECOND / (window.per + later) for window in limits.windows]
    gap = limits.min_delay + limits.jitter / 2
    if gap and limits.delay_from == "start":
        rates.append(SECOND / (gap + later))
    held = use if limits.delay_from == "start" else use + gap
    if held and limits.concurrency is not None:
        rates.append(limits.concurrency * SECOND / held)
    return min(rates, default=inf)


def most(limits: Limits, time: Span) -> float:
    """Uses of one member that can begin within this time at best, with its whole budget unused."""
    numbers: list[float] = [window.count * (time // (window.per + limits.guard) + 1) for window in limits.windows]
    if limits.min_delay and limits.delay_from == "start":
        numbers.append(time // (limits.min_delay + limits.guard) + 1)
    elif limits.min_delay and limits.concurrency is not None:
        numbers.append(limits.concurrency * (time // limits.min_delay + 1))
    return min(numbers, default=inf)


def together(supplies: Iterable[Supply]) -> Supply:
    """Several supplies as one: each use may come from any of them."""
    found = list(supplies)
    return Supply(
        tuple(pair for supply in found for pair in supply.limits), min((one.wait for one in found), default=0)
    )


def soonest(supply: Supply, uses: int) -> Span | None:
    """The shortest time within which this many uses can begin; None if they never can."""
    if uses <= 0:
        return 0
    if not supply.members:
        return None
    low, high = -1, 1
    while supply.most(high) < uses:
        low, high = high, high * 2
        if high > _FAR:
            return None
    if supply.most(0) >= uses:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if supply.most(middle) >= uses else (middle, high)
    return high


def shortest(supply: Supply, uses: float, use: Span, *, whole: bool) -> float:
    """How long that many uses take at least, each of `use` (see `Supply.rate`). A window that is unused yet gives its
    whole budget at once; gaps and holding times go on steadily. Infinite without members."""
    if not supply.limits:
        return inf

    def windows(limits: Limits) -> Limits:
        opened = limits.guard or (min(use, limits.use_within) if whole else 0)
        longer = tuple(Window(one.count, one.per + opened) for one in limits.windows)
        return msgspec.structs.replace(limits, windows=longer, min_delay=0, jitter=0, guard=0)

    later = tuple((windows(limits), count, wait) for limits, count, wait in supply.later)
    at_best = soonest(Supply(tuple((windows(one), count) for one, count in supply.limits), 0, later), ceil(uses))
    gaps = Supply(tuple((msgspec.structs.replace(limits, windows=()), count) for limits, count in supply.limits))
    # Beyond a hundred years, a window more or less does not matter.
    slow = supply.rate(use, whole=whole) if at_best is None else gaps.rate(use, whole=whole)
    return max(float(at_best or 0), uses / slow * SECOND)


def feed(pool: ResourcePool) -> int | None:
    """How many tasks can hold a member at the same time; None is without limit."""
    most = pool.rules.limits.concurrency
    return None if most is None else _usable(pool) * most


def flow(pool: ResourcePool) -> float | None:
    """How many uses per second the limits of its members allow; None is without limit."""
    limits = pool.rules.limits
    rates = [window.count / (window.per + limits.guard) for window in limits.windows]
    gap = limits.min_delay + limits.jitter / 2
    if gap and limits.delay_from == "start":
        rates.append(1 / (gap + limits.guard))
    return min(rates) * SECOND * _usable(pool) if rates else None


def with_batches(load: PoolLoad, batches: Iterable[Batch], rooms: Mapping[str, int | None]) -> PoolLoad:
    """The load plus the held items of running batches on these queues: claims draw them as workers become free.

    `rooms` says for each queue how many of its tasks can hold a resource at the same time; None is without limit.
    Items beyond that number cannot start, so they are no load. Items of a batch on several queues count by their
    share. The next batch of a lane counts as coming once the batch before it has no held items left.
    """
    batches = list(batches)
    busy = {batch.lane for batch in batches if batch.status is BatchStatus.RUNNING and batch.counts.get(State.HELD)}
    pending, coming = load.pending, load.coming
    for batch in batches:
        held = _ready(batch, rooms)
        if batch.status is BatchStatus.RUNNING:
            pending += held
        elif batch.position == 1 and batch.lane not in busy:
            coming += held
    return msgspec.structs.replace(load, pending=pending, coming=coming)


def _ready(batch: Batch, rooms: Mapping[str, int | None]) -> int:
    here = [rooms[queue] for queue in batch.queues if queue in rooms]
    held = round(batch.counts.get(State.HELD, 0) * len(here) / max(1, len(batch.queues)))
    return held if None in here else min(held, sum(room or 0 for room in here))


def _usable(pool: ResourcePool) -> int:
    """Members that are not out. One that is away counts: when it comes back is not known here."""
    return pool.members - pool.stages.get(Stage.OUT, 0)


def _counted(name: str, counts: Counter[Condition]) -> str:
    told = [how for how in _TOLD if counts[how]]
    if len(told) == 1 and counts[told[0]] > 1:
        return f"{counts[told[0]]:,} {name} {told[0]}"
    return f"{name}: {', '.join(f'{counts[how]:,} {how}' for how in told)}"
