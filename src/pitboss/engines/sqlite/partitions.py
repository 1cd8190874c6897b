"""Slots of workers, and the keys of queues: who owns them. `model.partition` and `model.pool_slot` have the rules."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.calls import Calls
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.registry import check_term
from pitboss.engines.sqlite.rows import STATES, names_of, session_of
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.partition import Partition, PartitionChange, arrived, changed_partition, given_to
from pitboss.model.pool_slot import PoolSlot, is_kept, seated
from pitboss.model.session import Session
from pitboss.model.states import State

# A reader's statements, or those of an act.
Rows = Callable[..., Iterable[Any]]


class PartitionVerbs(Calls):
    """The protocol `Partitions`, each verb as one request to the store."""

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
        return await self._write(
            "take_slots", lambda act: take_slots(act, session, pool, node, places, queues, exact=exact)
        )

    async def slots(self) -> list[PoolSlot]:
        return await self._read(lambda reader: [slot for slot, _ in kept_slots(reader.rows, reader.now)])

    async def partitions(self, queue: str, *, counts: bool = True) -> list[Partition]:
        return await self._read(lambda reader: listed(reader, queue, counts=counts))

    async def assign(self, queue: str, owners: Mapping[str, str], *, term: int) -> int:
        return await self._write("assign", lambda act: assign(act, queue, owners, term), len(owners))

    async def change_partition(self, queue: str, key: str, change: PartitionChange) -> Partition:
        return await self._operate("change_partition", lambda act: change_key(act, queue, key, change))


def take_slots(
    act: Act,
    session: int,
    pool: str,
    node: str,
    places: Sequence[int],
    queues: tuple[str, ...] | None,
    *,
    exact: bool = False,
) -> list[PoolSlot]:
    """As the contract says."""
    row = act.one("session_get", session)
    taker = None if row is None else session_of(row)
    if taker is None or not taker.alive(act.now):
        raise SessionLost(session)
    found = [(slot, owner) for slot, owner in kept_slots(act.rows, act.now) if slot.pool == pool]
    sessions = {owner.number: owner for _, owner in found}
    taken = seated([slot for slot, _ in found], sessions, taker, pool, node, places, queues, exact=exact)
    numbers = {one.number for one in taken}
    others = [slot.number for slot, _ in found if slot.session != session and slot.number not in numbers]
    act.run("slot_forget", pool, json_list(others))
    act.bulk("slot_write", [_slot_row(one) for one in taken])
    return taken


def kept_slots(rows: Rows, now: Moment) -> list[tuple[PoolSlot, Session]]:
    """The slots that belong to a node, by pool and number, each with its session."""
    found = []
    for pool, number, node, place, queues, *of_session in rows("slot_list"):
        session = session_of(of_session)
        slot = PoolSlot(
            pool=pool,
            number=number,
            node=node,
            place=place,
            session=session.number,
            queues=None if queues is None else names_of(queues),
            live=session.alive(now),
        )
        if is_kept(session, now):
            found.append((slot, session))
    return found


def listed(reader: Reader, queue: str, *, counts: bool) -> list[Partition]:
    """As the contract says."""
    found = [_partition_of(row) for row in reader.rows("partition_list", queue)]
    if not counts or not found:
        return found
    counted: dict[str, dict[State, int]] = {}
    for key, state, n in reader.rows("partition_counts", queue):
        counted.setdefault(key, {})[STATES[state]] = n
    return [replace(one, counts=counted.get(one.key, {})) for one in found]


def assign(act: Act, queue: str, owners: Mapping[str, str], term: int) -> int:
    """As the contract says."""
    check_term(act, term)
    moving: list[Any] = list(act.rows("partition_list_moving", queue))
    named: list[Any] = list(act.rows("partition_list_named", queue, json_list(owners))) if owners else []
    runs = {row[1]: bool(row[6]) for row in (*moving, *named)}
    before = {row[1]: _partition_of(row[:6]) for row in (*moving, *named)}
    after = {key: arrived(one, running=runs[key]) for key, one in before.items()}
    exclusive = _is_exclusive(act, queue)
    for key, slot in owners.items():
        one = after.get(key) or Partition(queue=queue, key=key)
        after[key] = given_to(one, slot, running=runs.get(key, False), exclusive=exclusive)
    changed = [one for key, one in after.items() if one != before.get(key)]
    _write(act, changed)
    if changed:
        act.rings.add(queue)
    return sum(one.key not in before or one.epoch != before[one.key].epoch for one in changed)


def change_key(act: Act, queue: str, key: str, change: PartitionChange) -> Partition:
    """As the contract says."""
    row: Any = next(iter(act.rows("partition_list_named", queue, json_list([key]))), None)
    one = Partition(queue=queue, key=key) if row is None else _partition_of(row[:6])
    running = row is not None and bool(row[6])
    changed = changed_partition(one, change, running=running, exclusive=_is_exclusive(act, queue))
    _write(act, [changed])
    act.rings.add(queue)
    counts: Iterable[Any] = act.rows("partition_counts_of", queue, key)
    return replace(changed, counts={STATES[state]: n for state, n in counts if n})


def _is_exclusive(act: Act, queue: str) -> bool:
    """Whether only the owner takes tasks of a key."""
    row = act.one("queue_help", queue)
    return row is not None and row[0] not in (None, "all")


def _write(act: Act, partitions: Iterable[Partition]) -> None:
    rows = [(one.queue, one.key, one.owner, one.moving_to, one.epoch, one.pinned) for one in partitions]
    act.bulk("partition_write", rows)


def _partition_of(row: Sequence[Any]) -> Partition:
    queue, key, owner, moving_to, epoch, pinned = row
    return Partition(queue=queue, key=key, owner=owner, moving_to=moving_to, epoch=epoch, pinned=pinned)


def _slot_row(slot: PoolSlot) -> tuple[object, ...]:
    queues = None if slot.queues is None else json_list(slot.queues)
    return (slot.pool, slot.number, slot.node, slot.place, slot.session, queues)
