"""Managers, clients, operators and a nemesis on one store in virtual time, all drawn from one seed.

The dispatchers are the production ones. The nemesis stops managers for longer than their sessions live, kills them and
their workers, and loses answers of the store.
"""

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from random import Random
from typing import Any

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory import MemoryEngine
from pitboss.model.duration import SECOND
from pitboss.model.errors import QueueFull, StoreUnavailable
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.ids import IdMaker
from pitboss.model.limits import rate
from pitboss.model.outcome import Cancelled, Completed, Failed, Outcome, Released, Retry, Snooze
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.session import SessionInfo
from pitboss.model.task import Claim, NewTask, TaskError, Unique
from pitboss.testing.checker import Violation, check, final
from pitboss.testing.clock import FakeClock
from pitboss.testing.history import History, Settle
from pitboss.testing.recorded import recorded
from pitboss.testing.virtual import run_virtual

TTL = 3 * SECOND
TROUBLE_SECONDS = 12.0
POLICY = Policy(max_attempts=3, backoff=Backoff(base=SECOND, factor=2.0, jitter=0.25))


class LostAnswers:
    """Now and then the store does not answer: before it did anything, or after."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.on = True
        self.bitten = 0

    def __call__(self, name: str) -> None:
        if self.on and self._random.random() < 0.04:
            self.bitten += 1
            raise StoreUnavailable(f"lost at {name}", why="the nemesis did it", fix="repeat the call")


class Gate:
    """In front of one manager's engine. While it is shut, questions and answers wait, as if the process stood still."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self.open = asyncio.Event()
        self.open.set()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        return self._held(value) if iscoroutinefunction(value) and name != "wait" else value

    def _held(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        async def through(*args: Any, **options: Any) -> Any:
            await self.open.wait()
            answer = await verb(*args, **options)
            await self.open.wait()
            return answer

        return through


class CoroutineWorker:
    """A worker whose tasks are coroutines."""

    silence = 0.0

    def __init__(self, scene: "Scene", dispatcher: Dispatcher, name: str) -> None:
        self.id = self.name = name
        self.capacity = 3
        self._scene, self._dispatcher = scene, dispatcher
        self.running: dict[str, asyncio.Task[None]] = {}
        self._waiting: list[Claim] = []

    def start(self, claim: Claim) -> None:
        if len(self.running) < self.capacity:
            self.running[claim.id] = asyncio.create_task(self._run(claim))
        else:
            self._waiting.append(claim)

    def recall(self) -> None:
        waiting, self._waiting = self._waiting, []
        for claim in waiting:
            self._dispatcher.finish(claim, Released(), worker=self.name)

    def stop(self, claim: Claim) -> None:
        if claim.id in self.running:
            self.running[claim.id].cancel()

    def kill(self) -> None:
        running, self.running = self.running, {}
        self._waiting = []
        for task in running.values():
            task.cancel()

    async def _run(self, claim: Claim) -> None:
        random = self._scene.random
        try:
            await asyncio.sleep(random.choice([0.0, 0.01, 0.3, 2.0]))
            if random.random() < 0.3:
                self._dispatcher.progress(claim, 50, None)
                await asyncio.sleep(0.2)
            outcome = self._scene.outcome()
        except asyncio.CancelledError:
            if claim.id not in self.running:
                return
            outcome = Cancelled("asked")
        self.running.pop(claim.id, None)
        if self._waiting:
            self.start(self._waiting.pop(0))
        self._dispatcher.finish(claim, outcome, worker=self.name)


class Manager:
    """One dispatcher with two workers, as one process."""

    def __init__(self, scene: "Scene", name: str) -> None:
        self._scene, self.name = scene, name
        self.gate = Gate(scene.engine)
        self.store = recorded(self.gate, scene.history, name, clock=scene.clock)  # type: ignore[arg-type]
        self.dispatcher = Dispatcher(
            self.store,
            SessionInfo(host=name, handlers=("job",), ttl=TTL),
            clock=scene.clock,
            luck=scene.random.random,
            policies=lambda _: POLICY,
        )
        self.workers = [CoroutineWorker(scene, self.dispatcher, f"{name}/{number}") for number in range(2)]

    async def start(self) -> None:
        await self.dispatcher.start()
        for worker in self.workers:
            self.dispatcher.add_worker(worker)

    async def freeze(self, seconds: float) -> None:
        self.gate.open.clear()
        await asyncio.sleep(seconds)
        self.gate.open.set()

    def kill_worker(self) -> None:
        index = self._scene.random.randrange(len(self.workers))
        dead = self.workers[index]
        dead.kill()
        self.dispatcher.remove_worker(dead.name)
        self.workers[index] = CoroutineWorker(self._scene, self.dispatcher, f"{dead.name}+")
        self.dispatcher.add_worker(self.workers[index])

    async def kill(self) -> None:
        """Gone without a word: nothing more is asked, nothing that was asked is heard."""
        self.store.dead = True
        for worker in self.workers:
            worker.kill()
        self.dispatcher.lost = True
        await self.dispatcher.stop()

    async def stop(self) -> None:
        await self.dispatcher.stop()
        for worker in self.workers:
            worker.kill()


class Scene:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = FakeClock()
        self.history = History()
        self.losses = LostAnswers(self.random)
        self.engine = MemoryEngine(clock=self.clock, failpoint=self.losses)
        self.client = recorded(self.engine, self.history, "client", clock=self.clock)
        self._ids = IdMaker(self.clock.now, self.random.getrandbits)
        self._put: list[NewTask] = []
        self._managers: list[Manager] = []
        self._names = 0

    def run(self) -> list[Violation]:
        return run_virtual(self._run(), clock=self.clock, limit="1h")

    def refusals(self) -> int:
        """How many writes came too late."""
        settles = (entry.act for entry in self.history.entries if entry.phase == "ok" and isinstance(entry.act, Settle))
        return sum(not answer.applied for act in settles for answer in act.answers)

    async def _run(self) -> list[Violation]:
        await self.client.register([HandlerInfo(name="job")])
        await self.client.change_queue("rated", QueueChange(rate=rate("2/s, 5/5s")))
        await self.client.change_queue("narrow", QueueChange(capacity=6))
        self._managers = [await self._new_manager(), await self._new_manager()]
        async with asyncio.timeout(600), asyncio.TaskGroup() as group:
            for work in (self._enqueue, self._operate, self._sweep, self._trouble):
                group.create_task(work())
        await self._heal()
        # Once a stopped dispatcher left a task behind that waited for its own wake-up.
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return check(self.history, await final(self.client)) + await self._left()

    async def _new_manager(self) -> Manager:
        self._names += 1
        manager = Manager(self, f"m{self._names}")
        await manager.start()
        return manager

    def outcome(self) -> Outcome:
        broken = TaskError(category="net", message="connection reset", retryable=self.random.random() < 0.8)
        follow_ups = (self._new(queue="plain"),) if self.random.random() < 0.2 and len(self._put) < 80 else ()
        outcomes: list[Outcome] = [
            Completed("null", follow_ups),
            Failed(broken, follow_ups),
            Retry(),
            Snooze(SECOND),
            Cancelled("no"),
        ]
        return self.random.choices(outcomes, [12, 3, 1, 1, 1])[0]

    def _new(self, **options: Any) -> NewTask:
        fields: dict[str, Any] = {
            "id": self._ids(),
            "handler": "job",
            "queue": self.random.choice(["plain", "plain", "rated", "narrow"]),
            "priority": self.random.choice([0, 0, 1]),
        }
        match self.random.randrange(8):
            case 0:
                fields["unique"] = Unique(f"k{self.random.randrange(2)}")
            case 1:
                fields["delay"] = self.random.randrange(3 * SECOND)
            case _:
                pass
        return NewTask(**fields | options)

    async def _until_calm(self, pause: float) -> bool:
        await asyncio.sleep(pause)
        return asyncio.get_running_loop().time() < TROUBLE_SECONDS

    async def _enqueue(self) -> None:
        while await self._until_calm(self.random.uniform(0, 1.2)):
            tasks = [self._new() for _ in range(self.random.randrange(1, 4))]
            self._put += tasks
            for _ in range(4):
                try:
                    await self.client.put(tasks)
                    break
                except QueueFull:
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)

    async def _operate(self) -> None:
        while await self._until_calm(self.random.uniform(0.2, 3)):
            if self._put:
                some = by(id=self.random.choice(self._put).id)
                await (self.client.cancel(some) if self.random.random() < 0.5 else self.client.retry(some))

    async def _sweep(self) -> None:
        while await self._until_calm(0.5):
            try:
                await self.client.reclaim()
            except StoreUnavailable:
                continue

    async def _trouble(self) -> None:
        while await self._until_calm(self.random.uniform(0.3, 2)):
            index = self.random.randrange(len(self._managers))
            manager = self._managers[index]
            match self.random.randrange(4):
                case 0:
                    await manager.freeze(self.random.choice([0.5, 3.5, 4.5]))
                case 1:
                    await manager.kill()
                    self._managers[index] = await self._new_manager()
                case 2:
                    manager.kill_worker()
                case _:
                    await manager.stop()
                    self._managers[index] = await self._new_manager()

    async def _heal(self) -> None:
        """Trouble is over: new managers take over, and everything must come to its end."""
        self.losses.on = False
        for manager in self._managers:
            await manager.stop()
        last = await self._new_manager()
        for _ in range(400):
            await self.client.reclaim()
            if all(task.state.finished for task in self.engine.tables.tasks.values()):
                break
            await asyncio.sleep(0.5)
        await last.stop()

    async def _left(self) -> list[Violation]:
        tasks = (await self.client.find(EVERYTHING, limit=10_000)).tasks
        return [
            Violation(invariant="everything that can run is run", what=f"task {task.id} is left {task.state}")
            for task in tasks
            if not task.state.finished
        ]
