"""When a member of a pool may be used: uses, limits, turns. Pure: engines read a member, call these, write the result.

`nth` gives the moment of the n-th newest use of the member before this act (1 is the newest), or None if there were
fewer. After a clock was set back, "newest" may go by the clock or by the order of uses: no window is exceeded then.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.resource import (
    Condition,
    Limits,
    PoolRules,
    Resource,
    Shortage,
    Stage,
    Strategy,
    UseEnd,
    Want,
)

Nth = Callable[[int], Moment | None]
STRIDE = 100_000_000
# Open uses that one act grants have moments within this span.
APART: Span = 1000
_TURNS = (Strategy.ROUND_ROBIN, Strategy.WEIGHTED)


def limits_of(resource: Resource, rules: PoolRules) -> Limits:
    return resource.limits or rules.limits


def fits(resource: Resource, want: Want, avoided: Iterable[str] = ()) -> bool:
    """Whether a task with this want may have the member. Its key is not looked at."""
    return set(want.labels) <= set(resource.labels) and resource.name not in avoided


def in_service(resource: Resource, now: Moment) -> bool:
    """Whether it is neither disabled nor sent away for some time."""
    return resource.enabled and max(resource.record.cooldown_until, resource.record.blacklisted_until) <= now


def avoided(tried: Sequence[str], members: int) -> frozenset[str]:
    """The members that a task does not get again because it failed with them. `members` is how many carry its labels
    and are in service.

    One is always left, so that a task never waits for a member that does not exist, or will be away for long.
    """
    return frozenset(tried[-(members - 1) :]) if members > 1 else frozenset()


def granted(resource: Resource, rules: PoolRules, nth: Nth, now: Moment, floor: int = 0) -> Resource:
    """Given to a task or a lease, which is a use. `floor` is that of the act (`turn_floor`)."""
    behind = resource.record.turn < floor and takes_turns(rules)
    record = msgspec.structs.replace(resource.record, turn=floor) if behind else resource.record
    started = msgspec.structs.replace(resource, record=record)
    return _used(started, rules, nth, now, in_use=resource.in_use + 1)


def takes_turns(rules: PoolRules) -> bool:
    """Whether the pool's strategy counts turns."""
    return rules.strategy in _TURNS


def turn_floor(last: Resource | None) -> int:
    """From which turn on a member counts that is given in this act, where turns are taken.

    `last` is the last of the ready members by rank, before the act. A member that could not be used while others were,
    so makes up for one round at most.
    """
    return 0 if last is None else last.record.turn - STRIDE // last.weight


def used(resource: Resource, rules: PoolRules, nth: Nth, now: Moment) -> Resource:
    """Used once more by its holder. Only called when `available_at` has come."""
    return _used(resource, rules, nth, now, in_use=resource.in_use)


class Moved(NamedTuple):
    """A member with one use at another moment: that moment, and the newest uses that change places, in rising order."""

    member: Resource
    at: Moment
    newest: list[Moment]


def moved(resource: Resource, rules: PoolRules, nth: Nth, at: Moment, now: Moment) -> Moved | Moment | None:
    """Count a use that is remembered at `at`, and has not been made yet, from now on.

    Answers the moment to wait for if others have used the member since; None if no use at `at` is remembered.
    """
    limits = limits_of(resource, rules)
    if at > (now + open_for + APART if (open_for := open_span(limits)) else now):
        return None
    new = _moment(resource, limits, now)
    newest = _replaced(limits, nth, at, new)
    if newest is None:
        return None
    # Its own gap was kept when it was granted, unless others used the member later.
    alone = resource.last_used_at == at and limits.delay_from == "start"
    until = max(_known(resource, limits, _without(nth, at)), 0 if alone else _rested(limits, resource))
    if until > now:
        return until
    later = msgspec.structs.replace(resource, last_used_at=max(resource.last_used_at, new))
    windows = _known(later, limits, _after(nth, newest))
    available_at = max(resource.available_at, windows, _rested(limits, later))
    return Moved(placed(msgspec.structs.replace(later, available_at=available_at), rules, now), new, newest)


def ended(resource: Resource, rules: PoolRules, nth: Nth, end: UseEnd, now: Moment) -> Moved | None:
    """An open use is over: it counts from its end. None if that changes nothing, or no such use is remembered."""
    limits = limits_of(resource, rules)
    over = min(end.at, now if end.ended is None else min(end.ended, now))
    newest = _replaced(limits, nth, end.at, over) or []
    last = resource.last_used_at == end.at
    if over == end.at or not (newest or last):
        return None
    after = _after(nth, newest)
    used_at = resource.last_used_at
    if last:
        used_at = max(over, after(1) or 0) if limits.windows else over
    changed = msgspec.structs.replace(resource, last_used_at=used_at)
    return Moved(restated(changed, rules, after, now), over, newest)


def restated(resource: Resource, rules: PoolRules, nth: Nth, now: Moment) -> Resource:
    """After a change of its rules or settings: when it may be used again, from its remembered uses."""
    limits = limits_of(resource, rules)
    rested = _rested(limits, resource) if resource.record.uses else 0
    available_at = max(rested, _known(resource, limits, nth))
    return placed(msgspec.structs.replace(resource, available_at=available_at), rules, now)


def placed(resource: Resource, rules: PoolRules, now: Moment) -> Resource:
    """With its stage and rank computed from its other fields."""
    return msgspec.structs.replace(resource, stage=stage(resource, rules, now), rank=_rank(resource, rules))


def stage(resource: Resource, rules: PoolRules, now: Moment) -> Stage:
    if not resource.enabled:
        return Stage.OUT
    most = _most_at_once(resource, rules)
    if most is not None and resource.in_use >= most:
        return Stage.BUSY
    return Stage.AWAY if resource.available_at > now else Stage.READY


def condition(resource: Resource, rules: PoolRules, now: Moment) -> tuple[Condition, Moment | None]:
    """Its condition in words for people, and until when."""
    record = resource.record
    if not resource.enabled:
        return Condition.DISABLED, None
    if record.blacklisted_until > now:
        return Condition.BLACKLISTED, record.blacklisted_until
    if record.cooldown_until > now:
        return Condition.COOLING, max(record.cooldown_until, resource.available_at)
    where = stage(resource, rules, now)
    # While a use is open, it is not known when the member may be used again.
    if where is Stage.BUSY or (where is Stage.AWAY and resource.in_use and resource.last_used_at > now):
        return Condition.BUSY, None
    return (Condition.RESTING, resource.available_at) if where is Stage.AWAY else (Condition.READY, None)


def shortage(pool: str, stages: Mapping[Stage, int], until: Moment | None) -> Shortage:
    """Why no member could be given, from the number of members in each stage at this moment.

    `until` is the earliest `available_at` of those that are away.
    """
    if not sum(stages.values()):
        return Shortage(pool=pool, why="no members")
    if stages.get(Stage.READY):
        return Shortage(pool=pool, why="none fits", until=until)
    if stages.get(Stage.AWAY):
        return Shortage(pool=pool, why="all away", until=until)
    return Shortage(pool=pool, why="all busy" if stages.get(Stage.BUSY) else "all disabled")


def grew_old(took: float, within: Span) -> bool:
    """Whether the answer took so long to arrive that the limits may not hold at the far side; `took` is in seconds,
    `within` the guard, or how long the use is open."""
    return within > 0 and took * SECOND * 2 > within


def open_span(limits: Limits) -> Span:
    """How long a use is open at most. Without limits that look back at uses, and with a guard, it is not open."""
    looks_back = limits.windows or (limits.delay_from == "start" and (limits.min_delay or limits.jitter))
    return limits.use_within if looks_back and not limits.guard else 0


def most_remembered(limits: Limits) -> int:
    """How many of the newest uses the windows look at."""
    return max((window.count for window in limits.windows), default=0)


def _used(resource: Resource, rules: PoolRules, nth: Nth, now: Moment, *, in_use: int) -> Resource:
    limits, record = limits_of(resource, rules), resource.record
    used_at = _moment(resource, limits, now)
    turn = record.turn + STRIDE // resource.weight
    record = msgspec.structs.replace(record, uses=record.uses + 1, turn=turn, since=min(record.since, now))
    changed = msgspec.structs.replace(resource, in_use=in_use, last_used_at=used_at, record=record)
    moments = [changed.available_at]
    for window in limits.windows:
        # With this use, the n-th newest is the one that was the (n-1)-th before. If the clock was set back, or uses
        # were open for longer before a change of limits, its moment may be later than this use: then this use counts.
        at = used_at if window.count == 1 else nth(window.count - 1)
        moments += [] if at is None else [min(at, used_at) + window.per + limits.guard]
    # Without a gap there is nothing to wait for, not even this moment: the clock may be set back.
    if limits.delay_from == "start" and (gap := _start_gap(limits, changed)):
        moments.append(used_at + gap)
    return placed(msgspec.structs.replace(changed, available_at=max(moments)), rules, now)


def _moment(resource: Resource, limits: Limits, now: Moment) -> Moment:
    """The moment under which a use that is granted now is remembered: the latest at which it can be made.

    Open uses of one member have different moments, so that an end that is told twice never ends another use.
    """
    open_for = open_span(limits)
    at = now + open_for
    taken = open_for and 0 <= resource.last_used_at - at < APART
    return resource.last_used_at + 1 if taken else at


def _replaced(limits: Limits, nth: Nth, at: Moment, new: Moment) -> list[Moment] | None:
    """The newest uses, in rising order, with the one at `at` moved to `new`; None if there is none at `at`.

    Empty without windows: only windows remember uses.
    """
    newest: list[Moment] = []
    if not limits.windows:
        return newest
    while (moment := nth(len(newest) + 1)) is not None and moment >= min(at, new):
        newest.insert(0, moment)
    if at not in newest[-most_remembered(limits) :]:
        return None
    newest.remove(at)
    insort(newest, new)
    return newest


def _after(nth: Nth, newest: Sequence[Moment]) -> Nth:
    """`nth` with other moments for the newest uses."""
    return lambda n: newest[-n] if n <= len(newest) else nth(n)


def _without(nth: Nth, at: Moment) -> Nth:
    """`nth` without one use at `at`, which is remembered."""

    def moment(n: int) -> Moment | None:
        found = nth(n)
        return found if found is None or found > at else nth(n + 1)

    return moment


def _known(resource: Resource, limits: Limits, nth: Nth) -> Moment:
    """Until when its windows and its record keep it from being used."""
    windows = [at + window.per + limits.guard for window in limits.windows if (at := nth(window.count)) is not None]
    return max([resource.record.cooldown_until, resource.record.blacklisted_until, *windows])


def _rested(limits: Limits, resource: Resource) -> Moment:
    """When the gap since its last use, or since the end of one, is over."""
    if limits.delay_from == "end":
        return rested_from_end(limits, resource, resource.record.ended_at)
    gap = _start_gap(limits, resource)
    return resource.last_used_at + gap if gap else 0


def rested_from_end(limits: Limits, resource: Resource, ended_at: Moment) -> Moment:
    gap = _gap(limits, f"{resource.id} {ended_at}")
    return ended_at + gap if gap and ended_at else 0


def _start_gap(limits: Limits, resource: Resource) -> Span:
    gap = _gap(limits, f"{resource.id} {resource.record.uses}")
    return gap + limits.guard if gap else 0


def _gap(limits: Limits, lot: str) -> Span:
    """The gap between two uses. The part of the jitter is a hash of the member and its number of uses (or the end that
    the gap counts from): the same on every engine and at every call, but not recognisable from outside."""
    return limits.min_delay + round(limits.jitter * crc32(lot.encode()) / 2**32)


def _most_at_once(resource: Resource, rules: PoolRules) -> int | None:
    return 1 if resource.record.blacklistings else limits_of(resource, rules).concurrency


def _rank(resource: Resource, rules: PoolRules) -> int:
    if rules.strategy in _TURNS:
        return resource.record.turn
    if rules.strategy is Strategy.LEAST_LOADED:
        most = _most_at_once(resource, rules)
        return resource.in_use * 1_000_000 // (most or 1)
    return resource.last_used_at
