"""Engines that are wrong about which slot owns a key."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pitboss.model.duration import Moment
from pitboss.model.pool_slot import PoolSlot, slot_name
from pitboss.model.session import Claimed, ClaimRequest
from tests.races.planted import Planted

_OWNERS = "two live owners"


class PlantedOwner(Planted):
    """A bug in the ownership of keys."""

    breaks = _OWNERS


class MovesAtOnce(PlantedOwner):
    """A key changes hands though its tasks run."""

    def _runs(self, queue: str, key: str) -> bool:
        return False


class OwnersAreNotLookedAt(PlantedOwner):
    """The first slot of a request may take tasks of every key."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        name = slot_name(request.slots[0].pool, request.slots[0].number or 0)
        stored = {queue: dict(rows) for queue, rows in self.tables.keys_of.items()}
        for rows in self.tables.keys_of.values():
            rows |= {key: replace(one, owner=name, moving_to=None) for key, one in rows.items()}
        try:
            return await super().claim(request)
        finally:
            for queue, rows in stored.items():
                self.tables.keys_of[queue] |= rows


class NumbersOfOthersCount(PlantedOwner):
    """A session may claim under the number of another one."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        taken = self.tables.slots
        self.tables.slots = {name: replace(one, session=request.session) for name, one in taken.items()}
        asked = tuple(slot if slot.number is None else replace(slot, number=0) for slot in request.slots)
        try:
            return await super().claim(replace(request, slots=asked))
        finally:
            self.tables.slots = taken


class NumbersAreTakenFromTheLiving(PlantedOwner):
    """Each node has the numbers of its places, whichever other node has them."""

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
        self.tables.slots = {}
        return await super().take_slots(session, pool, node, places, queues=queues, exact=exact)


class AnyTermAssigns(PlantedOwner):
    """A leader that leads no more may give keys away."""

    breaks = "current term"

    async def assign(self, queue: str, owners: Mapping[str, str], *, term: int) -> int:
        return await super().assign(queue, owners, term=self.tables.term)

    def check_term(self, term: int, now: Moment) -> None:
        return None


OWNER_BUGS: list[type[Planted]] = [*PlantedOwner.__subclasses__()]
