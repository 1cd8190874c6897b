"""Asks the store for tasks that the workers of one session can start."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from pitboss.dispatch.measuring import Measurements
from pitboss.dispatch.settler import LostClaims, Outcomes
from pitboss.dispatch.slot_numbers import SlotNumbers
from pitboss.dispatch.worker_group import Ask, WorkerGroup, WorkerLoad
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND
from pitboss.model.errors import StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.outcome import NO_KEY
from pitboss.model.resource import Leased
from pitboss.model.session import Claimed, ClaimRequest, Session, SessionInfo
from pitboss.model.task import Claim, Token

POLL_SECONDS = 2.0
_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
# When a member of a resource pool is released, every manager is rung. The one that released it claims at once; the
# others wait this long, or up to twice as long, so that they do not compete for the same rows. They do so only once.
_BACK_OFF = 0.005
# How often to look which queues have partitions, while one has.
_LOOK_AT_QUEUES = 5.0


class Claimer:
    """Claims for the groups of workers until it is stopped: when there is room (`wake`), and when the store rings.

    `outcomes` takes back what cannot start.
    """

    def __init__(self, engine: Store, info: SessionInfo, outcomes: Outcomes, luck: Callable[[], float]) -> None:
        self._engine, self._info, self._outcomes, self._luck = engine, info, outcomes, luck
        self._time = asyncio.get_running_loop().time
        self.groups: list[WorkerGroup] = []
        # The groups of earlier sessions of this process, whose last tasks still run.
        self.earlier: Callable[[], list[WorkerGroup]] = list
        self.slot_numbers = SlotNumbers(
            capabilities(engine).partitions,
            info.host,
            busy=self._busy_places,
            at_keys=lambda pool: {place for one, place in self._at_keys() if one == pool},
            flushed=outcomes.settler.flushed,
            time=self._time,
        )
        self.wake = asyncio.Event()
        self.lost_claims = LostClaims(engine, outcomes.settler, self._knows, self._time())
        self.session: Session | None = None
        self.draining = self.stopping = False
        self.ring: asyncio.Task[bool] | None = None
        # The store has rung; the reader resets it.
        self.rung = False
        self.on_ring: Callable[[], None] = lambda: None
        # Whether the secrets of a member can be opened on this host; None if that is not known.
        self.opens: Callable[[Leased], bool] | None = None
        self.measured: Measurements | None = None
        self._only: frozenset[str] | None = None
        # Resource pools of members that came and cannot be opened here: their queues are to be left out of claims
        # until the next `claim_only`.
        self._unopened: set[str] = set()
        self._may_back_off = True
        self._look_at_queues = 0.0

    def claim_only(self, queues: frozenset[str] | None) -> None:
        """From now on, claim from these queues only; None: from all."""
        if queues != self._only or self._unopened:
            self._only, self._unopened = queues, set()
            self.wake.set()

    def empty(self, group: WorkerGroup) -> None:
        """Give back everything that has not started."""
        for load in group.workers.values():
            load.worker.recall()
        for claim in group.empty_buffer():
            self._outcomes.unstarted(claim)

    async def run(self) -> None:
        """Claim until stopped. `SessionLost` if the session is over."""
        pause = _PAUSE
        while not self.stopping:
            try:
                due = await self._claim_once()
                pause = _PAUSE
            except StoreUnavailable:
                self.lost_claims.expect(self._time())
                due = pause
                pause = min(pause * 2, _LONGEST_PAUSE)
            if due > 0 and not self.stopping:
                await self._woken_within(due)

    async def _claim_once(self) -> float:
        """Claim what the workers can use; returns how many seconds to wait before the next claim."""
        self.wake.clear()
        if self.ring is None or self.ring.done():
            # Listen before the claim: a task that is put during the claim may come too late for it.
            self.ring = asyncio.create_task(self._engine.wait(None, POLL_SECONDS * 5))
        await self._prepare()
        asked = self._time()
        slots = {group: group.slot(self._only) for group in self.groups}
        groups = [group for group, slot in slots.items() if group.wants(slot, asked)]
        stalled = self.draining or self._outcomes.settler.full
        for group, slot in slots.items():
            # Without a free slot, or without a claim, nothing is known about the resources at the next claim.
            group.starved = group.starved and slot.free > 0 and not stalled
        if stalled or self.session is None:
            return POLL_SECONDS
        if not groups:
            return min([POLL_SECONDS, *(group.waits(slot, asked) for group, slot in slots.items())])
        number = self._numbering()
        asks = [ask for group in groups for ask in group.asks(slots[group], number)]
        claimed = await self._claim(self.session, asks)
        got = self._take_in(asks, claimed, asked)
        for group in groups:
            group.answered(slots[group], got[group], self._time(), short=bool(claimed.shortages))
        if await self._divide(groups, claimed.partitioned):
            return 0
        more = claimed.claims and not all(group.starved for group in groups)
        return 0 if more else self._until(claimed)

    async def _prepare(self) -> None:
        """What must be known before a claim."""
        if self.session is None:
            return
        if self.lost_claims.due(self._time()):
            await self.lost_claims.give_back(self.session.number, self._time())
        if self._unopened:
            await self._leave_out()
        if not self.draining:
            await self.slot_numbers.look(self.session.number)

    async def _claim(self, session: Session, asks: Sequence[Ask]) -> Claimed:
        request = ClaimRequest(
            session=session.number,
            slots=tuple(ask.slot for ask in asks),
            handlers=frozenset(self._info.handlers) if self._info.handlers else None,
        )
        claimed = await self._engine.claim(request)
        self._may_back_off = self._may_back_off or bool(claimed.claims)
        if claimed.shortages and self.measured is not None:
            self.measured.short(claimed.shortages)
        return claimed

    def _take_in(self, asks: Sequence[Ask], claimed: Claimed, asked: float) -> Counter[WorkerGroup]:
        """Start the claims, or let them wait; returns how many each group got."""
        got: Counter[WorkerGroup] = Counter()
        by_slot: list[list[Claim]] = [[] for _ in asks]
        for claim in claimed.claims:
            by_slot[claim.slot].append(claim)
        for ask, claims in zip(asks, by_slot, strict=True):
            got[ask.group] += len(claims)
            self._accept(ask, claims, asked)
        return got

    def _accept(self, ask: Ask, claims: list[Claim], asked: float) -> None:
        group, load = ask.group, ask.load
        if self.opens is not None and any(claim.leased is not None for claim in claims):
            claims = self._openable(claims, self.opens)
        if self.draining or group.paused:
            for claim in claims:
                self._outcomes.unstarted(claim)
        else:
            back = group.accept(claims, self._time(), asked) if load is None else group.accept_at(load, claims, asked)
            for claim in back:
                self._outcomes.give_back(claim, group)

    def _openable(self, claims: list[Claim], opens: Callable[[Leased], bool]) -> list[Claim]:
        """Give back the tasks whose member cannot be used here."""
        kept = []
        for claim in claims:
            if claim.leased is None or opens(claim.leased):
                kept.append(claim)
            else:
                self._unopened.add(claim.leased.pool)
                self._outcomes.unstarted(claim, NO_KEY)
        return kept

    async def _leave_out(self) -> None:
        """Claim nothing that needs a pool whose member could not be opened; other queues go on."""
        queues = await self._engine.queues()
        # Empty if `claim_only` came in between: it knows better.
        if self._unopened:
            others = frozenset(queue.name for queue in queues if queue.resources not in self._unopened)
            self._only, self._unopened = others if self._only is None else others & self._only, set()

    async def _divide(self, groups: Sequence[WorkerGroup], partitioned: bool) -> bool:
        """Let each worker of a group ask for itself while a queue of the group has partitions; whether one begins now.

        The store's answer is about all these groups together: the queues say which are meant.
        """
        if not partitioned:
            for group in groups:
                group.divided = False
            return False
        if self._time() >= self._look_at_queues or not any(map(self._serves_divided, groups)):
            self._look_at_queues = self._time() + _LOOK_AT_QUEUES
            queues = await self._engine.queues()
            self.slot_numbers.divided = {one.name: one.partitions for one in queues if one.partitions is not None}
        for group in groups:
            group.divided = group.divided and self._serves_divided(group)
        groups = [group for group in groups if self._serves_divided(group)]
        fresh = [group for group in groups if not group.divided]
        for group in fresh:
            group.divided = True
            self.slot_numbers.need(group.pool, group.queues)
            self.empty(group)
        return bool(fresh)

    def _serves_divided(self, group: WorkerGroup) -> bool:
        return any(group.queues is None or name in group.queues for name in self.slot_numbers.divided)

    def _numbering(self) -> Callable[[WorkerLoad], int | None]:
        """The number under which a worker asks. Of the workers at one place only one has it: a successor gets no task
        of a key that belongs to one worker while its predecessor still runs one."""
        holders = self._at_keys()
        if any(spec.exclusive for spec in self.slot_numbers.divided.values()):
            for load in self._loads(self.groups):
                if not load.closed:
                    holders.setdefault((load.group.pool, load.place), load.worker.id)

        def number(load: WorkerLoad) -> int | None:
            place = load.group.pool, load.place
            held = holders.get(place, load.worker.id) != load.worker.id
            return None if held else self.slot_numbers.asking(*place)

        return number

    def _at_keys(self) -> dict[tuple[str, int], str]:
        """The places at which tasks of keys run that belong to one worker, and the worker that runs them."""
        exclusive = {name for name, spec in self.slot_numbers.divided.items() if spec.exclusive}
        if not exclusive:
            return {}
        return {
            (load.group.pool, load.place): load.worker.id
            for load in self._loads([*self.earlier(), *self.groups])
            if any(claim.queue in exclusive for claim in load.running.values())
        }

    def _until(self, claimed: Claimed) -> float:
        if claimed.next_due is None:
            return POLL_SECONDS
        return min(POLL_SECONDS, max(0.001, (claimed.next_due - self._outcomes.clock.now()) / SECOND))

    async def _woken_within(self, seconds: float) -> None:
        """Sleep until the store rings, `wake` is set, or the time is over."""
        assert self.ring is not None
        own = asyncio.create_task(self.wake.wait())
        try:
            await asyncio.wait({self.ring, own}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self.ring.done() and not own.done() and self._starved:
                await self._back_off(own)
        finally:
            own.cancel()
        if self.ring.done():
            self.rung = True
            self.on_ring()

    async def _back_off(self, own: "asyncio.Task[bool]") -> None:
        """Back off once, so that the manager that released can claim again; not a second time without a claim."""
        if self._may_back_off:
            self._may_back_off = False
            await asyncio.wait({own}, timeout=_BACK_OFF * (1 + self._luck()))

    @property
    def _starved(self) -> bool:
        """Whether all groups are limited by resources only."""
        return all(group.starved or group.paused for group in self.groups)

    def _busy_places(self, pool: str) -> set[int]:
        """The places of a pool at which tasks run or wait."""
        loads = self._loads(group for group in self.groups if group.pool == pool)
        return {load.place for load in loads if load.running or load.reserved is not None}

    @staticmethod
    def _loads(groups: Iterable[WorkerGroup]) -> list[WorkerLoad]:
        return [load for group in groups for load in group.workers.values()]

    def _knows(self, task: TaskId, token: Token) -> bool:
        return any(group.knows(task, token) for group in self.groups)
