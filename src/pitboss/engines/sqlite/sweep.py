"""Repairing: tasks of dead sessions, held tasks whose handler has come, sessions that nobody needs to remember."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.history import record
from pitboss.model.duration import SECOND
from pitboss.model.session import Reclaimed
from pitboss.model.task import Attempt

HOUR = 3600 * SECOND


class Orphan(msgspec.Struct, array_like=True):
    """A running task of a dead session, in the order of the columns that the statement names."""

    row: int
    id: str
    queue: str
    session: int
    claim: int
    attempts: int
    started_at: int | None
    unique_key: str | None
    cancel_asked: int


_orphans = msgspec.json.Decoder(list[Orphan])
_released = msgspec.json.Decoder(list[tuple[int, str, str]])


def reclaim(act: Act, limit: int) -> Reclaimed:
    """As the contract says."""
    orphans = act.decoded("reclaim_orphans", _orphans, act.now, limit + 1)
    found = orphans[:limit]
    _lose(act, [one for one in found if not one.cancel_asked])
    cancelled = _end(act, [one for one in found if one.cancel_asked])
    names = (str(row[0]) for row in act.rows("handlers_served", act.now))
    released = release(act, names, limit)
    act.run("session_forget", act.now - HOUR)
    return Reclaimed(
        lost=len(found) - cancelled,
        cancelled=cancelled,
        released=released,
        more=len(orphans) > limit or released == limit,
    )


def release(act: Act, handlers: Iterable[str], limit: int) -> int:
    """Held tasks of these handlers may run; how many were released, at most `limit`."""
    held = act.decoded("held_of_handlers", _released, json_list(handlers), act.now, limit)
    if held:
        act.run("held_release", act.now, json_list(row for row, _, _ in held))
    for (queue, state), n in Counter((queue, state) for _, queue, state in held).items():
        act.moved(queue, "held", state, n)
        act.rings.add(queue)
    return len(held)


def _lose(act: Act, orphans: list[Orphan]) -> None:
    if not orphans:
        return
    record(act, [(one.id, _lost_run(one, act.now)) for one in orphans])
    act.run("reclaim_lose", json_list(one.row for one in orphans))
    for queue, n in Counter(one.queue for one in orphans).items():
        act.moved(queue, "running", "pending", n)
        act.rings.add(queue)


def _end(act: Act, orphans: list[Orphan]) -> int:
    """Somebody had asked to cancel these, so they do not go back."""
    if orphans:
        act.run("reclaim_cancel", act.now, json_list(one.row for one in orphans))
        keys: list[Row] = [(one.id, one.unique_key) for one in orphans if one.unique_key is not None]
        act.bulk("key_free", keys)
    for queue, n in Counter(one.queue for one in orphans).items():
        act.moved(queue, "running", "cancelled", n)
    return len(orphans)


def _lost_run(one: Orphan, now: int) -> Attempt:
    return Attempt(
        claim=one.claim,
        attempt=one.attempts + 1,
        outcome="lost",
        started_at=one.started_at or now,
        ended_at=now,
        session=one.session,
    )
