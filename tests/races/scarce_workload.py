"""The workload with scarce things in it: two pools, leases without tasks, and batches in two lanes."""

from random import Random
from typing import Any

from msgspec.structs import replace

from pitboss.model.batch import BatchAct, BatchId, BatchStatus, Cancel, Move, NewBatch, Pause, Requeue, Resume, Start
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, NotFound, QueueFull, StaleLease, StoreUnavailable
from pitboss.model.limits import Window
from pitboss.model.outcome import Outcome, Rotated
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import (
    Leased,
    Limits,
    NewResource,
    PoolRules,
    Report,
    ResourceChange,
    ResourceOutcome,
    UseEnd,
    Want,
)
from pitboss.model.session import Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask
from tests.races.workload import BROKEN, PLAIN, Doing, Process, Workload

TIGHT, WIDE = "tight", "wide"
FETCHING, POSTING = "fetching", "posting"
HOLD = 6 * SECOND
OPEN = 3 * SECOND
POOLS = {
    TIGHT: PoolRules(
        limits=Limits(windows=(Window(3, 10 * SECOND),), min_delay=SECOND, concurrency=1, use_within=OPEN),
        cooldown=4 * SECOND,
        cooldown_cap=20 * SECOND,
        blacklist=5 * SECOND,
        blacklist_cap=20 * SECOND,
    ),
    WIDE: PoolRules(
        limits=Limits(windows=(Window(6, 10 * SECOND),), concurrency=2, use_within=OPEN),
        cooldown=4 * SECOND,
        cooldown_cap=20 * SECOND,
        blacklist=5 * SECOND,
        blacklist_cap=20 * SECOND,
    ),
}
MEMBERS = ("m1", "m2")
LANES = ("one", "two")
MOST_RUNNING = {"one": 1, "two": 2}
_STEERING: tuple[BatchAct, ...] = (
    Pause(),
    Pause(),
    Resume(),
    Resume(),
    Resume("top"),
    Cancel("enough"),
    Move("top"),
    Move("down"),
    Requeue(),
    Requeue(cancelled=True),
)


class ScarceWorkload(Workload):
    """Everything that `Workload` does, and all that can be done to pools, leases and batches."""

    handlers = ("job", "fetch", "post")
    # None here: they would leave too few steps for the rest.
    remote_queues: tuple[tuple[str, ...], ...] = ()
    # Whether operators start batches by force: then no lane can be judged by how many run.
    forcing = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._batches: list[BatchId] = []
        self._leases: list[str] = []
        self._use_ends: dict[str, UseEnd] = {}
        self._declared = False

    async def _prepare(self) -> None:
        await super()._prepare()
        store = self._processes[0].store
        bound = [("fetch", FETCHING, TIGHT), ("post", POSTING, WIDE)]
        await store.register([HandlerInfo(name=name, queue=queue, resources=pool) for name, queue, pool in bound])
        await store.change_lane("two", MOST_RUNNING["two"])
        while not self._declared:
            await self._do(0, self._declares)

    def _doings(self) -> list[tuple[int, Doing]]:
        return [
            *super()._doings(),
            (14, self._needs),
            (6, self._acquires),
            (5, self._releases),
            (2, self._extends),
            (5, self._uses),
            (5, self._uses_by_claim),
            (3, self._switches),
            (1, self._resets),
            (2, self._declares),
            (9, self._creates_batch),
            (2, self._creates_batch_again),
            (9, self._steers),
            (6, self._reads),
        ]

    def _slots(self) -> tuple[Slot, ...]:
        if self.random.random() < 0.5:
            return super()._slots()
        queues = self.random.choice([None, (FETCHING, POSTING), (FETCHING,), (POSTING, PLAIN)])
        return (Slot(free=self.random.randrange(1, 6), ahead=self.random.choice([0, 2]), queues=queues),)

    async def _needs(self, process: Process) -> None:
        tasks = [self._needy() for _ in range(self.random.choice([1, 2, 3]))]
        self._put += tasks
        await self._put_safely(process, tasks)

    def _needy(self) -> NewTask:
        pick = self.random
        handler, queue = pick.choice([("fetch", FETCHING), ("post", POSTING)])
        want = pick.choice([None, None, Want(labels=("eu",)), Want(key=f"k{pick.randrange(2)}")])
        return self._new(handler=handler, queue=queue, want=want, unique=None)

    def _settlement(self, claim: Claim, outcome: Outcome) -> Settlement:
        if claim.leased is None:
            return super()._settlement(claim, outcome)
        outcome = Rotated(BROKEN) if self.random.random() < 0.3 else outcome
        end = UseEnd(claim.leased.use_at) if self.random.random() < 0.7 else None
        return replace(super()._settlement(claim, outcome), report=_report(self.random), use_end=end)

    async def _acquires(self, process: Process) -> None:
        """A new lease, or the same again, as after a lost answer."""
        again = bool(self._leases) and self.random.random() < 0.25
        lease = self.random.choice(self._leases[-3:]) if again else f"l{len(self._leases) + 1}"
        if not again:
            self._leases.append(lease)
        for _ in range(3):
            try:
                got = await process.store.acquire(self.random.choice([TIGHT, WIDE, WIDE]), Want(), HOLD, lease=lease)
                break
            except StoreUnavailable:
                continue
        else:
            return
        if isinstance(got, Leased):
            self._use_ends[lease] = UseEnd(got.use_at)
            if self.random.random() < 0.5:
                await self._uses_safely(process, lease)

    async def _releases(self, process: Process) -> None:
        if self._leases:
            lease = self.random.choice(self._leases[-3:])
            await process.store.release(lease, _report(self.random), self._use_ends.get(lease))

    async def _extends(self, process: Process) -> None:
        if self._leases:
            await process.store.extend(self.random.choice(self._leases[-3:]), HOLD)

    async def _uses(self, process: Process) -> None:
        if self._leases:
            await self._uses_safely(process, self.random.choice(self._leases[-2:]))

    async def _uses_by_claim(self, process: Process) -> None:
        held = [claim for claim in process.held if claim.leased is not None]
        if held:
            await self._uses_safely(process, self.random.choice(held))

    async def _uses_safely(self, process: Process, holder: Claim | str) -> None:
        try:
            if isinstance(holder, str):
                ends = self._use_ends.get(holder) if self.random.random() < 0.7 else None
                answer = await process.store.use(holder, ends=ends)
                if isinstance(answer, int):
                    self._use_ends[holder] = UseEnd(answer + OPEN)
                if holder in self._use_ends and self.random.random() < 0.2:
                    await process.store.end_use(holder, None, self._use_ends[holder])
            else:
                late = holder.leased is not None and self.random.random() < 0.5
                instead = holder.leased.use_at if late and holder.leased is not None else None
                await process.store.use(holder.token, holder.id, instead=instead)
        except StaleLease:
            return

    async def _switches(self, process: Process) -> None:
        pool, name = self.random.choice(list(POOLS)), self.random.choice(MEMBERS)
        change = ResourceChange(enabled=self.random.random() < 0.6, reason="switched")
        await process.store.change_resources(pool, [name], change)

    async def _resets(self, process: Process) -> None:
        await process.store.change_resources(self.random.choice(list(POOLS)), None, ResourceChange(reset=True))

    async def _declares(self, process: Process) -> None:
        """As every start of an app does: the same rules and members again."""
        for pool, rules in POOLS.items():
            await process.store.declare_pool(pool, rules)
            members = [NewResource(name=name, labels=("eu",) if name == "m1" else ()) for name in MEMBERS]
            await process.store.add_resources(pool, members)
        self._declared = True

    async def _creates_batch(self, process: Process) -> None:
        name = f"b{len(self._batches) + 1}"
        self._batches.append(name)
        pick = self.random
        items = [self._item() for _ in range(pick.randrange(1, 5))]
        self._put += items
        notice = self._new(queue=PLAIN, unique=None, delay=None, expires_in=None) if pick.random() < 0.7 else None
        batch = NewBatch(id=name, lane=pick.choice(LANES), paused=pick.random() < 0.1, on_complete=notice)
        for _ in range(3):
            try:
                await process.store.create_batch(batch, items)
                return
            except QueueFull:
                return
            except StoreUnavailable:
                continue

    async def _creates_batch_again(self, process: Process) -> None:
        """Under a name that is taken: no part of it may be created."""
        if self._batches and (await process.store.batches([self._batches[-1]])):
            await process.store.create_batch(NewBatch(id=self._batches[-1], lane="one"), [])

    def _item(self) -> NewTask:
        plain = self._new(queue=PLAIN, unique=None)
        return self._needy() if self.random.random() < 0.3 else plain

    async def _steers(self, process: Process) -> None:
        if not self._batches:
            return
        acts = [*_STEERING, Start()] if self.forcing else _STEERING
        batch, act = self.random.choice(self._batches[-4:]), self.random.choice(acts)
        try:
            await process.store.act_on_batch(batch, act, limit=self.random.choice([2, 1000]))
        except (InvalidInput, NotFound):
            return

    async def _reads(self, process: Process) -> None:
        await process.store.read_batches()

    async def _drain(self) -> None:
        """Disabled members are enabled, and paused batches go on."""
        self._heal()
        store = self._processes[0].store = (await self._born("healer")).store
        for pool in POOLS:
            await store.change_resources(pool, None, ResourceChange(enabled=True, reset=True))
        for batch in await store.batches(statuses=[BatchStatus.PAUSED, BatchStatus.PAUSING], limit=1000):
            await store.act_on_batch(batch.id, Resume())
        self.clock.advance("30s")
        await super()._drain()
        await self._processes[0].store.reclaim()
        await self._processes[0].store.read_batches()


def _report(pick: Random) -> Report | None:
    outcomes = [ResourceOutcome.OK] * 4 + [ResourceOutcome.RATE_LIMITED] * 3
    outcomes += [ResourceOutcome.BLOCKED, ResourceOutcome.RESOURCE_ERROR, ResourceOutcome.TASK_ERROR]
    if pick.random() < 0.2:
        return None
    retry_after = pick.choice([None, SECOND, 9 * SECOND])
    return Report(outcome=pick.choice(outcomes), retry_after=retry_after, destination=pick.choice([None, "shop"]))
