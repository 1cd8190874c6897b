"""Undo an act: the audit log keeps what was before it, and that is written back.

Only the newest act on a thing can be undone: what someone changed since is not overwritten.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pitboss.client.batch_handle import act_in_portions
from pitboss.engines.capabilities import access_of, batches_of, capabilities
from pitboss.engines.protocol import Store
from pitboss.model.access import AuditEntry
from pitboss.model.batch import BatchStatus, Resume
from pitboss.model.canonical import from_json, to_json
from pitboss.model.errors import NotFound, PitbossError, Refused
from pitboss.model.limits import rate
from pitboss.model.pool_rules import key_text, plain_keys
from pitboss.model.queue import LIMITS, QueueChange
from pitboss.model.resource import ResourceChange
from pitboss.model.schedule import ScheduleChange
from pitboss.operate.desired_state import pool_values, restore_pool
from pitboss.operate.lookup import find_batch
from pitboss.operate.pool_rules import find_pool, limit_resource_pool
from pitboss.operate.queues import find_queue, rate_text
from pitboss.operate.resources import change_members, find_members, find_resource_pool

_PAGE, _SEARCHED = 200, 1000
_MEMBERS = "members"
Before = dict[str, Any]


class _Kind(NamedTuple):
    """An act that can be undone. `topic` is what it changes: a later act on the same topic prevents the undo. `read`
    gives what is before it, or nothing if it will change nothing; `write` brings that back, and is stored as `act`."""

    topic: str
    act: str
    read: Callable[[Store, str], Awaitable[Before]]
    write: Callable[[Store, str, Before, str], Awaitable[object]]


class _About(NamedTuple):
    """What an act changed: `names` of them (none: all) of `owner`."""

    topic: str
    owner: str
    names: frozenset[str]

    def touches(self, other: "_About") -> bool:
        either = not self.names or not other.names or not self.names.isdisjoint(other.names)
        return self[:2] == other[:2] and either


async def with_before(store: Store, entry: AuditEntry) -> AuditEntry:
    """The entry of an act that is about to be done, with what is before it."""
    kind = _KINDS.get(entry.act)
    if kind is None:
        return entry
    try:
        before = await kind.read(store, entry.target)
    except PitbossError:
        # The act itself says what is wrong with its target.
        return entry
    details = from_json(entry.details) | ({"before": before} if before else {})
    return msgspec.structs.replace(entry, details=to_json(details, what="details"))


def undoable(entry: AuditEntry) -> bool:
    return entry.act in _KINDS and "before" in from_json(entry.details)


def undo_offers(log: Iterable[object]) -> frozenset[str]:
    """The ids of those entries that can be undone: the last act on each thing. `log` is the newest, newest first."""
    found, seen = set[str](), dict[tuple[str, str], list[_About]]()
    for one in log:
        if isinstance(one, AuditEntry) and (about := _about(one)) is not None:
            newer = seen.setdefault(about[:2], [])
            if undoable(one) and not any(about.touches(other) for other in newer):
                found.add(one.id)
            newer.append(about)
    return frozenset(found)


async def find_undo_offers(store: object, shown: Sequence[object]) -> frozenset[str]:
    """The same for entries that a filter or a later page shows: acts that are not among them count too."""
    wanted = {one.id for one in shown if isinstance(one, AuditEntry) and undoable(one)}
    if not wanted:
        return frozenset()
    access, log = access_of(store), list[AuditEntry]()
    while len(log) < _SEARCHED and (not log or log[-1].id > min(wanted)):
        page = await access.audit_log(limit=_PAGE, before=log[-1].id if log else None)
        log += page
        if len(page) < _PAGE:
            break
    return undo_offers(log) & wanted


async def find_undoable(store: object, entry_id: str) -> AuditEntry:
    """The entry with this id, if it can still be undone."""
    access, newer, before = access_of(store), list[AuditEntry](), None
    while len(newer) < _SEARCHED:
        page = await access.audit_log(limit=_PAGE, before=before)
        for entry in page:
            if entry.id == entry_id:
                return _checked(entry, newer)
            newer.append(entry)
        if len(page) < _PAGE:
            break
        before = page[-1].id
    raise NotFound(
        "there is no such act", why=f"none of the newest {_SEARCHED:,} acts has this id", fix="pitboss activity"
    )


def undoing(entry: AuditEntry) -> str:
    """The act that undoes it, for the audit log."""
    return _KINDS[entry.act].act


def in_words(entry: AuditEntry) -> str:
    """What was undone: "the pause of queue mail"."""
    return f"{_WORDS[_KINDS[entry.act].topic]} {entry.target}"


async def undo(store: Store, entry: AuditEntry, *, by: str) -> None:
    """Bring back what was before. `find_undoable` has checked the entry."""
    await _KINDS[entry.act].write(store, entry.target, from_json(entry.details)["before"], by)


def _checked(entry: AuditEntry, newer: Sequence[AuditEntry]) -> AuditEntry:
    if not undoable(entry):
        raise Refused(
            f"{entry.act} {entry.target} cannot be undone",
            why="pauses, limits, sizes of pools and disabled members can, if they changed something",
            fix="do what helps by hand",
        )
    mine = _about(entry)
    later = next((one for one in newer if mine and (other := _about(one)) and mine.touches(other)), None)
    if later is not None:
        raise Refused(
            f"{entry.act} {entry.target} cannot be undone any more",
            why=f"{later.who} did {later.act} {later.target} since",
            fix="undo that one, or change it by hand",
        )
    return entry


def _about(entry: AuditEntry) -> _About | None:
    """What the act changed; None for an act that prevents no undo."""
    topic = _TOPICS.get(entry.act)
    names = entry.target.replace("/", " ").split()
    if topic is None or not names:
        return None
    if topic == _MEMBERS:
        return _About(topic, names[0], frozenset(names[1:]))
    # A target of another topic may have values behind its name.
    return _About(topic, "", frozenset(names)) if topic in _NAMES_ONLY else _About(topic, names[0], frozenset())


async def _paused_queue(store: Store, name: str) -> Before:
    return {} if (await find_queue(store, name)).paused else {"paused": False}


async def _resume_queue(store: Store, name: str, before: Before, by: str) -> object:
    return await store.change_queue(name, QueueChange(paused=False, by=by))


async def _queue_limits(store: Store, target: str) -> Before:
    queue = await find_queue(store, _first(target))
    return {"limits": {key: rate_text(queue.rate) if key == "rate" else getattr(queue, key) for key in queue.limited}}


async def _limit_queue(store: Store, target: str, before: Before, by: str) -> object:
    limits = dict(before["limits"])
    if "rate" in limits:
        limits["rate"] = rate(limits["rate"]) if limits["rate"] else ()
    return await store.change_queue(
        _first(target), QueueChange(**limits, withdraw=tuple(key for key in LIMITS if key not in limits))
    )


async def _rules(store: Store, target: str) -> Before:
    limited = (await find_pool(store, _first(target))).limited
    plain = {} if limited is None else plain_keys(limited.values)
    return {"limits": [key_text(key, value) for key, value in plain.items()]}


async def _limit_pool(store: Store, target: str, before: Before, by: str) -> object:
    return await limit_resource_pool(store, _first(target), before["limits"], by=by, reset=True)


async def _enabled(store: Store, target: str) -> Before:
    pool, *names = _words(target)
    members = find_members(await find_resource_pool(store, pool), names or None)
    enabled = [one.name for one in members if one.enabled]
    return {"enabled": enabled} if enabled else {}


async def _enable(store: Store, target: str, before: Before, by: str) -> object:
    pool = _words(target)[0]
    view = await find_resource_pool(store, pool)
    return await change_members(store, pool, find_members(view, before["enabled"]), ResourceChange(enabled=True))


async def _size(store: Store, target: str) -> Before:
    return {"size": await pool_values(store, _first(target), "size")}


async def _resize(store: Store, target: str, before: Before, by: str) -> None:
    await restore_pool(store, _first(target), "size", before["size"], by=by)


async def _paused_pool(store: Store, target: str) -> Before:
    paused = await pool_values(store, _first(target), "paused")
    return {} if paused.get("") else {"paused": paused}


async def _resume_pool(store: Store, target: str, before: Before, by: str) -> None:
    await restore_pool(store, _first(target), "paused", before["paused"], by=by)


async def _batch(store: Store, target: str) -> Before:
    status = (await find_batch(store, target)).status
    return {"status": status.value} if status in (BatchStatus.RUNNING, BatchStatus.QUEUED) else {}


async def _resume_batch(store: Store, target: str, before: Before, by: str) -> object:
    batch = await find_batch(store, target)
    return await act_in_portions(batches_of(store), batch.id, Resume())


async def _schedule(store: Store, name: str) -> Before:
    has = capabilities(store).schedules
    found = [] if has is None else await has.schedules([name])
    return {"paused": False} if found and not found[0].paused else {}


async def _resume_schedule(store: Store, name: str, before: Before, by: str) -> object:
    has = capabilities(store).schedules
    return has and await has.change_schedule(name, ScheduleChange(paused=False, by=by))


def _first(target: str) -> str:
    """The name, without the values that a command line has behind it."""
    return _words(target)[0]


def _words(target: str) -> list[str]:
    """ "proxies/p-03" of a route, "proxies p-03 p-04" of a command."""
    return target.replace("/", " ").split() or [target]


_LIMITS = _Kind("queue limits", "queues limit", _queue_limits, _limit_queue)
_RULES = _Kind("resource limits", "resource-pools limit", _rules, _limit_pool)
_DISABLE = _Kind(_MEMBERS, "resource-pools enable", _enabled, _enable)
_SCALE = _Kind("pool size", "worker-pools scale", _size, _resize)
_PAUSE = _Kind("pool pause", "worker-pools resume", _paused_pool, _resume_pool)
_KINDS: Mapping[str, _Kind] = {
    "queues pause": _Kind("queue pause", "queues resume", _paused_queue, _resume_queue),
    "queues limit": _LIMITS,
    "resource-pools limit": _RULES,
    "resources limit": _RULES,
    "resource-pools disable": _DISABLE,
    "resources disable": _DISABLE,
    "worker-pools scale": _SCALE,
    "pools scale": _SCALE,
    "worker-pools pause": _PAUSE,
    "pools pause": _PAUSE,
    "batches pause": _Kind("batch pause", "batches resume", _batch, _resume_batch),
    "schedules pause": _Kind("schedule pause", "schedules resume", _schedule, _resume_schedule),
}
_WORDS = {
    "queue pause": "the pause of queue",
    "queue limits": "the change of limits of queue",
    "resource limits": "the change of limits of resource pool",
    _MEMBERS: "the disabling of",
    "pool size": "the change of size of worker pool",
    "pool pause": "the pause of worker pool",
    "batch pause": "the pause of batch",
    "schedule pause": "the pause of schedule",
}
# What each act changes, also those that are not undone themselves.
_TOPICS = {act: kind.topic for act, kind in _KINDS.items()} | {
    "queues resume": "queue pause",
    "resource-pools enable": _MEMBERS,
    "resources enable": _MEMBERS,
    "worker-pools resume": "pool pause",
    "pools resume": "pool pause",
    "batches resume": "batch pause",
    "schedules resume": "schedule pause",
}
# Those whose targets have nothing but names.
_NAMES_ONLY = frozenset({"batch pause", "schedule pause", "queue pause"})
