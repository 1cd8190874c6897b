"""The workers of one pool: as many as wanted, replaced when they die, let go when they are to stop."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from pitboss.manager.guard import Guard
from pitboss.manager.process import WorkerProcess, evidence
from pitboss.model.task import TaskError
from pitboss.worker.frames import HeartbeatMessage, ToManager
from pitboss.worker.main import Spec

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
QUIET_SECONDS = 10.0
_STUCK_GRACE_SECONDS = 1.0


class Board(Protocol):
    """Who is told when workers come and go: the manager."""

    def hired(self, worker: WorkerProcess) -> None: ...

    def leaving(self, worker: WorkerProcess) -> None: ...

    def lost(self, worker: WorkerProcess, error: TaskError | None) -> None: ...

    def heard(self, worker: WorkerProcess, message: ToManager) -> None: ...

    def say(self, text: str) -> None: ...


class Crew:
    """Keeps `count` places filled. Each place has its own restarts: one that crashes does not slow the others."""

    def __init__(self, board: Board, make_spec: Callable[[str], Spec], *, pool: str, count: int) -> None:
        self._board, self._make_spec, self._pool, self._count = board, make_spec, pool, count
        self.workers: dict[str, WorkerProcess] = {}
        self._places: list[asyncio.Task[None]] = []
        self._stopping = False
        self._guard = Guard()

    async def start(self) -> None:
        await self._guard.start()
        self._places = [
            asyncio.create_task(self._keep(f"{self._pool}-{number}")) for number in range(1, self._count + 1)
        ]

    def quiet(self) -> None:
        """Replace nobody from here on."""
        self._stopping = True

    def drain(self) -> None:
        """Let every worker end its tasks and then itself."""
        self.quiet()
        for worker in self.workers.values():
            self._board.leaving(worker)
            worker.drain()

    async def end(self, *, grace: float) -> None:
        """Everything is over: wait a moment for those that end by themselves, then end them."""
        self.quiet()
        try:
            async with asyncio.timeout(grace):
                await asyncio.gather(*(worker.gone.wait() for worker in self.workers.values()))
        except TimeoutError:
            pass
        self.kill()
        for place in self._places:
            place.cancel()
        await asyncio.gather(*self._places, return_exceptions=True)
        await asyncio.gather(*(worker.ended() for worker in self.workers.values()))
        await self._guard.stop()

    def kill(self) -> None:
        for worker in self.workers.values():
            worker.kill()

    async def _keep(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while not self._stopping:
            began = loop.time()
            planned = await self._employ(name)
            if self._stopping or planned:
                pause = FIRST_PAUSE
                continue
            pause = FIRST_PAUSE if loop.time() - began >= QUIET_SECONDS else min(pause * 2, LONGEST_PAUSE)
            self._board.say(f"worker {name} is started again in {pause:g} s")
            await asyncio.sleep(pause)

    async def _employ(self, name: str) -> bool:
        """One worker's life; True if its end was planned."""
        worker = WorkerProcess(self._make_spec(name), self._hear)
        await worker.spawn()
        group = worker.pid
        self._guard.watch(group)
        self.workers[name] = worker
        ready = asyncio.create_task(worker.ready.wait())
        gone = asyncio.create_task(worker.gone.wait())
        await asyncio.wait({ready, gone}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            self._board.hired(worker)
        ready.cancel()
        await gone
        planned = await self._bury(worker)
        self._guard.forget(group)
        return planned

    async def _bury(self, worker: WorkerProcess) -> bool:
        code = await worker.ended()
        self.workers.pop(worker.name, None)
        planned = worker.draining and code == 0
        self._board.lost(worker, None if planned else evidence(worker, code))
        return planned

    def _hear(self, worker: WorkerProcess, message: ToManager) -> None:
        if isinstance(message, HeartbeatMessage) and message.stuck and not worker.draining:
            self._board.say(f"worker {worker.name} has {message.stuck} thread(s) that do not return; it is replaced")
            self._board.leaving(worker)
            worker.drain()
        self._board.heard(worker, message)
