"""Slots of workers, and the keys of queues with partitions. Claims are in `claim_keyed.py`.

Lock order: the leader's row, the queue, keys. Claims lock the queue too, so that no task of a key starts meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pitboss.engines.postgres import leader
from pitboss.engines.postgres.resources_and_batches import ResourcesAndBatches
from pitboss.engines.postgres.rows import STATES, names, numbers, session_of, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.partition import Partition, PartitionChange, arrived, changed_partition, given_to
from pitboss.model.pool_slot import PoolSlot, seated
from pitboss.model.session import Session
from pitboss.model.states import State

# Changes a key: whether a task of it runs, and whether the queue has exclusive owners, come with it.
_Change = Callable[[Partition, bool, bool], Partition]
# Which slots a session gets, of those that are kept and the sessions that have them.
_Seat = Callable[[Sequence[PoolSlot], Mapping[int, Session], Session], list[PoolSlot]]


class PartitionProtocol(ResourcesAndBatches):
    """The protocol `Partitions`."""

    async def take_slots(
        self,
        session: int,
        pool: str,
        node: str,
        places: Sequence[int],
        *,
        queues: tuple[str, ...] | None = None,
        exact: bool = False,
    ) -> list[PoolSlot]:
        def seat(kept: Sequence[PoolSlot], sessions: Mapping[int, Session], mine: Session) -> list[PoolSlot]:
            return seated(kept, sessions, mine, pool, node, places, queues, exact=exact)

        return await self._transact(
            "take_slots", self._writing, lambda now: _take_slots(self._sql, session, pool, seat, now)
        )

    async def slots(self) -> list[PoolSlot]:
        return _kept(await self._read("slot_list", pool=None))[0]

    async def partitions(self, queue: str, *, counts: bool = True) -> list[Partition]:
        def script() -> Script[list[Partition]]:
            rows = yield self._sql.ask("partition_list", queue=queue)
            counted = (yield from _counted(self._sql, queue)) if counts and rows else {}
            return [_partition(queue, row, counted.get(row[0], {})) for row in rows]

        return await self._reading.call(script)

    async def assign(self, queue: str, owners: Mapping[str, str], *, term: int) -> int:
        def script(now: Moment | None) -> Script[int]:
            yield from leader.check_term(self._sql, now, term)
            before, after = yield from _changed(self._sql, queue, list(owners), given)
            return sum(key not in before or one.epoch != before[key].epoch for key, one in after.items())

        def given(one: Partition, running: bool, exclusive: bool) -> Partition:
            one = arrived(one, running=running)
            return given_to(one, owners[one.key], running=running, exclusive=exclusive) if one.key in owners else one

        return await self._transact("assign", self._reading, script)

    async def change_partition(self, queue: str, key: str, change: PartitionChange) -> Partition:
        def script(_now: Moment | None) -> Script[Partition]:
            _, after = yield from _changed(self._sql, queue, [key], wanted, always=True)
            counted = yield from _counted(self._sql, queue, key)
            return msgspec.structs.replace(after[key], counts=counted.get(key, {}))

        def wanted(one: Partition, running: bool, exclusive: bool) -> Partition:
            if one.key != key:
                return one
            return changed_partition(one, change, running=running, exclusive=exclusive)

        return await self._act(script)


def _take_slots(sql: Statements, session: int, pool: str, seat: _Seat, now: Moment | None) -> Script[list[PoolSlot]]:
    known: list[Row] = []
    yield sql.ask("slot_lock", pool=pool).unheard()
    yield sql.ask("slot_session", session=session).into(known)
    rows = yield sql.ask("slot_list", now, pool=pool)
    mine = session_of(known[0]) if known else None
    if mine is None or not mine.alive(rows[0][0]):
        raise SessionLost(session)
    kept, sessions = _kept(rows)
    taken = seat(kept, sessions, mine)
    others = [one.number for one in kept if one.session != session]
    yield sql.ask("slot_forget", pool=pool, kept=numbers(others)).unheard()
    if taken:
        yield sql.ask(
            "slot_write",
            pool=pool,
            node=taken[0].node,
            session=session,
            queues=None if taken[0].queues is None else texts(taken[0].queues),
            numbers=numbers([one.number for one in taken]),
            places=numbers([one.place for one in taken]),
        ).unheard()
    return taken


def _kept(rows: Sequence[Row]) -> tuple[list[PoolSlot], dict[int, Session]]:
    """The slots of `slot_list`, and the sessions that have them."""
    slots, sessions = list[PoolSlot](), dict[int, Session]()
    for now, pool, number, node, place, queues, *rest in rows:
        if pool is not None:
            one = session_of(tuple(rest))
            sessions[one.number] = one
            served = None if queues is None else tuple(queues)
            slots.append(
                PoolSlot(
                    pool=pool,
                    number=number,
                    node=node,
                    place=place,
                    session=one.number,
                    queues=served,
                    live=one.alive(now),
                )
            )
    return slots, sessions


def _changed(
    sql: Statements, queue: str, keys: Sequence[str], change: _Change, *, always: bool = False
) -> Script[tuple[dict[str, Partition], dict[str, Partition]]]:
    """Change these keys and those that are moving, and ring the queue if any has changed, or `always`. The keys before,
    without those that had no row, and after it."""
    # Claims under way are waited for, and the next statement sees what they have started.
    helped = yield sql.ask("partition_queue", queue=queue)
    exclusive = bool(helped) and helped[0][0] not in (None, "all")
    rows = yield sql.ask("partition_read", queue=queue, keys=names(keys))
    before = {row[0]: _partition(queue, row[:5]) for row in rows if row[5]}
    after = {row[0]: change(_partition(queue, row[:5]), row[6], exclusive) for row in rows}
    written = [one for key, one in after.items() if one != before.get(key) or (always and key in keys)]
    if written:
        yield sql.ask(
            "partition_write",
            queue=queue,
            keys=texts([one.key for one in written]),
            owners=texts([one.owner for one in written]),
            moving=texts([one.moving_to for one in written]),
            epochs=numbers([one.epoch for one in written]),
            pinned=texts([one.pinned for one in written]),
        ).unheard()
    return before, after


def _partition(queue: str, row: Row, counts: dict[State, int] | None = None) -> Partition:
    key, owner, moving_to, epoch, pinned = row
    return Partition(
        queue=queue, key=key, owner=owner, moving_to=moving_to, epoch=epoch, pinned=pinned, counts=counts or {}
    )


def _counted(sql: Statements, queue: str, key: str | None = None) -> Script[dict[str, dict[State, int]]]:
    """The unfinished tasks of all keys, or of one."""
    text = sql.text("partition_counts", of_key="" if key is None else "AND partition = %(key)s::text")
    found: defaultdict[str, dict[State, int]] = defaultdict(dict)
    for one, state, count in (yield sql.asked(text, queue=queue, key=key)):
        found[one][STATES[state]] = count
    return found
