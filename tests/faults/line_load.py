"""One process of many on one SQLite file, as busy as it can be. Run as a program; prints what it got as JSON.

An enqueuer puts one task after the other. A manager claims twenty and settles them, over and over, and sweeps.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

import msgspec

from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Transition
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.wiring import SystemClock

HANDLER = "job"
DONE = Transition(state=State.COMPLETED, outcome="completed", result="null", charged=True)
_CLAIMED = 20
T = TypeVar("T")


class Turns(msgspec.Struct):
    """What one process got: its calls, how long each took (seconds, sorted), the tasks it moved, its errors."""

    kind: str
    acts: int
    tasks: int
    waits: list[float]
    errors: list[str]

    def wait(self, share: float) -> float:
        return self.waits[min(len(self.waits) - 1, int(len(self.waits) * share))] if self.waits else 0.0


class Busy:
    def __init__(self, engine: SqliteEngine, kind: str) -> None:
        self._engine, self._ids = engine, IdMaker(SystemClock().now, SystemRandom().getrandbits)
        self.turns = Turns(kind, 0, 0, [], [])

    async def run(self, seconds: float) -> None:
        work = self._enqueue if self.turns.kind == "enqueuer" else await self._manager()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                await work()
            except Exception as error:
                self.turns.errors.append(f"{type(error).__name__}: {error}")
        self.turns.waits.sort()

    async def _enqueue(self) -> None:
        await self._timed(self._engine.put([NewTask(id=self._ids(), handler=HANDLER)]))
        self.turns.tasks += 1

    async def _manager(self) -> Callable[[], Awaitable[None]]:
        session = await self._engine.open_session(SessionInfo(host="here", handlers=(HANDLER,), ttl=600_000_000))
        request = ClaimRequest(session=session.number, slots=(Slot(free=_CLAIMED),))

        async def turn() -> None:
            claims = (await self._timed(self._engine.claim(request))).claims
            await self._timed(
                self._engine.settle([Settlement(id=one.id, token=one.token, transition=DONE) for one in claims])
            )
            self.turns.tasks += len(claims)

        return turn

    async def _timed(self, call: Awaitable[T]) -> T:
        begun = time.monotonic()
        answer = await call
        self.turns.waits.append(time.monotonic() - begun)
        self.turns.acts += 1
        return answer


async def main(path: Path, kind: str, seconds: float) -> None:
    engine = SqliteEngine(path, clock=SystemClock())
    await engine.open()
    try:
        await engine.register([HandlerInfo(name=HANDLER)])
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        busy = Busy(engine, kind)
        await busy.run(seconds)
        sys.stdout.write(msgspec.json.encode(busy.turns).decode() + "\n")
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
