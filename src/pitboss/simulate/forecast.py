"""How long will it take? The real dispatcher and engine run in virtual time; only the handlers are simulated."""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random

import msgspec

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.dispatch.settler import unmade
from pitboss.engines.protocol import Clock, FullStore
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Released
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import NewResource, PoolRules
from pitboss.model.session import SessionInfo
from pitboss.model.task import Claim, NewTask
from pitboss.simulate.bound import soonest_end
from pitboss.simulate.clock import FakeClock
from pitboss.simulate.virtual import run_virtual

_POOL = "resources"
_HANDLER = "use"
_LONGEST = "3660d"
_TTL: Span = 3600 * SECOND
# Tasks are put and pruned in groups of this size: the memory engine is faster when it holds fewer tasks.
_GROUP = 500
_LOW = 100


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A number of tasks, each of which holds one member for `service`; at most `slots` run at once.

    A service may be shorter or longer by the share `spread`, at random but the same for the same `seed`.
    """

    tasks: int
    slots: int
    service: Span
    members: tuple[NewResource, ...]
    rules: PoolRules
    spread: float = 0.0
    seed: int = 1


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When the last task ended and when each one started, from 0 on; `bound` is the earliest possible end."""

    took: Span
    bound: Span
    starts: tuple[Span, ...]

    @property
    def efficiency(self) -> float:
        return self.bound / self.took if self.took else 1.0


def forecast(make_engine: Callable[[Clock], FullStore], demand: Demand) -> Forecast:
    """Run everything in virtual time. `make_engine` makes a memory engine with the virtual clock."""
    clock = FakeClock()
    return run_virtual(_Simulation(make_engine(clock), clock, demand).run(), clock=clock, limit=_LONGEST)


class _Simulation:
    """All tasks from the first to the last. It is itself the only worker of its dispatcher."""

    id = name = "simulated"
    silence = 0.0

    def __init__(self, engine: FullStore, clock: FakeClock, demand: Demand) -> None:
        self._engine, self._clock, self._demand = engine, clock, demand
        self.capacity = demand.slots
        self._luck = Random(demand.seed)
        self._began: Moment = clock.now()
        self._starts: list[Span] = []
        self._waiting: deque[Claim] = deque()
        self._running = self._put = self._ended = 0
        self._step = asyncio.Event()
        self._dispatcher: Dispatcher | None = None

    async def run(self) -> Forecast:
        demand, engine = self._demand, self._engine
        await engine.open()
        await engine.declare_pool(_POOL, demand.rules)
        await engine.add_resources(_POOL, demand.members)
        await engine.register([HandlerInfo(name=_HANDLER, queue=_POOL, resources=_POOL)])
        self._dispatcher = Dispatcher(
            engine,
            SessionInfo(host="simulation", handlers=(_HANDLER,), ttl=_TTL),
            clock=self._clock,
            luck=self._luck.random,
            policies=lambda _: Policy(),
        )
        await self._dispatcher.start()
        self._dispatcher.add_worker(self, queues=(_POOL,))
        await self._feed()
        took = self._clock.since(self._began)
        await self._dispatcher.stop()
        return Forecast(took=took, bound=self._bound(), starts=tuple(self._starts))

    def start(self, claim: Claim) -> None:
        """As a worker: run it now, or as soon as a slot is free."""
        if self._running >= self.capacity:
            self._waiting.append(claim)
            return
        self._running += 1
        self._starts.append(self._clock.since(self._began))
        seconds = self._demand.service * (1 + self._demand.spread * (2 * self._luck.random() - 1)) / SECOND
        asyncio.get_running_loop().call_later(seconds, self._end, claim)

    def stop(self, claim: Claim) -> None:
        """Nothing is cancelled here."""

    def recall(self) -> None:
        while self._waiting:
            self._finish(self._waiting.popleft(), Released())

    async def _feed(self) -> None:
        """Put tasks as they are needed, and prune those that have ended."""
        new_id = IdMaker(self._clock.now, self._luck.getrandbits)
        forgotten = 0
        while self._ended < self._demand.tasks:
            if self._put - len(self._starts) < _LOW + self.capacity:
                fresh = range(min(_GROUP, self._demand.tasks - self._put))
                await self._engine.put([NewTask(id=new_id(), handler=_HANDLER, queue=_POOL) for _ in fresh])
                self._put += len(fresh)
            if self._ended - forgotten >= _GROUP:
                forgotten += (await self._engine.prune(by(state="completed"), limit=_GROUP)).changed
            self._step.clear()
            await self._step.wait()

    def _end(self, claim: Claim) -> None:
        self._running -= 1
        self._ended += 1
        self._finish(claim, Completed())
        if self._waiting:
            self.start(self._waiting.popleft())
        if self._ended % _LOW == 0 or self._ended == self._demand.tasks or self._low:
            self._step.set()

    @property
    def _low(self) -> bool:
        return self._put < self._demand.tasks and self._put - len(self._starts) < _LOW + self.capacity

    def _finish(self, claim: Claim, outcome: Completed | Released) -> None:
        if self._dispatcher is not None:
            self._dispatcher.finish(claim, outcome, worker=self.name, use_end=unmade(claim))

    def _bound(self) -> Span:
        demand = self._demand
        limits = [member.limits or demand.rules.limits for member in demand.members]
        return soonest_end(limits, demand.tasks, service=demand.service, slots=demand.slots)


__all__ = ["Demand", "Forecast", "forecast"]
