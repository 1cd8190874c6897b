"""One place of a pool, which is kept filled: a worker comes, lives, is replaced or dies, and another one follows."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from pitboss.manager.guard import Guard
from pitboss.manager.process import WorkerProcess, evidence
from pitboss.manager.signals import first
from pitboss.manager.strays import end_strays
from pitboss.model import restart
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.pool import PoolSpec, spoken_size
from pitboss.model.snapshot import WorkerState
from pitboss.model.task import TaskError
from pitboss.worker.frames import ToManager


class Board(Protocol):
    """Who is told when workers come and go: the manager."""

    def hired(self, worker: WorkerProcess, spec: PoolSpec) -> None: ...

    def leaving(self, worker: WorkerProcess) -> None: ...

    def lost(self, worker: WorkerProcess, error: TaskError | None) -> None: ...

    def given_up(self, name: str, spec: PoolSpec, why: str, crashes: int) -> None: ...

    def heard(self, worker: WorkerProcess, message: ToManager) -> None: ...

    def say(self, text: str) -> None: ...

    def now(self) -> Moment: ...


class Place:
    """Keeps one worker alive. A successor is ready before its predecessor ends, so that work never waits for a start.

    `current` takes tasks; those before it may still be ending theirs.
    """

    def __init__(
        self, board: Board, guard: Guard, spec: PoolSpec, name: str, make: Callable[[str, PoolSpec], WorkerProcess]
    ) -> None:
        self._board, self._guard, self.spec, self.name, self._make = board, guard, spec, name, make
        self.current: WorkerProcess | None = None
        self.workers: list[WorkerProcess] = []
        self.state = WorkerState.STARTING
        self.why = ""
        self.crashes = 0
        self.last_crash = self.last_failure = ""
        self._record = restart.Record()
        self._wait: Span | None = 0
        self._lives: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._succession: asyncio.Task[bool] | None = None
        self._failures = 0
        self._not_before: Moment = 0
        self._vacant = asyncio.Event()
        self._again = asyncio.Event()
        self._leaving = False

    def open(self, after: float) -> None:
        """Begin to fill it, after so many seconds."""
        self._keeping = asyncio.create_task(self._keep(after))

    @property
    def empty(self) -> bool:
        return not self.workers

    @property
    def given_up(self) -> bool:
        return self.state is WorkerState.CRASHED

    def leave(self) -> None:
        """No more workers here: the last one ends its tasks and then itself."""
        self._leaving = True
        self.state = WorkerState.DRAINING if self.workers else WorkerState.STOPPED
        self._again.set()
        for worker in self.workers:
            self._send_away(worker)

    def revive(self) -> None:
        """A place that was given up, or waits for its restart, is tried again now with a clean record."""
        if self.current is None and not self._leaving:
            self._record = restart.Record()
            self._again.set()

    def replace(self) -> "asyncio.Task[bool]":
        """Start a successor, and let the present worker go once that one is ready. False if it does not get ready."""
        if self._succession is None or self._succession.done():
            self._succession = asyncio.create_task(self._succeed())
        return self._succession

    @property
    def replaceable(self) -> bool:
        """Whether a worn worker may be replaced now. After a successor that did not start it has to go on for a while:
        code that cannot be loaded must not be tried at every look."""
        succeeding = self._succession is not None and not self._succession.done()
        return not succeeding and self._board.now() >= self._not_before

    async def end(self) -> None:
        """End everything here now."""
        self._leaving = True
        for worker in self.workers:
            worker.kill()
        tasks = [task for task in (self._keeping, self._succession) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._lives, return_exceptions=True)
        self.state = WorkerState.STOPPED

    async def vacated(self) -> None:
        """Returns when no worker is here any more."""
        while self._lives:
            await asyncio.wait(set(self._lives))

    async def _keep(self, after: float) -> None:
        await asyncio.sleep(after)
        while not self._leaving:
            if self.current is None:
                self.state, self.why = WorkerState.STARTING, ""
                self.current = self._begin()
            await self._vacant.wait()
            self._vacant.clear()
            await self._pause()
        self.state = WorkerState.DRAINING if self.workers else WorkerState.STOPPED

    async def _pause(self) -> None:
        """Between two workers: as long as the rules of restarting say, or until somebody wants it now."""
        if self._leaving or self.state is not WorkerState.RESTARTING:
            return
        if self._wait is None:
            self.state = WorkerState.CRASHED
            self._board.given_up(self.name, self.spec, self.why, self.crashes)
            await self._again.wait()
        elif self._wait:
            self._board.say(f"worker {self.name} is started again in {spoken(self._wait)}")
            try:
                async with asyncio.timeout(self._wait / SECOND):
                    await self._again.wait()
            except TimeoutError:
                pass

    def _begin(self) -> WorkerProcess:
        worker = self._make(self.name, self.spec)
        self.workers.append(worker)
        life = asyncio.create_task(self._live(worker))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return worker

    async def _live(self, worker: WorkerProcess) -> None:
        started_at = self._board.now()
        try:
            await worker.spawn()
        except OSError as error:
            self._stillborn(worker, error, started_at)
            return
        group = worker.pid
        self._guard.watch(group)
        try:
            await first(worker.ready, worker.gone)
            # A successor is hired by the succession, which waits for the same moment.
            if worker.ready.is_set() and worker is self.current and not worker.succeeds:
                self._hire(worker)
            code = await worker.ended()
            await self._clear_away(worker)
        finally:
            self._guard.forget(group)
        self.workers.remove(worker)
        self._bury(worker, code, started_at)

    def _stillborn(self, worker: WorkerProcess, error: OSError, started_at: Moment) -> None:
        """The system refuses another process."""
        message = f"worker {worker.name} cannot be started: {error.strerror or error}"
        worker.sentence = TaskError(category="start", type="WorkerNotStarted", message=message, fingerprint="")
        worker.gone.set()
        self.workers.remove(worker)
        self._bury(worker, None, started_at)

    def _hire(self, worker: WorkerProcess) -> None:
        self.state, self.why = WorkerState.IDLE, ""
        self._board.hired(worker, self.spec)
        if self.spec.soft is not None and worker.fresh > self.spec.soft:
            self._board.say(
                f"worker {self.name} uses {spoken_size(worker.fresh)} of memory before its first task, more than its"
                f" soft limit of {spoken_size(self.spec.soft)}: it is not replaced for it. Raise memory or memory_soft"
            )
        if self._leaving:
            self._send_away(worker)

    async def _clear_away(self, worker: WorkerProcess) -> None:
        strays = await asyncio.to_thread(end_strays, worker.mark)
        for stray in strays:
            self._board.say(
                f"worker {worker.name} left process {stray.pid} behind ({stray.command or 'no command'}); it was ended"
            )

    def _bury(self, worker: WorkerProcess, code: int | None, started_at: Moment) -> None:
        planned = worker.draining and code == 0 and worker.sentence is None
        error = None if planned else evidence(worker, code)
        self._board.lost(worker, error)
        if error is not None and not worker.spared:
            self.crashes += 1
            self.last_crash = worker.broken.error if worker.broken else error.message.partition(" while it ran")[0]
        if worker is self.current:
            self.current = None
            self._judge(worker, code, started_at, planned)
            self._vacant.set()
        elif self._leaving and not self.workers:
            self.state = WorkerState.STOPPED

    def _judge(self, worker: WorkerProcess, code: int | None, started_at: Moment, planned: bool) -> None:
        """What follows the end of the worker that held this place."""
        if self._leaving or planned or worker.spared:
            self.state = WorkerState.STARTING
            return
        self.state, self.why = WorkerState.RESTARTING, self.last_crash
        # Here and not when the pause begins: somebody may want it again in between.
        self._again.clear()
        if worker.broken is not None:
            self._wait = None
            self.why = f"the app cannot be loaded: {worker.broken.error}"
            return
        verdict = restart.after_end(
            self._record,
            self.spec,
            started_at=started_at,
            now=self._board.now(),
            clean=code == 0,
            critical=worker.sentence is not None,
        )
        self._record, self._wait = verdict.record, verdict.delay
        if verdict.why:
            self.why = f"{verdict.why}; the last time: {self.last_crash}"

    async def _succeed(self) -> bool:
        old = self.current
        if old is None or self._leaving:
            return True
        successor = self._begin()
        successor.succeeds = True
        await first(successor.ready, successor.gone)
        if not successor.ready.is_set():
            self.last_failure = successor.broken.error if successor.broken else self.last_crash
            told = f": {self.last_failure}"
            self._board.say(f"the successor of worker {self.name} did not start{told}; the present one goes on")
            self._failures += 1
            wait = restart.backoff(max(SECOND, self.spec.restart_delay), self._failures)
            self._not_before = self._board.now() + wait
            return False
        self._failures = 0
        # The old one may have died meanwhile, and another have been begun in its stead.
        others, self.current = [old, self.current], successor
        self._hire(successor)
        self._again.set()
        for other in others:
            if other is not None and other in self.workers:
                self._send_away(other)
        return True

    def _send_away(self, worker: WorkerProcess) -> None:
        if not worker.draining:
            self._board.leaving(worker)
            worker.drain()
