"""Repairing: tasks of dead sessions, held tasks whose handler has come, sessions that nobody needs to remember."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.control import cancel_on
from pitboss.engines.sqlite.gates import statuses
from pitboss.engines.sqlite.history import record
from pitboss.engines.sqlite.leases import end_overdue
from pitboss.engines.sqlite.returning import Returns, pool_of
from pitboss.model.batching import waits
from pitboss.model.duration import SECOND
from pitboss.model.leasing import STRIKES_KEPT
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
    batch: str | None
    resource: str | None
    member: int | None


_orphans = msgspec.json.Decoder(list[Orphan])
_released = msgspec.json.Decoder(list[tuple[int, str, str, str | None]])


def reclaim(act: Act, limit: int) -> Reclaimed:
    """As the contract says."""
    orphans = act.decoded("reclaim_orphans", _orphans, act.now, limit + 1)
    found = orphans[:limit]
    _give_back(act, found)
    _lose(act, [one for one in found if not one.cancel_asked])
    cancelled = _end(act, [one for one in found if one.cancel_asked])
    names = (str(row[0]) for row in act.rows("handlers_served", act.now))
    released = release(act, names, limit)
    leases = end_overdue(act, limit)
    called_off, more = cancel_on(act, limit)
    _tidy(act)
    return Reclaimed(
        lost=len(found) - cancelled,
        cancelled=cancelled + called_off,
        released=released,
        leases=leases,
        more=more or len(orphans) > limit or limit in (released, leases),
    )


def release(act: Act, handlers: Iterable[str], limit: int) -> int:
    """Held tasks of these handlers may run, as far as their batches do; how many, at most `limit`."""
    held = act.decoded("held_of_handlers", _released, json_list(handlers), act.now, limit)
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


def _give_back(act: Act, orphans: list[Orphan]) -> None:
    held = [
        (pool_of(one.resource), one.member) for one in orphans if one.resource is not None and one.member is not None
    ]
    returns = Returns(act)
    returns.expect(held)
    for pool, member in held:
        returns.take_back(pool, member, None)
    returns.write()


def _lose(act: Act, orphans: list[Orphan]) -> None:
    if not orphans:
        return
    record(act, [(one.id, _lost_run(one, act.now)) for one in orphans])
    gates = statuses(act, {one.batch for one in orphans})
    places = {one.row: waits(gates.get(one.batch), known=True, run_at=None, now=act.now) for one in orphans}
    for place in set(places.values()):
        rows = json_list(row for row, where in places.items() if where == place)
        act.run("reclaim_lose", rows, place.state.value, place.reason)
    for (queue, batch, state), n in Counter((one.queue, one.batch, places[one.row].state) for one in orphans).items():
        act.moved(queue, "running", state.value, n, batch)
        act.rings.add(queue)


def _end(act: Act, orphans: list[Orphan]) -> int:
    """Somebody had asked to cancel these, so they do not go back."""
    if orphans:
        act.run("reclaim_cancel", act.now, json_list(one.row for one in orphans))
        keys: list[Row] = [(one.id, one.unique_key) for one in orphans if one.unique_key is not None]
        act.bulk("key_free", keys)
    for (queue, batch), n in Counter((one.queue, one.batch) for one in orphans).items():
        act.moved(queue, "running", "cancelled", n, batch)
    return len(orphans)


def _tidy(act: Act) -> None:
    """What nobody needs to remember, and lanes that nobody else has looked at."""
    act.run("session_forget", act.now - HOUR)
    act.run("binding_forget", act.now)
    act.run("strike_forget_old", act.now - STRIKES_KEPT)
    rows: Iterable[Any] = act.rows("lanes_queued")
    act.lanes.update(row[0] for row in rows)


def _lost_run(one: Orphan, now: int) -> Attempt:
    return Attempt(
        claim=one.claim,
        attempt=one.attempts + 1,
        outcome="lost",
        started_at=one.started_at or now,
        ended_at=now,
        session=one.session,
    )
