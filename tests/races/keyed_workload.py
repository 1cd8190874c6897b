"""The workload with a queue that has partitions: processes have slots, and keys change hands while tasks run."""

from typing import Any

from pitboss.model.declared import Declared
from pitboss.model.errors import StoreUnavailable
from pitboss.model.outcome import Completed
from pitboss.model.partition import Partitioning
from pitboss.model.pool_slot import slot_name
from pitboss.model.queue import QueueSettings
from pitboss.model.session import ClaimRequest, Session, Slot
from pitboss.model.task import Claim, NewTask
from tests.races.workload import DRAIN_ROUNDS, PLAIN, Doing, Process, Workload

KEYED, POOL = "keyed", "default"
KEYS = ("a", "b", "c", "d")
DIVIDED = QueueSettings(partitions=Partitioning(by="{key}", mode="balanced"))


class KeyedWorkload(Workload):
    """Everything that `Workload` does, beside slots that own keys. No place is given up while a task runs there."""

    # None here: they would leave too few steps for the rest.
    remote_queues: tuple[tuple[str, ...], ...] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # By session: the numbers of its places, and the place of each claim.
        self._numbers: dict[int, dict[int, int]] = {}
        self._places: dict[Claim, int] = {}

    async def _prepare(self) -> None:
        await super()._prepare()
        while True:
            try:
                await self._processes[0].store.declare(Declared(app="a", queues={KEYED: DIVIDED}))
                return
            except StoreUnavailable:
                continue

    def _doings(self) -> list[tuple[int, Doing]]:
        return [
            *super()._doings(),
            (20, self._puts_keyed),
            (10, self._sits_down),
            (40, self._claims_keyed),
            (16, self._assigns),
            (10, self._settles),
            (8, self._renews),
        ]

    async def _puts_keyed(self, process: Process) -> None:
        tasks = [self._keyed() for _ in range(self.random.choice([2, 3, 4]))]
        self._put += tasks
        await self._put_safely(process, tasks)

    def _keyed(self) -> NewTask:
        params = f'{{"key":"{self.random.choice(KEYS)}"}}'
        return self._new(queue=KEYED, params=params, unique=None, delay=None, expires_in=None)

    async def _sits_down(self, process: Process) -> None:
        """Its workers change places; a restarted process has the name of the one before."""
        assert process.session is not None
        busy = {self._places[claim] for claim in process.held if claim in self._places}
        places = sorted(busy | set(self.random.choice([(0,), (0, 1), (1,)])))
        node = process.store.process.partition(".")[0]
        slots = await process.store.take_slots(process.session.number, POOL, node, places)
        self._numbers[process.session.number] = {slot.place: slot.number for slot in slots}

    async def _claims_keyed(self, process: Process) -> None:
        assert process.session is not None
        seated = self._numbers.get(process.session.number)
        if not seated:
            await self._sits_down(process)
            seated = self._numbers[process.session.number]
        places = sorted(seated)
        slots = tuple(Slot(free=1, queues=(KEYED, PLAIN), number=seated[place]) for place in places)
        claimed = await process.store.claim(ClaimRequest(session=process.session.number, slots=slots))
        process.held += claimed.claims
        self._places |= {claim: places[claim.slot] for claim in claimed.claims}

    async def _assigns(self, process: Process) -> None:
        """As the leader does; now and then under a term that may be over."""
        assert process.session is not None
        lead = await process.store.campaign(process.session.number)
        self._terms.append(lead.term)
        names = [slot.name for slot in await process.store.slots()] or [slot_name(POOL, 0)]
        owners = {key: self.random.choice(names) for key in KEYS if self.random.random() < 0.7}
        term = self.random.choice(self._terms[-3:]) if self.random.random() < 0.4 else lead.term
        await process.store.assign(KEYED, owners, term=term)

    async def _drain(self) -> None:
        """All keys go to one slot, which runs what is left."""
        self._heal()
        self.clock.advance("11s")
        process = self._processes[0] = await self._born("last")
        await process.store.reclaim()
        process.session = session = await self._session(process)
        (slot,) = await process.store.take_slots(session.number, POOL, "last", [0])
        term = (await process.store.campaign(session.number)).term
        await process.store.assign(KEYED, dict.fromkeys(KEYS, slot.name), term=term)
        for _ in range(DRAIN_ROUNDS):
            if not await self._runs_all(process, session, slot.number):
                break
        await super()._drain()

    async def _runs_all(self, process: Process, session: Session, number: int) -> bool:
        request = ClaimRequest(session=session.number, slots=(Slot(free=50, queues=(KEYED,), number=number),))
        claimed = await process.store.claim(request)
        await process.store.settle([self._settlement(claim, Completed("null")) for claim in claimed.claims])
        if not claimed.claims and claimed.next_due is not None:
            self.clock.advance_to(min(claimed.next_due, session.expires_at - 1))
        return bool(claimed.claims) or claimed.next_due is not None
