"""The workers of one pool: as many slots as wanted, and rolling restarts, one worker after the other."""

import asyncio
from collections.abc import Callable

import msgspec

from pitboss.manager.worker_process import Edition, WorkerProcess
from pitboss.manager.worker_slot import Services, WorkerSlot
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.outcome import Released
from pitboss.model.pool import PoolSpec, Range
from pitboss.model.snapshot import WorkerState

_TENTH = SECOND // 10
Make = Callable[[str, PoolSpec, Edition], WorkerProcess]


class WorkerPool:
    """Keeps `size` slots filled. Each restarts by itself: a crash in one does not slow down the others.

    `edition` is the generation that operators asked for, and how often the pool's settings have changed since. Workers
    of an older edition are replaced.
    """

    def __init__(self, services: Services, spec: PoolSpec, make: Make, luck: Callable[[], float]) -> None:
        self._services, self.spec, self._make, self._luck = services, spec, make, luck
        self.slots: dict[int, WorkerSlot] = {}
        self._leaving: list[WorkerSlot] = []
        self.edition: Edition = (0, 0)
        self.paused = False
        self.trouble = ""
        self._told_next: Moment | None = None
        self._rolling: asyncio.Task[bool] | None = None
        self._stopping = False

    @property
    def size(self) -> int:
        return len(self.slots)

    @property
    def places(self) -> list[int]:
        """The places that have a worker, or get one again."""
        return [slot.place for slot in self.slots.values() if not slot.given_up]

    @property
    def workers(self) -> list[WorkerProcess]:
        """Every process of this pool, including those that are draining."""
        return [worker for slot in self.every_slot() for worker in slot.workers]

    @property
    def alive(self) -> bool:
        """Whether any worker takes tasks now."""
        return any(slot.alive for slot in self.slots.values())

    @property
    def rest(self) -> Callable[[], float] | None:
        """How many seconds a worker pauses after a task; None: it does not."""
        return (lambda: self._between(self.spec.delay)) if self.spec.delay[1] else None

    def set_delay(self, delay: Range) -> None:
        """From now on the workers pause that long after each task."""
        self.spec = msgspec.structs.replace(self.spec, delay=delay)
        for slot in self.slots.values():
            slot.spec = self.spec
        self._services.router.set_rest(self.spec.name, self.rest)

    def report_down(self) -> None:
        """Say that no worker is alive, and when the next one starts; once for each such moment."""
        if self.alive or self._stopping:
            return
        slots = self.slots.values()
        starting = any(slot.current is not None for slot in slots)
        following = min((slot.next_at for slot in slots if slot.next_at is not None), default=None)
        if starting or (following is not None and following == self._told_next):
            return
        self._told_next = following
        again = "none will be started"
        if following is not None:
            left = max(0, following - self._services.clock.now())
            again = f"next in {spoken(left + -left % _TENTH)}"
        self._services.announcer.warn(f"pool {self.spec.name} has no live worker; {again}")

    def hurry(self) -> None:
        """If no worker is alive or starting, start one that has been ready before, whatever its restart delay."""
        if not any(slot.current is not None for slot in self.slots.values()):
            any(slot.hurry() for slot in self.slots.values())

    def every_slot(self) -> list[WorkerSlot]:
        return [*self.slots.values(), *self._leaving]

    def shown_slots(self) -> list[WorkerSlot]:
        """Without the slots that were removed and have no process left."""
        return [*self.slots.values(), *(slot for slot in self._leaving if not slot.empty)]

    def resize(self, size: int) -> None:
        """Add or remove slots; the highest numbers go first."""
        self._leaving = [slot for slot in self._leaving if not slot.empty]
        if self._stopping:
            return
        after, wanted = 0.0, self.spec.places(size)
        for place in wanted:
            if place + 1 not in self.slots:
                self._open(place + 1, after)
                after += self._between(self.spec.stagger)
        for number in sorted(self.slots, reverse=True):
            if number - 1 not in wanted:
                slot = self.slots.pop(number)
                slot.leave()
                self._leaving.append(slot)

    def renew(self, edition: Edition, drain_seconds: float) -> None:
        """Replace every worker of an older edition, one after the other."""
        if edition > self.edition:
            self.edition, self.trouble = edition, ""
            if self._rolling is None or self._rolling.done():
                self._rolling = asyncio.create_task(self._roll(drain_seconds))

    def change(self, spec: PoolSpec, drain_seconds: float) -> None:
        """Replace every worker by one with the new settings and the new code."""
        self.spec = spec
        for slot in self.slots.values():
            slot.spec = spec
        self.renew((self.edition[0], self.edition[1] + 1), drain_seconds)

    def quiet(self) -> None:
        """Stop replacing workers, and start none."""
        self._stopping = True
        for slot in self.slots.values():
            slot.start_no_more()
        if self._rolling is not None:
            self._rolling.cancel()

    def drain(self) -> None:
        """Let every worker finish its tasks and exit."""
        self.quiet()
        for slot in self.slots.values():
            slot.leave()

    def kill(self) -> None:
        """Kill every worker now; their tasks are not blamed."""
        for worker in self.workers:
            worker.kill_for(task_outcome=Released(started=True))

    async def end(self, grace: float) -> None:
        """Wait `grace` seconds for workers that exit by themselves, then kill the rest."""
        self.quiet()
        try:
            async with asyncio.timeout(grace):
                await asyncio.gather(*(slot.vacated() for slot in self.every_slot()))
        except TimeoutError:
            pass
        await asyncio.gather(*(slot.end() for slot in self.every_slot()))

    async def rolled(self) -> bool:
        """Wait for the rolling restart; whether every worker is of the present edition."""
        return self._rolling is None or await self._rolling

    def _open(self, number: int, after: float) -> None:
        slot = WorkerSlot(self._services, self.spec, number - 1, self._new_worker, self)
        self.slots[number] = slot
        slot.open(after)

    def _new_worker(self, name: str, spec: PoolSpec) -> WorkerProcess:
        worker = self._make(name, spec, self.edition)
        worker.on_stuck = self._replace_stuck
        return worker

    def _between(self, bounds: tuple[int, int]) -> float:
        low, high = bounds
        return (low + (high - low) * self._luck()) / SECOND

    async def _roll(self, drain_seconds: float) -> bool:
        while old := self._oldest():
            slot, worker = old
            if await worker.started() and not await slot.replace():
                self.trouble = f"new workers do not start, the old ones continue: {slot.last_failure}"
                self._services.announcer.say(f"pool {self.spec.name}: {self.trouble}")
                return False
            await self._gone(slot, worker, drain_seconds)
        return True

    def _oldest(self) -> tuple[WorkerSlot, WorkerProcess] | None:
        for slot in self.slots.values():
            worker = slot.current
            if slot.given_up or slot.state is WorkerState.RESTARTING:
                slot.revive()
            elif worker is not None and worker.edition < self.edition and not worker.gone.is_set():
                return slot, worker
        return None

    async def _gone(self, slot: WorkerSlot, worker: WorkerProcess, drain_seconds: float) -> None:
        """A replaced worker has as much time for its tasks as at a stop; then they go back at no cost."""
        try:
            async with asyncio.timeout(drain_seconds):
                await worker.gone.wait()
        except TimeoutError:
            count = len(worker.claims)
            self._services.announcer.say(
                f"{count} task(s) of worker {slot.name} did not end in time and go back to the queue; this costs no"
                " attempt"
            )
            worker.kill_for(task_outcome=Released(started=True))
            await worker.gone.wait()

    def _replace_stuck(self, worker: WorkerProcess, stuck: int) -> None:
        for slot in self.slots.values():
            if slot.current is worker and slot.replaceable and not self._stopping:
                self._services.announcer.say(
                    f"worker {worker.name} has {stuck} task(s) that do not return; it is replaced"
                )
                slot.replace()
