"""The places of a session's workers, and the slots that the store gives for them, for queues with partitions."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from pitboss.engines.partition_protocol import Partitions
from pitboss.model.errors import Refused
from pitboss.model.pool_slot import PoolSlot


class SlotNumbers:
    """Slots are taken only for pools that serve a queue with partitions (`need`).

    `node` is the manager's name in the slots. A pool has the places that `set_places` says, or else every place that a
    worker had: a worker that crashed comes back. A place is given up when its last task has ended (`busy` says where
    tasks run) and that is in the store (`flushed`): another manager may get its number, and its keys with it.

    In the pools of `exact` each place has its own number or none: while another living manager has that, its workers
    take no tasks of keys, and the number is asked for again with every claim.
    """

    def __init__(
        self,
        store: Partitions | None,
        node: str,
        *,
        busy: Callable[[str], Collection[int]],
        flushed: Callable[[], Awaitable[None]],
    ) -> None:
        self._store, self.node, self._busy, self._flushed = store, node, busy, flushed
        self._used: dict[str, set[int]] = {}
        self._told: dict[str, frozenset[int]] | None = None
        self._needed: dict[str, tuple[str, ...] | None] = {}
        # What was asked for last, and the numbers by place.
        self._asked: dict[str, tuple[frozenset[int], tuple[str, ...] | None]] = {}
        self._numbers: dict[str, dict[int, int]] = {}
        self.exact: frozenset[str] = frozenset()
        # Whether a pool may have other places or queues than the store knows.
        self.due = False
        # Whether a place waits for its last task, or for a number that another manager has.
        self.lingering = False
        # Gets the slots of a pool when they have changed.
        self.told: Callable[[str, list[PoolSlot]], None] = lambda _pool, _slots: None
        # Gets the reason if a pool gets no slots; the same one only once.
        self.refused: Callable[[Refused], None] = lambda _error: None
        self._refused: dict[str, str] = {}

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

    async def take(self, session: int) -> None:
        """Take what is missing, and give up what is not needed any more."""
        self.due = self.due or self.lingering
        while self.due:
            self.due = self.lingering = False
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
        self.lingering = self.lingering or places != wanted
        if self._store is None or self._asked.get(pool) == (places, queues):
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

    def _tell_refused(self, pool: str, error: Refused) -> None:
        self.lingering = True
        if self._refused.get(pool) != error.why:
            self._refused[pool] = error.why
            self.refused(error)
