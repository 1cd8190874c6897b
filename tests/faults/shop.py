"""A small shop in real time: clients that put, managers that claim and settle, workers that are coroutines.

All calls go through a recorded engine, so that the checker can judge the history.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Self

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import StoreUnavailable
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Failed, Outcome, Released
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import SessionInfo
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.testing.checker import check, final
from pitboss.testing.history import History
from pitboss.testing.recorded import Recorded, recorded
from pitboss.wiring import SystemClock

HANDLER = "job"
POLICY = Policy(max_attempts=5, backoff=Backoff(base=SECOND // 20, jitter=0.5))
FLAWED_PARAMS = '{"fails":"once"}'
_BROKEN = TaskError(category="net", message="connection reset")
_GROUP = 10


class Hand:
    """A worker: `capacity` coroutines at a time, the rest in its tray."""

    silence = 0.0

    def __init__(self, shop: "Shop", dispatcher: Dispatcher, name: str, capacity: int) -> None:
        self.id = self.name = name
        self.capacity = capacity
        self._shop, self._dispatcher = shop, dispatcher
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tray: list[Claim] = []

    def start(self, claim: Claim) -> None:
        self._tray.append(claim)
        self._fill()

    def stop(self, claim: Claim) -> None:
        pass

    def recall(self) -> None:
        tray, self._tray = self._tray, []
        for claim in tray:
            self._dispatcher.finish(claim, Released(), worker=self.name)

    async def gone(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _fill(self) -> None:
        while self._tray and len(self._running) < self.capacity:
            claim = self._tray.pop(0)
            self._running[claim.id] = asyncio.create_task(self._run(claim))

    async def _run(self, claim: Claim) -> None:
        outcome = await self._shop.work(claim)
        del self._running[claim.id]
        self._dispatcher.finish(claim, outcome, worker=self.name, ran=1000)
        self._fill()


@dataclass
class Outcomes:
    """What a run came to."""

    put: int
    ended: int
    runs: int
    lost_sessions: int
    unknown_calls: int
    faults: list[str] = field(default_factory=list)


class Shop:
    """`managers` sessions and `clients` over engines of their own. Use as `async with`."""

    def __init__(
        self, make_engine: Callable[[], FullStore], *, managers: int = 2, clients: int = 4, ttl: Span = 15 * SECOND
    ) -> None:
        self._make, self._managers, self._clients, self._ttl = make_engine, managers, clients, ttl
        self._clock, self._rng = SystemClock(), Random(5)
        self._ids = IdMaker(self._clock.now, self._rng.getrandbits)
        self._stack = AsyncExitStack()
        self.history = History()
        self._dispatchers: list[Dispatcher] = []
        self._tills: list[Recorded] = []
        self._puts: list[NewTask] = []
        self._runs: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._lost = 0
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._tills = [await self._opened(f"client-{number}") for number in range(self._clients)]
        await self._tills[0].register([HandlerInfo(name=HANDLER)])
        for number in range(self._managers):
            await self._manager(f"manager-{number}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def ended(self) -> int:
        """How many tasks have run to their end, as far as their workers know."""
        return len(self._ended)

    async def enqueue(self, count: int, seconds: float) -> None:
        """All clients together, in lists of ten, spread over so much time; repeated until acknowledged."""
        share = count // len(self._tills)
        await asyncio.gather(*(self._enqueue(till, share, seconds) for till in self._tills))

    async def until_ended(self, count: int, seconds: float) -> None:
        """Returns when that many have ended; `TimeoutError` says how many had."""
        try:
            async with asyncio.timeout(seconds):
                while self.ended < count:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise TimeoutError(f"{self.ended} of {count} have ended after {seconds:g} s") from None

    async def closed(self) -> Outcomes:
        """The history, judged by the checker."""
        for dispatcher in self._dispatchers:
            await dispatcher.flushed()
        store = await self._opened("auditor")
        last = await final(store)
        faults = [str(violation) for violation in check(self.history, last)]
        for task in last.tasks:
            runs = last.attempts[task.id]
            wanted = 2 if task.params == FLAWED_PARAMS else 1
            if not task.state.finished or task.attempts != wanted:
                faults.append(f"{task.id} is {task.state} after {task.attempts} attempts, {wanted} wanted: {runs}")
        unknown = sum(call.unknown for call in self.history.calls())
        return Outcomes(len(self._puts), self.ended, self._runs.total(), self._lost, unknown, faults)

    async def work(self, claim: Claim) -> Outcome:
        """The handler: a few milliseconds; flawed tasks fail the first time."""
        self._runs[claim.id] += 1
        await asyncio.sleep(self._rng.uniform(0.001, 0.02))
        if claim.params == FLAWED_PARAMS and claim.attempt == 1:
            return Failed(_BROKEN)
        self._ended.add(claim.id)
        self._moved.set()
        return Completed('{"ok":true}')

    async def _enqueue(self, till: Recorded, count: int, seconds: float) -> None:
        for _ in range(0, count, _GROUP):
            tasks = [self._new() for _ in range(_GROUP)]
            self._puts += tasks
            await patiently(partial(till.put, tasks))
            await asyncio.sleep(seconds * _GROUP / count)

    def _new(self) -> NewTask:
        flawed = self._rng.random() < 0.02
        return NewTask(id=self._ids(), handler=HANDLER, params=FLAWED_PARAMS if flawed else "{}")

    async def _opened(self, name: str) -> Recorded:
        engine = self._make()
        await engine.open()
        self._stack.push_async_callback(engine.close)
        return recorded(engine, self.history, name)

    async def _manager(self, name: str) -> None:
        store = await self._opened(name)
        dispatcher = Dispatcher(
            store,
            SessionInfo(host=name, handlers=(HANDLER,), ttl=self._ttl),
            clock=self._clock,
            luck=self._rng.random,
            policies=lambda _: POLICY,
            on_lost=self._session_lost,
        )
        await dispatcher.start()
        self._stack.push_async_callback(dispatcher.stop)
        for number in range(2):
            hand = Hand(self, dispatcher, f"{name}-w{number}", 8)
            dispatcher.add_worker(hand)
            self._stack.push_async_callback(hand.gone)
        self._dispatchers.append(dispatcher)

    def _session_lost(self) -> None:
        self._lost += 1


async def patiently(call: Callable[[], Awaitable[object]]) -> None:
    """As a client does: a store that is away is asked again, with the same ids."""
    while True:
        try:
            await call()
        except StoreUnavailable:
            await asyncio.sleep(0.05)
        else:
            return
