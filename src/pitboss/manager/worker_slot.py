"""One numbered slot of a pool, such as `download-1`: it always has a worker, and replaces or restarts it as needed."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from pitboss.engines.protocol import Clock
from pitboss.manager.announcer import Announcer
from pitboss.manager.reaper import Reaper
from pitboss.manager.session_router import SessionRouter
from pitboss.manager.strays import end_strays
from pitboss.manager.worker_process import WorkerProcess, crash_error
from pitboss.model import restart
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.pool import PoolSpec, spoken_size
from pitboss.model.snapshot import WorkerState
from pitboss.model.task import TaskError


class Services(NamedTuple):
    """What the workers of all pools of a manager share."""

    router: SessionRouter
    announcer: Announcer
    reaper: Reaper
    clock: Clock


class PoolOfSlots(Protocol):
    """The pool of a slot."""

    @property
    def alive(self) -> bool:
        """Whether any worker of the pool takes tasks now."""

    @property
    def rest(self) -> Callable[[], float] | None:
        """How many seconds a worker pauses after a task; None: it does not."""

    def report_down(self) -> None:
        """A worker of the pool is down for a while."""

    def hurry(self) -> None:
        """No worker of the pool is alive: start one that waits for its restart, if it has been ready before."""


class WorkerSlot:
    """Keeps one worker alive. A successor is ready before its predecessor ends, so tasks never wait for a start.

    `current` takes tasks; earlier workers of the slot may still be finishing theirs. `place` is its number among the
    workers of the pool here, from 0 on. `pool` is asked and told about the pool as a whole.
    """

    def __init__(
        self,
        services: Services,
        spec: PoolSpec,
        place: int,
        make: Callable[[str, PoolSpec], WorkerProcess],
        pool: PoolOfSlots,
    ) -> None:
        self._services, self.spec, self.place, self._make = services, spec, place, make
        self.name = f"{spec.name}-{place + 1}"
        self._pool = pool
        self._say, self._clock = services.announcer.say, services.clock
        self.current: WorkerProcess | None = None
        self.workers: list[WorkerProcess] = []
        self.state = WorkerState.STARTING
        self.why = ""
        self.crashes = 0
        self.last_crash = self.last_failure = ""
        self._record = restart.Record()
        self._wait: Span | None = 0
        # When the next worker starts here, while there is none.
        self.next_at: Moment | None = None
        self._was_ready = False
        self._lives: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._succession: asyncio.Task[bool] | None = None
        self._failures = 0
        self._not_before: Moment = 0
        self._vacant = asyncio.Event()
        self._again = asyncio.Event()
        self._leaving = False

    def open(self, after: float) -> None:
        """Start the first worker after this many seconds, and keep one running."""
        self._keeping = asyncio.create_task(self._keep(after))

    @property
    def empty(self) -> bool:
        return not self.workers

    @property
    def given_up(self) -> bool:
        return self.state is WorkerState.CRASHED

    @property
    def alive(self) -> bool:
        """Whether its worker takes tasks now."""
        worker = self.current
        return worker is not None and worker.ready.is_set() and not worker.gone.is_set() and not worker.draining

    def start_no_more(self) -> None:
        """The present worker is the last one here, however it ends."""
        self._leaving = True
        self._again.set()

    def leave(self) -> None:
        """Start no more workers here: the last one finishes its tasks and exits."""
        self.start_no_more()
        self.state = WorkerState.DRAINING if self.workers else WorkerState.STOPPED
        for worker in self.workers:
            self._send_away(worker)

    def revive(self) -> None:
        """If it was given up, or waits for a restart: forget its crashes and start a worker now."""
        if self.current is None and not self._leaving:
            self._record = restart.Record()
            self._again.set()

    def hurry(self) -> bool:
        """Start a worker now if one that had been ready waits here for its restart; whether it does."""
        waits = self.current is None and bool(self._wait) and self._was_ready and self.state is WorkerState.RESTARTING
        if waits:
            self._again.set()
        return waits

    def replace(self) -> "asyncio.Task[bool]":
        """Start a successor, and drain the present worker once that is ready. False if it does not become ready."""
        if self._succession is None or self._succession.done():
            self._succession = asyncio.create_task(self._succeed())
        return self._succession

    @property
    def replaceable(self) -> bool:
        """Whether a worn worker may be replaced now. After a successor that did not start there is a pause: code that
        cannot be loaded must not be tried at every health check."""
        succeeding = self._succession is not None and not self._succession.done()
        return not succeeding and self._clock.now() >= self._not_before

    async def end(self) -> None:
        """Kill everything here now."""
        self._leaving = True
        for worker in self.workers:
            worker.kill()
        tasks = [task for task in (self._keeping, self._succession) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._lives, return_exceptions=True)
        self.state = WorkerState.STOPPED

    async def vacated(self) -> None:
        """Returns when no worker is left here."""
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
        """Between two workers: as long as the restart rules say, or until `revive`."""
        if self._leaving or self.state is not WorkerState.RESTARTING:
            return
        if self._wait is None:
            self.state = WorkerState.CRASHED
            self._services.announcer.given_up(self.name, self.spec, self.why, self.crashes)
            self._pool.report_down()
            await self._again.wait()
        elif self._wait:
            self.next_at = self._clock.now() + self._wait
            if self._pool.alive:
                self._say(f"worker {self.name} starts again in {spoken(self._wait)}")
            self._pool.report_down()
            try:
                async with asyncio.timeout(self._wait / SECOND):
                    await self._again.wait()
            except TimeoutError:
                pass
            finally:
                self.next_at = None

    def _begin(self) -> WorkerProcess:
        worker = self._make(self.name, self.spec)
        self.workers.append(worker)
        life = asyncio.create_task(self._live(worker))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return worker

    async def _live(self, worker: WorkerProcess) -> None:
        started_at = self._clock.now()
        try:
            await worker.spawn()
        except OSError as error:
            self._not_started(worker, error, started_at)
            return
        group = worker.pid
        self._services.reaper.watch(group)
        try:
            # `_succeed` hires a successor: it waits for the same moment.
            if await worker.started() and worker is self.current and not worker.is_successor:
                self._hire(worker)
            code = await worker.ended()
            await self._end_strays(worker)
        finally:
            self._services.reaper.forget(group)
        self.workers.remove(worker)
        self._after_end(worker, code, started_at)

    def _not_started(self, worker: WorkerProcess, error: OSError, started_at: Moment) -> None:
        """The system refuses another process."""
        message = f"worker {worker.name} cannot be started: {error.strerror or error}"
        worker.kill_reason = TaskError(category="start", type="WorkerNotStarted", message=message, fingerprint="")
        worker.gone.set()
        self.workers.remove(worker)
        self._after_end(worker, None, started_at)

    def _hire(self, worker: WorkerProcess) -> None:
        """It is ready: it takes tasks, unless it was told to leave while it started."""
        if worker.draining:
            return
        self.state, self.why = WorkerState.IDLE, ""
        self._services.announcer.started(worker, self.spec)
        self._services.router.add_worker(worker, self.spec, self._pool.rest, self.place)
        if self.spec.soft is not None and worker.fresh > self.spec.soft:
            self._say(
                f"worker {self.name} uses {spoken_size(worker.fresh)} of memory before its first task, more than its"
                f" soft limit of {spoken_size(self.spec.soft)}, so it is not replaced for it."
                " Raise memory or memory_soft"
            )
        if self._leaving:
            self._send_away(worker)

    async def _end_strays(self, worker: WorkerProcess) -> None:
        strays = await asyncio.to_thread(end_strays, worker.mark)
        for stray in strays:
            command = stray.command or "no command"
            self._say(f"worker {worker.name} left process {stray.pid} behind ({command}); it was killed")

    def _after_end(self, worker: WorkerProcess, code: int | None, started_at: Moment) -> None:
        planned = worker.draining and code == 0 and worker.kill_reason is None
        error = None if planned else crash_error(worker, code)
        lost = self._services.router.remove_worker(worker, error)
        self._services.announcer.ended(worker, error, lost, others=self._pool.alive)
        if error is not None and not worker.blameless:
            self.crashes += 1
            self.last_crash = worker.broken.error if worker.broken else error.message.partition(" while it ran")[0]
        if worker is self.current:
            self.current = None
            self._plan_restart(worker, code, started_at, planned)
            self._vacant.set()
        elif self._leaving and not self.workers:
            self.state = WorkerState.STOPPED

    def _plan_restart(self, worker: WorkerProcess, code: int | None, started_at: Moment, planned: bool) -> None:
        """After the end of the current worker: start another at once, later, or not at all."""
        if self._leaving or planned or worker.blameless:
            self.state = WorkerState.STARTING
            return
        self.state, self.why, self._was_ready = WorkerState.RESTARTING, self.last_crash, worker.ready.is_set()
        # Here and not when the pause begins: a `revive` in between must count.
        self._again.clear()
        if worker.broken is not None:
            self._wait = None
            self.why = f"the app cannot be loaded: {worker.broken.error}"
            self._pool.hurry()
            return
        decision = restart.after_end(
            self._record,
            self.spec,
            started_at=started_at,
            now=self._clock.now(),
            clean=code == 0,
            critical=worker.kill_reason is not None,
            last=self._was_ready and not self._pool.alive,
        )
        self._record, self._wait = decision.record, decision.delay
        if decision.why:
            self.why = f"{decision.why}; the last time: {self.last_crash}"
        if decision.delay != 0:
            self._pool.hurry()

    async def _succeed(self) -> bool:
        old = self.current
        if old is None or self._leaving:
            return True
        successor = self._begin()
        successor.is_successor = True
        if not await successor.started():
            self.last_failure = successor.broken.error if successor.broken else self.last_crash
            self._say(f"the successor of worker {self.name} did not start: {self.last_failure}; the old one continues")
            self._failures += 1
            wait = restart.backoff(max(SECOND, self.spec.restart_delay), self._failures)
            self._not_before = self._clock.now() + wait
            return False
        self._failures = 0
        # The old worker may have died since, and another one may have been started.
        others, self.current = [old, self.current], successor
        self._hire(successor)
        self._again.set()
        for other in others:
            if other is not None and other in self.workers:
                self._send_away(other)
        return True

    def _send_away(self, worker: WorkerProcess) -> None:
        if not worker.draining:
            self._services.router.close_worker(worker)
            worker.drain()
