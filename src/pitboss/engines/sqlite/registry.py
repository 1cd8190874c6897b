"""Sessions, the leader, queues' settings, handlers and desired state: the small tables."""

from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.open_queue import opens_at
from pitboss.engines.sqlite.rows import STATES, handler_of, lead_of, queue_of, queue_row, rate_of
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.queue import HandlerInfo, Queue, QueueChange, changed_queue
from pitboss.model.session import Lead, Renewal, Session, SessionInfo
from pitboss.model.task import Token

_cancels = msgspec.json.Decoder(list[tuple[str, int]])
_held_rows = msgspec.json.Decoder(list[tuple[int, str, str, str | None]])


def open_session(act: Act, info: SessionInfo, release_limit: int) -> tuple[Session, int]:
    """The new session, and how many held tasks it released."""
    expires_at = act.now + info.ttl
    who = (info.host, info.boot_id, info.pid, info.kind, json_list(info.handlers), info.ttl)
    row: Any = act.one("session_open", *who, act.now, expires_at)
    known = [name for name in info.handlers if act.one("handler_known", name)]
    released = release_held(act, known, release_limit) if known else 0
    return Session(number=row[0], info=info, opened_at=act.now, expires_at=expires_at), released


def renew(act: Act, session: int, snapshot: str | None) -> Renewal:
    """As the contract says."""
    row: Any = act.one("session_renew", session, act.now, snapshot)
    if row is None:
        return Renewal(alive=False)
    asked = act.decoded("session_cancels", _cancels, session)
    desired: Any = act.one("desired_version")
    cancels = tuple((task, Token(session, claim)) for task, claim in asked)
    return Renewal(alive=True, expires_at=row[0], cancels=cancels, desired=desired[0])


def end_session(act: Act, session: int) -> None:
    act.run("session_end", session, act.now)


def campaign(act: Act, session: int) -> Lead:
    """As the contract says."""
    if not act.one("session_alive", session, act.now):
        raise SessionLost(session)
    row: Any = act.one("leader_get", act.now) or act.one("leader_elect", session)
    lead = lead_of(row)
    return msgspec.structs.replace(lead, mine=lead.session == session)


def resign(act: Act, session: int) -> None:
    act.run("leader_resign", session)


def check_term(act: Act, term: int) -> None:
    """Refuse a term that is over. No other writer can start a term before this act is committed."""
    row: Any = act.one("leader_get", act.now)
    if row is None or lead_of(row).term != term:
        raise NotLeader(term)


def change_queue(act: Act, name: str, change: QueueChange) -> Queue:
    """The queue as it is after the change."""
    act.run("queue_create", name)
    row: Any = act.one("queue_get", name)
    act.run("queue_write", *queue_row(changed_queue(queue_of(row, {}), change, act.now)))
    act.rings.add(name)
    row = act.one("queue_get", name)
    counts: Iterable[Any] = act.rows("queue_counts", name)
    opens = opens_at(rate_of(row[5]), act.rows("start_list", name))
    return queue_of(row, {STATES[state]: n for state, n in counts}, opens if opens > act.now else None)


def register(act: Act, handlers: Iterable[HandlerInfo], release_limit: int) -> int:
    """Add or replace; how many held tasks were released."""
    added = {handler.name: handler for handler in handlers}
    before = _bindings(act)
    rows: list[Any] = list(act.rows("handler_list_named", json_list(added)))
    known = {one.name: one for one in map(handler_of, rows)}
    next_number: Any = act.one("handler_next_number")
    numbers = count(next_number[0])
    act.bulk(
        "handler_add",
        [
            msgspec.structs.astuple(one.registered(known.get(name), 0 if name in known else next(numbers), act.now))
            for name, one in added.items()
        ],
    )
    _ring_bound(act, before)
    return release_held(act, added, release_limit)


def forget(act: Act, names: Iterable[str]) -> None:
    before = _bindings(act)
    act.run("handler_remove", json_list(names))
    _ring_bound(act, before)


def release_held(act: Act, handlers: Iterable[str], limit: int) -> int:
    """Let held tasks of these handlers run, unless their batch does not; how many, at most `limit`."""
    held = act.decoded("held_list", _held_rows, json_list(handlers), act.now, limit)
    free = [row for row, _, state, _ in held if state != "held"]
    gated = [row for row, _, state, _ in held if state == "held"]
    if free:
        act.run("held_release", act.now, json_list(free))
    if gated:
        act.run("held_for_batch", json_list(gated))
    for (queue, state, batch), n in Counter((queue, state, batch) for _, queue, state, batch in held).items():
        act.moved(queue, "held", state, n, batch)
        act.rings.add(queue)
    return len(held)


def wish(act: Act, key: str, value: str | None, by: str | None) -> int:
    """The store's new version."""
    row: Any = act.one("desired_advance")
    act.run("wish_set", key, value, row[0], by)
    act.rings.add("*")
    version: int = row[0]
    return version


def _bindings(act: Act) -> set[tuple[object, ...]]:
    """Queues and the pools that they are bound to."""
    return {(queue, pool) for queue, pool, _ in act.rows("handler_bindings")}


def _ring_bound(act: Act, before: set[tuple[object, ...]]) -> None:
    """Ring the queues whose binding has changed: they may give more."""
    act.rings.update(str(queue) for queue, _ in before ^ _bindings(act))
