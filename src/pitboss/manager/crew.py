"""The workers of one pool: as many places as wanted, each kept filled, replaced one by one when they are to be new."""

import asyncio
from collections.abc import Callable

from pitboss.manager.guard import Guard
from pitboss.manager.place import Board, Place
from pitboss.manager.process import WorkerProcess
from pitboss.manager.signals import first
from pitboss.model.duration import SECOND
from pitboss.model.outcome import Released
from pitboss.model.pool import PoolSpec
from pitboss.model.snapshot import WorkerState
from pitboss.worker.frames import HeartbeatMessage, ToManager

Edition = tuple[int, int]
Make = Callable[[str, PoolSpec, Edition, Callable[[WorkerProcess, ToManager], None]], WorkerProcess]


class Crew:
    """Keeps `size` places filled. Each has its own restarts: one that crashes does not slow the others.

    `edition` is the generation that operators asked for, and how often the pool's settings have changed since: workers
    of an older one are replaced.
    """

    def __init__(self, board: Board, guard: Guard, spec: PoolSpec, make: Make, luck: Callable[[], float]) -> None:
        self._board, self._guard, self.spec, self._make, self._luck = board, guard, spec, make, luck
        self.places: dict[int, Place] = {}
        self._leaving: list[Place] = []
        self.edition: Edition = (0, 0)
        self.paused = False
        self.trouble = ""
        self._rolling: asyncio.Task[bool] | None = None
        self._stopping = False

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def workers(self) -> list[WorkerProcess]:
        """Every process of this pool, also those that are on their way out."""
        return [worker for place in self.every_place() for worker in place.workers]

    def every_place(self) -> list[Place]:
        return [*self.places.values(), *self._leaving]

    def resize(self, size: int) -> None:
        """Open or close places; the highest numbers go first."""
        self._leaving = [place for place in self._leaving if not place.empty]
        if self._stopping:
            return
        after = 0.0
        for number in range(1, size + 1):
            if number not in self.places:
                self._open(number, after)
                after += self._between(self.spec.stagger)
        for number in sorted(self.places, reverse=True):
            if number > size:
                place = self.places.pop(number)
                place.leave()
                self._leaving.append(place)

    def renew(self, edition: Edition, drain_seconds: float) -> None:
        """Replace every worker that is of an older edition, one after the other."""
        if edition > self.edition:
            self.edition, self.trouble = edition, ""
            if self._rolling is None or self._rolling.done():
                self._rolling = asyncio.create_task(self._roll(drain_seconds))

    def change(self, spec: PoolSpec, drain_seconds: float) -> None:
        """From now on so; every worker is replaced by one that knows the new settings and the new code."""
        self.spec = spec
        for place in self.places.values():
            place.spec = spec
        self.renew((self.edition[0], self.edition[1] + 1), drain_seconds)

    def quiet(self) -> None:
        """Replace nobody from here on."""
        self._stopping = True
        if self._rolling is not None:
            self._rolling.cancel()

    def drain(self) -> None:
        """Let every worker end its tasks and then itself."""
        self.quiet()
        for place in self.places.values():
            place.leave()

    def kill(self) -> None:
        """End every worker now; their tasks are not to blame."""
        for worker in self.workers:
            worker.kill(fate=Released(started=True))

    async def end(self, grace: float) -> None:
        """Everything is over: wait a moment for those that end by themselves, then end them."""
        self.quiet()
        try:
            async with asyncio.timeout(grace):
                await asyncio.gather(*(place.vacated() for place in self.every_place()))
        except TimeoutError:
            pass
        await asyncio.gather(*(place.end() for place in self.every_place()))

    def rest(self) -> float:
        """How long a worker pauses after a task, in seconds."""
        return self._between(self.spec.delay)

    def _open(self, number: int, after: float) -> None:
        place = Place(self._board, self._guard, self.spec, f"{self.spec.name}-{number}", self._hire)
        self.places[number] = place
        place.open(after)

    def _hire(self, name: str, spec: PoolSpec) -> WorkerProcess:
        return self._make(name, spec, self.edition, self._hear)

    def _between(self, bounds: tuple[int, int]) -> float:
        low, high = bounds
        return (low + (high - low) * self._luck()) / SECOND

    async def rolled(self) -> bool:
        """Whether every worker is of the present edition, once that was tried."""
        return self._rolling is None or await self._rolling

    async def _roll(self, drain_seconds: float) -> bool:
        while old := self._oldest():
            place, worker = old
            await first(worker.ready, worker.gone)
            if worker.ready.is_set() and not await place.replace():
                self.trouble = f"new workers do not start, the present ones go on: {place.last_failure}"
                self._board.say(f"pool {self.spec.name}: {self.trouble}")
                return False
            await self._gone(place, worker, drain_seconds)
        return True

    def _oldest(self) -> tuple[Place, WorkerProcess] | None:
        for place in self.places.values():
            worker = place.current
            if place.given_up or place.state is WorkerState.RESTARTING:
                place.revive()
            elif worker is not None and worker.edition < self.edition and not worker.gone.is_set():
                return place, worker
        return None

    async def _gone(self, place: Place, worker: WorkerProcess, drain_seconds: float) -> None:
        """A replaced worker has the same time to end its tasks as at a stop; then they go back, at no cost to them."""
        try:
            async with asyncio.timeout(drain_seconds):
                await worker.gone.wait()
        except TimeoutError:
            count = len(worker.claims)
            self._board.say(
                f"{count} task(s) of worker {place.name} did not end in time and go back; no attempt is spent"
            )
            worker.kill(fate=Released(started=True))
            await worker.gone.wait()

    def _hear(self, worker: WorkerProcess, message: ToManager) -> None:
        if isinstance(message, HeartbeatMessage) and message.stuck and not worker.draining:
            self._replace_stuck(worker, message.stuck)
        self._board.heard(worker, message)

    def _replace_stuck(self, worker: WorkerProcess, stuck: int) -> None:
        for place in self.places.values():
            if place.current is worker and place.replaceable and not self._stopping:
                self._board.say(f"worker {worker.name} has {stuck} task(s) that do not return; it is replaced")
                place.replace()
