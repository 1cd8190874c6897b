"""The places of a session's workers, and the slots that the store gives for them, for queues with partitions."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from pitboss.engines.partition_protocol import Partitions
from pitboss.model.errors import Refused
from pitboss.model.partition import Partitioning
from pitboss.model.pool_slot import PoolSlot

# How often to ask again for a number that another manager has, and to look whether a lower one is free.
LOOK_SECONDS = 2.0


class SlotNumbers:
    """Slots are taken only for pools that serve a queue with partitions (`need`).

    `node` is the manager's name in the slots. A pool has the places that `set_places` says, or else every place that a
    worker had: a worker that crashed comes back. A place is given up when its last task has ended (`busy` says where
    tasks run) and that is in the store (`flushed`): another manager may get its number, and its keys with it.

    A manager that starts while its predecessor's slots are still kept gets higher numbers. If the tables of its queues
    do not have these (`divided`), it exchanges them for lower ones as soon as some are free. A place that does so first
    ends its tasks of keys (`at_keys`), and gets no others meanwhile: another manager may get its number.

    In the pools of `exact` each place has its own number or none: while another living manager has that, its workers
    take no tasks of keys, and the number is asked for again and again.
    """

    def __init__(
        self,
        store: Partitions | None,
        node: str,
        *,
        busy: Callable[[str], Collection[int]],
        at_keys: Callable[[str], Collection[int]],
        flushed: Callable[[], Awaitable[None]],
        time: Callable[[], float],
    ) -> None:
        self._store, self.node, self._busy, self._at_keys = store, node, busy, at_keys
        self._flushed, self._time = flushed, time
        # The queues that have partitions.
        self.divided: Mapping[str, Partitioning] = {}
        self._used: dict[str, set[int]] = {}
        self._told: dict[str, frozenset[int]] | None = None
        self._needed: dict[str, tuple[str, ...] | None] = {}
        # What was asked for last, and the numbers by place.
        self._asked: dict[str, tuple[frozenset[int], tuple[str, ...] | None]] = {}
        self._numbers: dict[str, dict[int, int]] = {}
        self.exact: frozenset[str] = frozenset()
        # Whether a pool may have other places or queues than the store knows.
        self.due = False
        # Whether a place waits for its last task.
        self._lingering = False
        # Places that get no tasks of keys until they have a lower number.
        self._leaving: dict[str, set[int]] = {}
        self._look_at = 0.0
        # Gets the slots of a pool when they have changed.
        self.told: Callable[[str, list[PoolSlot]], None] = lambda _pool, _slots: None
        # Gets the reason if a pool gets no slots; the same one only once.
        self.refused: Callable[[Refused], None] = lambda _error: None
        # The pools that got none, with the reason and when to ask again.
        self._refused: dict[str, tuple[str, float]] = {}

    def place(self, pool: str, wanted: int | None, taken: Iterable[int]) -> int:
        """The place of a new worker; without a wish the first one that is not taken."""
        occupied = set(taken)
        place = wanted if wanted is not None else next(n for n in range(len(occupied) + 1) if n not in occupied)
        self._used.setdefault(pool, set()).add(place)
        self.due = True
        return place

    def set_places(self, places: Mapping[str, Iterable[int]]) -> bool:
        """The pools have these places and no others; whether that is new."""
        told = {pool: frozenset(ones) for pool, ones in places.items()}
        changed, self._told = told != self._told, told
        self.due = self.due or changed
        return changed

    def need(self, pool: str, queues: tuple[str, ...] | None) -> None:
        """The pool serves a queue with partitions among these (None: all)."""
        self._needed[pool] = queues
        self.due = True

    def number(self, pool: str, place: int) -> int | None:
        """The number of the slot at this place; None if the store has given none."""
        return self._numbers.get(pool, {}).get(place)

    def asking(self, pool: str, place: int) -> int | None:
        """The number under which a worker at this place asks for tasks of keys; None: it must not."""
        return None if place in self._leaving.get(pool, ()) else self.number(pool, place)

    async def look(self, session: int) -> None:
        """Take what is missing, give up what is not needed any more, and exchange what no table has."""
        await self._take_due(session)
        if self._numbers and self._time() >= self._look_at:
            self._look_at = self._time() + LOOK_SECONDS
            for pool in list(self._numbers):
                await self._move_down(session, pool)
            await self._take_due(session)

    async def _take_due(self, session: int) -> None:
        self.due = self.due or self._lingering or any(self._time() >= at for _, at in self._refused.values())
        while self.due:
            self.due = self._lingering = False
            try:
                for pool, queues in self._needed.items():
                    await self._take(session, pool, queues)
            except BaseException:
                self.due = True
                raise

    async def _take(self, session: int, pool: str, queues: tuple[str, ...] | None) -> None:
        wanted = frozenset(self._used.get(pool, ())) if self._told is None else self._told.get(pool, frozenset())
        had, _ = self._asked.get(pool, (frozenset[int](), None))
        places = wanted | had.intersection(self._busy(pool))
        self._lingering = self._lingering or places != wanted
        if self._store is None or self._asked.get(pool) == (places, queues):
            return
        if self._time() < self._refused.get(pool, ("", 0.0))[1]:
            return
        if had - places:
            await self._flushed()
        exact = pool in self.exact
        try:
            slots = await self._store.take_slots(session, pool, self.node, sorted(places), queues=queues, exact=exact)
        except Refused as error:
            self._tell_refused(pool, error)
            return
        self._refused.pop(pool, None)
        before, self._numbers[pool] = self._numbers.get(pool), {one.place: one.number for one in slots}
        self._asked[pool] = places, queues
        if before != self._numbers[pool]:
            self.told(pool, slots)

    async def _move_down(self, session: int, pool: str) -> None:
        """Give up numbers that no table has if lower ones are free: the places take these next."""
        places, queues = self._asked[pool]
        size = 0 if pool in self.exact else self._size(pool, queues)
        beyond = sorted(place for place, number in self._numbers[pool].items() if number >= size > 0)
        self._leaving.pop(pool, None)
        if self._store is None or not beyond:
            return
        taken = {one.number for one in await self._store.slots() if one.pool == pool and one.number < size}
        moving = set(beyond[: size - len(taken)])
        self._leaving[pool] = moving
        ready = moving.difference(self._at_keys(pool))
        if not ready:
            return
        await self._flushed()
        await self._store.take_slots(session, pool, self.node, sorted(places - ready), queues=queues)
        self._asked[pool] = places - ready, queues
        self._leaving[pool] = moving - ready
        self.due = True

    def _size(self, pool: str, queues: tuple[str, ...] | None) -> int:
        """How many slots the tables of the pool's queues have; 0 if there is no table."""
        tables = [
            spec.table
            for name, spec in self.divided.items()
            if spec.mode == "static" and spec.pool in (None, pool) and (queues is None or name in queues)
        ]
        return max((number + 1 for table in tables for number in table), default=0)

    def _tell_refused(self, pool: str, error: Refused) -> None:
        told, _ = self._refused.get(pool, ("", 0.0))
        self._refused[pool] = error.why, self._time() + LOOK_SECONDS
        if told != error.why:
            self.refused(error)
