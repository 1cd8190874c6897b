"""A store in memory with a clock that the test moves, and the acts that the tests of operate share."""

from random import Random
from typing import Any

import msgspec

from pitboss.client.client import Client
from pitboss.engines.memory import MemoryEngine
from pitboss.manager.happening_log import HappeningLog
from pitboss.model.duration import SECOND, Moment
from pitboss.model.facts import WorkerCrashed
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Failed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.snapshot import Snapshot
from pitboss.model.task import NewTask, TaskError
from pitboss.testing.clock import START, FakeClock

GREET = HandlerInfo(
    name="greet",
    schema='{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}',
)


class Bench(MemoryEngine):
    """The engine itself, with the clock as `time`."""

    def __init__(self, start: Moment = START) -> None:
        self.time = FakeClock(start)
        super().__init__(clock=self.time)
        self.new_id = IdMaker(self.time.now, Random(1).getrandbits)
        self.client = Client(self, self.time)
        self._happened = HappeningLog(self, clock=self.time, luck=Random(1).random, session=lambda: None)

    @property
    def now(self) -> int:
        return self.time.now()

    def new(self, handler: str = "greet", **options: Any) -> NewTask:
        return NewTask(id=self.new_id(), handler=handler, **options)

    async def add(self, *tasks: NewTask, handlers: tuple[HandlerInfo, ...] = (GREET,)) -> list[str]:
        await self.register(handlers)
        return [placed.id for placed in await self.put(tasks)]

    async def manager(self, snapshot: Snapshot | None = None, *, host: str = "box1", pid: int = 1, **info: Any) -> int:
        """A live manager; the number of its session."""
        about: dict[str, Any] = {"boot_id": host, "ttl": 3600 * SECOND, "handlers": ("greet",)} | info
        session = await self.open_session(SessionInfo(host=host, pid=pid, **about))
        if snapshot is not None:
            await self.renew(session.number, msgspec.json.encode(snapshot).decode())
        return session.number

    async def crash(self, worker: str = "default-1", why: str = "was killed by SIGKILL") -> None:
        """A worker crashes, and its manager writes that, with its own code: not what a test believes that it writes."""
        error = TaskError(category="crash", message=f"worker {worker} {why}", fingerprint="f")
        self._happened.heard(WorkerCrashed(pool=worker.rpartition("-")[0], worker=worker, pid=1, error=error))
        await self._happened.close(1)

    async def lose(self, number: int, *handlers: str) -> None:
        """Some pending tasks, or items of batches, are claimed and wait again, because their manager is gone."""
        session = await self.open_session(SessionInfo(host="elsewhere", pid=8, handlers=handlers))
        await self.claim(ClaimRequest(session=session.number, slots=(Slot(free=number),)))
        await self.end_session(session.number)
        await self.reclaim()

    async def run_all(self, *, fail: str | None = None, most: int = 10_000, retryable: bool = False) -> None:
        """Claim the pending tasks and end them: completed, or failed with this message."""
        session = await self.open_session(SessionInfo(host="elsewhere", pid=9, handlers=("greet",)))
        claimed = await self.claim(ClaimRequest(session=session.number, slots=(Slot(free=most),)))
        error = TaskError(
            category="error", type="OSError", message=fail or "", fingerprint="abcd1234", retryable=retryable
        )
        outcome = Completed('"hello"') if fail is None else Failed(error)
        await self.settle(
            [
                Settlement(id=claim.id, token=claim.token, transition=decide(claim, outcome, Policy(), self.now, 0.5))
                for claim in claimed.claims
            ]
        )
        await self.end_session(session.number)
