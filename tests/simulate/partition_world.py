"""Managers come, go, die and stand still, and workers die, while they work on a queue with partitions, in virtual time.

The dispatchers and the leader's duty are the production ones, on the memory engine. A change that is made while all is
calm is measured: how many keys it moved, and how soon the keys of a dead manager had an owner again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from random import Random
from typing import cast

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import Store
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Released
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.policy import Policy
from pitboss.model.pool_slot import PoolSlot, slot_name
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.session import Claimed, ClaimRequest, SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask
from pitboss.testing.checker import check, final
from pitboss.testing.clock import FakeClock
from pitboss.testing.history import History
from pitboss.testing.recorded import recorded
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.duties import Duty, run_duties
from pitboss.upkeep.leadership import Leadership
from pitboss.upkeep.rebalance import REBALANCE_SECONDS, Rebalancer
from tests.races.scene import Gate

QUEUE, POOL = "targets", "default"
TTL_SECONDS = 4.0
# The keys of a dead manager have an owner again within the life of its session and this time.
SOON = 2.0
MANAGERS, MOST_WORKERS = 3, 3
TASKS, TURNS = 240, 14
# Longer than the session of a dead manager lives.
CALM_SECONDS, PATIENCE = TTL_SECONDS + 1.5, 40.0
SLOWEST_CLAIM, DEATHS_PER_CLAIM = 0.1, 0.03
# No task takes that long, and no manager stands still for that long.
FORGOTTEN = 12.0


class SleepingWorker:
    """One task at a time, which only takes time."""

    capacity = 1
    silence = 0.0

    def __init__(self, world: "PartitionWorld", dispatcher: Dispatcher, name: str) -> None:
        self.id = self.name = name
        self._world, self._dispatcher = world, dispatcher
        self._running: dict[str, asyncio.TimerHandle] = {}
        self._waiting: list[Claim] = []
        self._dead = False

    def start(self, claim: Claim) -> None:
        if self._dead:
            return
        if self._running:
            self._waiting.append(claim)
            return
        seconds = self._world.luck.choice([0.05, 0.2, 0.5, 1.5])
        self._running[claim.id] = asyncio.get_running_loop().call_later(seconds, self._end, claim)

    def _end(self, claim: Claim) -> None:
        del self._running[claim.id]
        if self._waiting:
            self.start(self._waiting.pop(0))
        self._dispatcher.finish(claim, Completed(), worker=self.name)

    def stop(self, claim: Claim) -> None:
        """Nothing is cancelled here."""

    def recall(self) -> None:
        waiting, self._waiting = self._waiting, []
        for claim in waiting:
            self._dispatcher.finish(claim, Released(), worker=self.name)

    def kill(self) -> None:
        for timer in self._running.values():
            timer.cancel()
        self._running, self._waiting, self._dead = {}, [], True


class SlowGate(Gate):
    """A claim is answered a moment later. Now and then a worker dies in between."""

    def __init__(self, world: "PartitionWorld", lose_worker: Callable[[], None]) -> None:
        super().__init__(world.engine)
        self._luck, self._lose_worker = world.luck, lose_worker

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed: Claimed = await self._held(self._engine.claim)(request)
        if claimed.claims and self._luck.random() < DEATHS_PER_CLAIM:
            self._lose_worker()
        await asyncio.sleep(self._luck.uniform(0, SLOWEST_CLAIM))
        await self.open.wait()
        return claimed


class Manager:
    """One process: a dispatcher, workers at places, and a part in the election of the leader."""

    def __init__(self, world: "PartitionWorld", node: str, places: list[int], pid: int) -> None:
        self._world, self.node, self.pid = world, node, pid
        self.gate = SlowGate(world, self._lose_worker)
        self.store = recorded(cast("Store", self.gate), world.history, f"{node}.{pid}", clock=world.clock)
        info = SessionInfo(host=node, boot_id="b", pid=pid, handlers=("job",), ttl=round(TTL_SECONDS * SECOND))
        self.dispatcher = Dispatcher(
            self.store, info, clock=world.clock, luck=world.luck.random, policies=lambda _: Policy()
        )
        self._added: set[str] = set()
        self.workers = {place: self._worker() for place in places}
        self._leadership = Leadership(self.store, self._session, clock=world.clock)
        self._rebalancer = Rebalancer(self.store, self.store, world.clock, say=lambda _: None)
        self._duties: list[asyncio.Task[None]] = []

    @property
    def places(self) -> list[int]:
        return sorted(self.workers)

    def _session(self) -> int | None:
        return None if self.dispatcher.session is None or self.dispatcher.lost else self.dispatcher.session.number

    def _worker(self) -> SleepingWorker:
        return SleepingWorker(self._world, self.dispatcher, f"{self.node}.{self.pid}/{self._world.count()}")

    async def start(self) -> None:
        await self.dispatcher.start()
        self._seat()
        duty = Duty("rebalance", REBALANCE_SECONDS, self._rebalancer.rebalance)
        self._duties = [
            asyncio.create_task(self._leadership.campaign_forever()),
            asyncio.create_task(run_duties([duty], term=self._leadership.term, warn=self._world.faults.append)),
        ]

    def resize(self, places: list[int]) -> None:
        """As a pool does: those that are too many end their task first."""
        for place, worker in self.workers.items():
            if place not in places:
                self.dispatcher.close_worker(worker.id)
        self.workers = {place: self.workers.get(place) or self._worker() for place in places}
        self._seat()

    def _seat(self) -> None:
        self.dispatcher.set_places({POOL: self.places})
        for place, worker in self.workers.items():
            if worker.id not in self._added:
                self._added.add(worker.id)
                self.dispatcher.add_worker(worker, pool=POOL, queues=(QUEUE,), place=place)

    def _lose_worker(self) -> None:
        """A worker dies, and another one takes its place."""
        place = self._world.luck.choice(self.places)
        dead = self.workers[place]
        dead.kill()
        self.dispatcher.remove_worker(dead.id)
        self.workers[place] = self._worker()
        self._seat()

    def replace_workers(self) -> None:
        """Each gets a successor at its place, and ends its task."""
        old, self.workers = self.workers, {place: self._worker() for place in self.places}
        self._seat()
        for worker in old.values():
            self.dispatcher.close_worker(worker.id)

    async def stand_still(self, seconds: float) -> None:
        self.gate.open.clear()
        await asyncio.sleep(seconds)
        self.gate.open.set()

    async def kill(self) -> None:
        """Gone without a word: nothing more is asked, nothing that was asked is heard."""
        await self._end_duties()
        self.store.dead = self.dispatcher.lost = True
        self._kill_workers()
        await self.dispatcher.stop()

    async def stop(self) -> None:
        """Orderly; what runs is given back."""
        await self._end_duties()
        if not self.dispatcher.lost:
            await self._leadership.retire()
            await self.dispatcher.drain(0.3)
        await self.dispatcher.stop()
        self._kill_workers()

    def _kill_workers(self) -> None:
        for worker in self.workers.values():
            worker.kill()

    async def _end_duties(self) -> None:
        for task in self._duties:
            task.cancel()
        await asyncio.gather(*self._duties, return_exceptions=True)


class PartitionWorld:
    """One run of a seed: `faults` says what was wrong, `measured` how often each kind of change was measured."""

    def __init__(self, seed: int, make_engine: Callable[..., MemoryEngine] = MemoryEngine) -> None:
        self.luck, self.clock, self.history = Random(seed), FakeClock(), History()
        self.engine = make_engine(clock=self.clock)
        self.faults: list[str] = []
        self.measured: Counter[str] = Counter()
        self._ids = IdMaker(self.clock.now, self.luck.getrandbits)
        self._client = recorded(self.engine, self.history, "client", clock=self.clock)
        self.keys = [f"k{number:02}" for number in range(self.luck.randint(5, 14))]
        self.slots = self.luck.randint(3, 6)
        self.spec = self._spec(balanced=seed % 2 == 0)
        self.managers: list[Manager] = []
        self._numbers = 0
        self._put: list[str] = []

    def _spec(self, *, balanced: bool) -> Partitioning:
        if balanced:
            return Partitioning(by="{key}", mode="balanced")
        table = {number: tuple(self.keys[number :: self.slots]) for number in range(self.slots)}
        return Partitioning(by="{key}", mode="static", table=table, on_missing=self.luck.choice(["hold", "reassign"]))

    def count(self) -> int:
        self._numbers += 1
        return self._numbers

    def run(self) -> list[str]:
        return run_virtual(self._run(), clock=self.clock, limit="2h")

    async def _run(self) -> list[str]:
        await self._client.register([HandlerInfo(name="job", queue=QUEUE)])
        await self._client.declare(Declared(app="a", queues={QUEUE: QueueSettings(partitions=self.spec)}))
        await self._put_tasks(self.keys)
        for number in range(MANAGERS):
            await self._join(f"n{number}", self.luck.randint(1, 2))
        sweeping = asyncio.create_task(self._sweep())
        putting = asyncio.create_task(self._put_more())
        for _ in range(TURNS):
            await self._turn()
        await putting
        await self._judge_running()
        await self._finish()
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        self.measured["moved"] = sum((await self._epochs()).values())
        violations = check(self.history, await final(self._client))
        return self.faults + [str(one) for one in violations] + self._left()

    async def _put_tasks(self, keys: list[str]) -> None:
        tasks = [NewTask(id=self._ids(), handler="job", queue=QUEUE, params=f'{{"key":"{key}"}}') for key in keys]
        await self._client.put(tasks)
        self._put += [task.id for task in tasks]

    async def _put_more(self) -> None:
        weights = [1 / (1 + number) for number in range(len(self.keys))]
        while len(self._put) < TASKS:
            await asyncio.sleep(self.luck.uniform(0, 3))
            await self._put_tasks(self.luck.choices(self.keys, weights, k=self.luck.randint(1, 8)))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            await self._client.reclaim()

    async def _join(self, node: str, workers: int, pid: int | None = None) -> Manager:
        manager = Manager(self, node, list(range(workers)), pid or self.count())
        self.managers.append(manager)
        await manager.start()
        return manager

    async def _turn(self) -> None:
        acts = [self._joins, self._leaves, self._restarts, self._is_killed, self._stands_still, self._resizes]
        act = self.luck.choices([*acts, self._replaces], [3, 2, 3, 3, 3, 2, 3])[0]
        if self.luck.random() < 0.6:
            calm = await self._calm()
        else:
            await asyncio.sleep(self.luck.uniform(0, 2))
            calm = False
        await act(calm)

    async def _joins(self, calm: bool) -> None:
        while len(self.managers) > MANAGERS:
            await self._leaves(calm)
        calm = calm and await self._calm()
        before, workers = await self._owners(), self.luck.randint(1, 2)
        await self._join(f"n{self.count()}", workers)
        if calm and await self._calm():
            self._judge_join(before, await self._owners(), workers)

    def _judge_join(self, before: Mapping[str, str | None], after: Mapping[str, str | None], workers: int) -> None:
        moved = sum(after[key] != owner for key, owner in before.items())
        slots = sum(len(manager.workers) for manager in self.managers)
        most = workers * ceil(len(after) / slots)
        self.measured["join"] += 1
        if self.spec.mode == "balanced" and moved > most:
            self.faults.append(f"{workers} slots joined {slots - workers}: {moved} of {len(after)} keys moved")

    async def _leaves(self, calm: bool) -> None:
        if len(self.managers) > 1:
            manager = self._any()
            self.managers.remove(manager)
            await manager.stop()

    async def _restarts(self, calm: bool) -> None:
        """Orderly or proved dead, it is back before its slots go to others."""
        before, manager = await self._epochs(), self._any()
        self.managers.remove(manager)
        if self.luck.random() < 0.5:
            await manager.stop()
        else:
            await manager.kill()
        await asyncio.sleep(self.luck.uniform(0, 0.7) * TTL_SECONDS)
        if manager.dispatcher.session is not None:
            await self._client.end_session(manager.dispatcher.session.number)
        again = Manager(self, manager.node, manager.places, self.count())
        self.managers.append(again)
        await again.start()
        if calm and await self._calm():
            self.measured["restart"] += 1
            after = await self._epochs()
            if after != before:
                moved = [key for key in after if after[key] != before.get(key)]
                self.faults.append(f"a restart of {manager.node} moved {moved}")

    async def _is_killed(self, calm: bool) -> None:
        if len(self.managers) == 1:
            await self._join(f"n{self.count()}", 2)
        manager = self._any()
        self.managers.remove(manager)
        await manager.kill()
        if calm and self.spec.mode == "balanced":
            await self._has_heirs()

    async def _has_heirs(self) -> None:
        """By then each key has a live owner again, or is on its way to one while another task ends."""
        self.measured["kill"] += 1
        await asyncio.sleep(TTL_SECONDS + SOON)
        live = {slot.name for slot in await self.engine.slots() if slot.live}
        orphans = [one.key for one in await self._rows() if (one.moving_to or one.owner) not in live]
        if orphans:
            self.faults.append(f"{orphans} had no owner {TTL_SECONDS + SOON} s after a manager was killed")

    async def _stands_still(self, calm: bool) -> None:
        manager = self._any()
        await manager.stand_still(self.luck.choice([0.5, 2.0, TTL_SECONDS + 0.5, TTL_SECONDS + 2]))
        await asyncio.sleep(1)
        if manager.dispatcher.lost:
            # Its session is over: the process goes on with another one.
            self.managers.remove(manager)
            await manager.stop()
            again = Manager(self, manager.node, manager.places, manager.pid)
            self.managers.append(again)
            await again.start()

    async def _resizes(self, calm: bool) -> None:
        """One manager has fewer workers from now on, or more; perhaps another has more at once."""
        one = self._any()
        one.resize(list(range(self.luck.randint(1, MOST_WORKERS))))
        others = [manager for manager in self.managers if manager is not one]
        if others and self.luck.random() < 0.7:
            await asyncio.sleep(self.luck.uniform(0, 0.3))
            self.luck.choice(others).resize(list(range(MOST_WORKERS)))

    async def _replaces(self, calm: bool) -> None:
        """As a rolling restart does, or a pool that shrinks and grows: successors come while tasks run."""
        self._any().replace_workers()

    async def _judge_running(self) -> None:
        """Each task that is marked as running is run by a worker: otherwise it would hold its key for ever."""
        await asyncio.sleep(FORGOTTEN)
        since = self.clock.now() - round(FORGOTTEN * SECOND)
        self.faults += [
            f"task {task.id} of key {task.partition} is marked as running, and no worker runs it"
            for task in self.engine.tables.tasks.values()
            if task.state is State.RUNNING and task.started_at is not None and task.started_at < since
        ]

    def _any(self) -> Manager:
        return self.luck.choice(self.managers)

    async def _rows(self) -> list[Partition]:
        return await self.engine.partitions(QUEUE, counts=False)

    async def _owners(self) -> dict[str, str | None]:
        return {one.key: one.owner for one in await self._rows()}

    async def _epochs(self) -> dict[str, int]:
        return {one.key: one.epoch for one in await self._rows()}

    async def _calm(self) -> bool:
        """Wait until no key has changed hands for a while, and each has a live owner (or the one of the table)."""
        waited, since, before = 0.0, 0.0, await self._rows()
        while waited < PATIENCE:
            await asyncio.sleep(0.5)
            waited += 0.5
            rows, slots = await self._rows(), await self.engine.slots()
            moving = any(one.moving_to for one in rows) or self._exchanges(slots)
            if rows != before or moving or not all(slot.live for slot in slots):
                before, since = rows, waited
            live = {slot.name for slot in slots}
            homes = all(one.owner in live or self.spec.on_missing == "hold" for one in rows)
            if homes and waited - since >= CALM_SECONDS:
                return True
        return False

    def _exchanges(self, slots: Sequence[PoolSlot]) -> bool:
        """A slot that the table lacks becomes a free one of the table as soon as its tasks have ended, and that moves
        keys whatever happens meanwhile."""
        table, taken = set(self.spec.table), {slot.number for slot in slots}
        return bool(table - taken and taken - table)

    async def _finish(self) -> None:
        """All troubles are over: one manager with all slots of the table does what is left."""
        for manager in self.managers:
            await manager.stop()
        await asyncio.sleep(TTL_SECONDS + 1)
        last = await self._join("last", self.slots)
        for _ in range(2000):
            await asyncio.sleep(0.5)
            tasks = self.engine.tables.tasks.values()
            if all(task.state.finished for task in tasks):
                break
        if self.spec.mode == "static" and await self._calm():
            self._judge_table(await self._owners())
        await last.stop()

    def _judge_table(self, owners: Mapping[str, str | None]) -> None:
        table = {key: slot_name(POOL, number) for number, keys in self.spec.table.items() for key in keys}
        if owners != table:
            self.faults.append(f"the keys are not as the table says: {owners}")

    def _left(self) -> list[str]:
        tasks = self.engine.tables.tasks
        done = sum(tasks[task].state is State.COMPLETED for task in self._put)
        return [] if done == len(self._put) else [f"{len(self._put) - done} of {len(self._put)} tasks are not done"]
