"""A dispatcher over the memory engine in virtual time, with workers that are coroutines."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory import MemoryEngine
from pitboss.model.duration import SECOND, Span
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Cancelled, Completed, Outcome, Released
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import SessionInfo
from pitboss.model.settlement import SettleAnswer
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, Task
from pitboss.testing.clock import FakeClock

Work = Callable[[Claim], Awaitable[Outcome]]


async def at_once(_: Claim) -> Outcome:
    return Completed("null")


def taking(seconds: float) -> Work:
    async def work(_: Claim) -> Outcome:
        await asyncio.sleep(seconds)
        return Completed("null")

    return work


class CoroutineWorker:
    """A worker whose tasks are coroutines. `most` is the largest number that ran at once."""

    silence = 0.0

    def __init__(self, stage: "Stage", dispatcher: Dispatcher, name: str, capacity: int, work: Work) -> None:
        self.id = self.name = name
        self.capacity = capacity
        self._stage, self._dispatcher, self._work = stage, dispatcher, work
        self._running: dict[str, asyncio.Task[None]] = {}
        self._waiting: list[Claim] = []
        self.most = 0
        self.neighbours: dict[str, int] = {}

    def start(self, claim: Claim) -> None:
        if len(self._running) < self.capacity:
            self._start(claim)
        else:
            self._waiting.append(claim)

    def recall(self) -> None:
        waiting, self._waiting = self._waiting, []
        for claim in waiting:
            self._dispatcher.finish(claim, Released(), worker=self.name)

    def _start(self, claim: Claim) -> None:
        self._stage.started.append((self._stage.clock.now(), self.name, claim))
        self._running[claim.id] = asyncio.create_task(self._run(claim))
        self.most = max(self.most, len(self._running))
        for task in self._running:
            self.neighbours[task] = max(self.neighbours.get(task, 0), len(self._running))

    def stop(self, claim: Claim) -> None:
        self._running[claim.id].cancel()

    def kill(self) -> None:
        """The worker dies: it reports nothing more."""
        for task in self._running.values():
            task.cancel()
        self._running, self._waiting = {}, []

    async def _run(self, claim: Claim) -> None:
        began = self._stage.clock.now()
        try:
            outcome = await self._work(claim)
        except asyncio.CancelledError:
            if claim.id not in self._running:
                return
            outcome = Cancelled("stopped")
        del self._running[claim.id]
        if self._waiting:
            self._start(self._waiting.pop(0))
        ran: Span = self._stage.clock.now() - began
        self._dispatcher.finish(claim, outcome, worker=self.name, ran=ran, told=self._stage.told_of(claim))


class Stage:
    """A store, its clock, and dispatchers with coroutine workers on it."""

    def __init__(self, engine: MemoryEngine | None = None) -> None:
        self.clock = FakeClock()
        self.engine = engine or MemoryEngine(clock=self.clock)
        self.random = random.Random(7)
        self.new_id = IdMaker(self.clock.now, self.random.getrandbits)
        self.started: list[tuple[int, str, Claim]] = []
        self.verdicts: list[tuple[Claim, SettleAnswer]] = []
        self.policy = Policy(max_attempts=3, backoff=Backoff(base=SECOND, jitter=0.0))
        self.lost = 0

    def told_of(self, claim: Claim) -> Callable[[SettleAnswer], None]:
        return lambda verdict: self.verdicts.append((claim, verdict))

    async def put(self, count: int = 1, **options: Any) -> list[str]:
        await self.engine.register([HandlerInfo(name="work")])
        tasks = [NewTask(id=self.new_id(), handler="work", **options) for _ in range(count)]
        return [placed.id for placed in await self.engine.put(tasks)]

    def dispatcher(self, **info: Any) -> Dispatcher:
        def lose() -> None:
            self.lost += 1

        return Dispatcher(
            self.engine,
            SessionInfo(host="stage", **info),
            clock=self.clock,
            luck=self.random.random,
            policies=lambda _: self.policy,
            on_lost=lose,
        )

    def worker(
        self, dispatcher: Dispatcher, work: Work = at_once, *, name: str = "w1", capacity: int = 4
    ) -> CoroutineWorker:
        worker = CoroutineWorker(self, dispatcher, name, capacity, work)
        dispatcher.add_worker(worker)
        return worker

    async def tasks(self) -> list[Task]:
        return list((await self.engine.find(EVERYTHING, limit=100_000)).tasks)

    async def one(self, task: str) -> Task:
        (found,) = await self.engine.get([task])
        assert found is not None
        return found

    async def states(self) -> dict[State, int]:
        counts: dict[State, int] = {}
        for task in await self.tasks():
            counts[task.state] = counts.get(task.state, 0) + 1
        return counts

    async def until(self, condition: Callable[[], Awaitable[bool]], *, step: float = 0.05) -> None:
        for _ in range(1_000_000):
            if await condition():
                return
            await asyncio.sleep(step)

    async def until_finished(self) -> None:
        async def finished() -> bool:
            return all(task.state.finished for task in await self.tasks())

        await self.until(finished)
