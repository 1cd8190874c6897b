"""Connects workers with sessions: every outcome is settled by the session that claimed the task."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.protocol import Store
from pitboss.manager.answers import answer
from pitboss.manager.stacks import Stacks
from pitboss.manager.worker_process import WorkerProcess
from pitboss.model.duration import Span
from pitboss.model.outcome import Crashed, Outcome, TimedOut
from pitboss.model.pool import PoolSpec
from pitboss.model.resource import Report, UseEnd
from pitboss.model.task import Claim, TaskError
from pitboss.worker.channel import AskMessage, ErrorMessage, ProgressMessage, ResultMessage, StackOfMessage, ToManager


class SessionRouter:
    """Knows the dispatcher of the present session, and those of earlier sessions whose last tasks still run."""

    stacks: Stacks

    def __init__(self, store: Store) -> None:
        self._store = store
        self.present: Dispatcher | None = None
        self._earlier: dict[int, Dispatcher] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._asks: set[asyncio.Task[None]] = set()
        self.finished = 0

    @property
    def session(self) -> int | None:
        """The number of the present session."""
        present = self.present
        return present.session.number if present is not None and present.session is not None else None

    def begin(self, dispatcher: Dispatcher) -> None:
        """Its session is the present one."""
        self.present = dispatcher
        dispatcher.claimer.earlier = lambda: [
            group for one in self._all() if one is not dispatcher for group in one.claimer.groups
        ]

    def running(self) -> list[Claim]:
        return [claim for dispatcher in self._all() for claim in dispatcher.running()]

    def started(self) -> list[Claim]:
        """What surely runs, without the tasks that wait in a worker for a free slot."""
        return [claim for dispatcher in self._all() for claim in dispatcher.started()]

    def room(self, pool: str) -> int:
        """How many more tasks this pool's workers could start now."""
        return self.present.room(pool) if self.present is not None else 0

    def room_of(self, worker_id: str) -> int:
        """How many more tasks this worker could start now."""
        return self.present.room_of(worker_id) if self.present is not None else 0

    def add_worker(self, worker: WorkerProcess, spec: PoolSpec, rest: Callable[[], float] | None, place: int) -> None:
        """The worker takes tasks from now on. `rest` says how many seconds it pauses after each."""
        if self.present is not None:
            self.present.add_worker(worker, pool=spec.name, queues=spec.queues, rest=rest, place=place)

    def set_rest(self, pool: str, rest: Callable[[], float] | None) -> None:
        """How many seconds the workers of a pool pause after each task from now on."""
        if self.present is not None:
            self.present.set_rest(pool, rest)

    def set_places(self, places: Mapping[str, Sequence[int]]) -> None:
        """Which places the pools have; one that is left out has none any more."""
        if self.present is not None:
            self.present.set_places(places)

    def slot_number(self, pool: str, place: int) -> int | None:
        """The number of a worker's slot over all hosts; None if its pool serves no queue with partitions."""
        return self.present.claimer.slot_numbers.number(pool, place) if self.present is not None else None

    def close_worker(self, worker: WorkerProcess) -> None:
        """The worker gets no more tasks."""
        for dispatcher in self._all():
            dispatcher.close_worker(worker.id)

    def remove_worker(self, worker: WorkerProcess, error: TaskError | None) -> list[Claim]:
        """The worker is gone; returns the tasks that were lost with it."""
        alone = min(len(worker.claims), worker.capacity) == 1
        outcome = worker.task_outcome or Crashed(alone=alone, error=error)
        return [claim for dispatcher in self._all() for claim in dispatcher.remove_worker(worker.id, outcome)]

    def set_paused(self, pool: str, paused: bool) -> None:
        if self.present is not None:
            self.present.set_paused(pool, paused)

    def hear(self, worker: WorkerProcess, message: ToManager) -> None:
        match message:
            case ResultMessage(task, number, ran, outcome, report, use_end):
                claim = worker.ended_task((task, number), well=True, ran=ran)
                if claim is not None:
                    self._finish(worker, claim, outcome, ran, report, use_end)
            case ErrorMessage(task, number, ran, outcome, report, use_end):
                claim = worker.ended_task((task, number), well=False, ran=ran)
                if claim is not None:
                    self._finish(worker, claim, outcome, ran, report, use_end)
            case ProgressMessage(task, number, percent, note):
                claim = worker.claims.get((task, number))
                dispatcher = self._of(claim) if claim is not None else None
                if claim is not None and dispatcher is not None:
                    dispatcher.progress(claim, percent, note)
            case StackOfMessage():
                self.stacks.hear(message)
            case AskMessage():
                work = asyncio.create_task(self._answer(worker, message))
                self._asks.add(work)
                work.add_done_callback(self._asks.discard)

    def time_out(self, worker: WorkerProcess, claim: Claim, error: TaskError) -> None:
        """Settle a task that its blocked worker can no longer end."""
        if worker.ended_task((claim.id, claim.token.claim), well=False, ran=0) is not None:
            self._finish(worker, claim, TimedOut(error), 0)

    def retire(self, dispatcher: Dispatcher) -> None:
        """A new session takes over. Tasks of this one end under it, and then it ends."""
        assert dispatcher.session is not None
        number = dispatcher.session.number
        self._earlier[number] = dispatcher
        work = asyncio.create_task(self._retired(dispatcher, number))
        self._retiring.add(work)
        work.add_done_callback(self._retiring.discard)

    async def drain(self, dispatcher: Dispatcher, seconds: float) -> None:
        """Wait for the tasks that run, under this session and earlier ones."""
        await asyncio.gather(*(one.drain(seconds) for one in {dispatcher, *self._earlier.values()}))

    async def end(self) -> None:
        """End the earlier sessions now; their running tasks go back."""
        for work in list(self._retiring):
            work.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for dispatcher in list(self._earlier.values()):
            await dispatcher.stop()
        self._earlier.clear()

    def forget(self, dispatcher: Dispatcher) -> None:
        """Its session is lost: the store would refuse the outcomes of its tasks."""
        if self.present is dispatcher:
            self.present = None
        self._earlier = {number: one for number, one in self._earlier.items() if one is not dispatcher}

    def _finish(
        self,
        worker: WorkerProcess,
        claim: Claim,
        outcome: Outcome,
        ran: Span,
        report: Report | None = None,
        use_end: UseEnd | None = None,
    ) -> None:
        self.finished += 1
        dispatcher = self._of(claim)
        if dispatcher is None:
            return
        dispatcher.finish(
            claim, outcome, worker=worker.name, worker_id=worker.id, ran=ran, report=report, use_end=use_end
        )
        if self.present is not None and dispatcher is not self.present:
            # A worker of the present session may have waited for this one to end.
            self.present.claimer.wake.set()

    async def _retired(self, dispatcher: Dispatcher, number: int) -> None:
        dispatcher.quiet()
        while dispatcher.running():
            await dispatcher.drain(3600)
        await dispatcher.stop()
        self._earlier.pop(number, None)

    def _of(self, claim: Claim) -> Dispatcher | None:
        present = self.present
        if present is not None and present.session is not None and present.session.number == claim.token.session:
            return present
        return self._earlier.get(claim.token.session)

    def _all(self) -> list[Dispatcher]:
        return [*([self.present] if self.present is not None else []), *self._earlier.values()]

    async def _answer(self, worker: WorkerProcess, ask: AskMessage) -> None:
        worker.say(await answer(self._store, ask, f"worker {worker.name}"))
