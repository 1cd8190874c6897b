"""The manager: one session in the store, one crew of workers, and what goes on between them."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from pitboss.dispatch.dispatcher import Dispatcher, Noted
from pitboss.engines.protocol import Clock, Control, Engine, Handlers, Ledger, Sessions
from pitboss.manager import host
from pitboss.manager.answers import answer
from pitboss.manager.crew import Crew
from pitboss.manager.process import WorkerProcess
from pitboss.model.duration import Span
from pitboss.model.errors import StoreUnavailable
from pitboss.model.outcome import Outcome
from pitboss.model.policy import Policy
from pitboss.model.retention import Retention
from pitboss.model.session import DEFAULT_TTL
from pitboss.model.snapshot import Snapshot, WorkerFigures
from pitboss.model.task import Claim, TaskError
from pitboss.upkeep.sweep import reclaim, sweep_forever
from pitboss.worker.describe import Description
from pitboss.worker.frames import AskMessage, ErrorMessage, ProgressMessage, ResultMessage, ToManager
from pitboss.worker.main import Spec

_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_GRACE_SECONDS = 2.0


class Store(Engine, Sessions, Ledger, Control, Handlers, Protocol):
    """What a manager needs of an engine."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a manager runs one app."""

    target: str
    workers: int
    concurrency: int = 16
    queues: tuple[str, ...] | None = None
    drain_seconds: float = 30.0
    ttl: Span = DEFAULT_TTL
    retention: Retention = Retention()


class Manager:
    """Runs an app's tasks until it is asked to stop. `tell` hears, in plain words, what a person would want to know."""

    def __init__(
        self,
        engine: Store,
        plan: Plan,
        description: Description,
        *,
        make_engine: Callable[[], Engine] | None,
        clock: Clock,
        luck: Callable[[], float],
        tell: Callable[[str], None],
        noted: Noted | None = None,
    ) -> None:
        self._engine, self._plan, self._description = engine, plan, description
        self._make_engine, self._clock, self._luck, self.say = make_engine, clock, luck, tell
        self._noted = noted
        self._policies = {
            handler.name: msgspec.json.decode(handler.policy, type=Policy) for handler in description.handlers
        }
        self._crew = Crew(self, self._spec, pool="default", count=plan.workers)
        self._asks: set[asyncio.Task[None]] = set()
        self._dispatcher: Dispatcher | None = None
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._lost = asyncio.Event()
        self.started = asyncio.Event()
        self.finished_tasks = 0
        self.stale = 0

    async def run(self) -> None:
        """Serve until stopped."""
        await self._engine.register(self._description.handlers)
        await self._take_over()
        sweeping = asyncio.create_task(sweep_forever(self._engine, self._plan.retention, self._clock))
        await self._crew.start()
        try:
            pause = _PAUSE
            while not self._stop.is_set():
                began = self._clock.now()
                await self._serve()
                # A store that ends sessions as soon as they are opened must not be flooded with new ones.
                pause = _PAUSE if self._clock.now() - began >= self._plan.ttl else min(pause * 2, _LONGEST_PAUSE)
                await _first(self._stop, within=pause)
        finally:
            sweeping.cancel()
            await self._crew.end(grace=0 if self._stop_now.is_set() else _GRACE_SECONDS)
            await asyncio.gather(sweeping, return_exceptions=True)

    def stop(self) -> None:
        """First: drain and end. Again: end now."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def running(self) -> list[Claim]:
        return self._dispatcher.running() if self._dispatcher else []

    # What the crew tells.

    def hired(self, worker: WorkerProcess) -> None:
        self.say(f"worker {worker.name} is ready (pid {worker.pid})")
        if self._dispatcher is not None:
            self._dispatcher.add_lane(worker, queues=self._plan.queues)

    def leaving(self, worker: WorkerProcess) -> None:
        if self._dispatcher is not None:
            self._dispatcher.close_lane(worker.name)

    def lost(self, worker: WorkerProcess, error: TaskError | None) -> None:
        lost = self._dispatcher.remove_lane(worker.name, error) if self._dispatcher is not None else []
        if error is not None:
            back = f"; {len(lost)} task(s) go to other workers" if lost else ""
            self.say(f"{error.message.partition(' while ')[0]}{back}")

    def heard(self, worker: WorkerProcess, message: ToManager) -> None:
        match message:
            case ResultMessage(task, number, ran, outcome) | ErrorMessage(task, number, ran, outcome):
                claim = worker.claims.pop((task, number), None)
                if claim is not None:
                    self._finished(worker, claim, outcome, ran)
            case ProgressMessage(task, number, percent, note):
                claim = worker.claims.get((task, number))
                if claim is not None and self._dispatcher is not None:
                    self._dispatcher.progress(claim, percent, note)
            case AskMessage():
                work = asyncio.create_task(self._answer(worker, message))
                self._asks.add(work)
                work.add_done_callback(self._asks.discard)

    def _finished(self, worker: WorkerProcess, claim: Claim, outcome: Outcome, ran: Span) -> None:
        self.finished_tasks += 1
        if self._dispatcher is not None:
            self._dispatcher.finish(claim, outcome, worker=worker.name, ran=ran)

    async def _answer(self, worker: WorkerProcess, ask: AskMessage) -> None:
        worker.say(await answer(self._engine, ask))

    async def _serve(self) -> None:
        """One session, from its opening to a stop or its loss."""
        self._lost.clear()
        info = host.identity(tuple(self._policies), self._plan.ttl)
        self._dispatcher = dispatcher = Dispatcher(
            self._engine,
            info,
            clock=self._clock,
            luck=self._luck,
            policies=self._policy,
            make_keeper=self._make_engine,
            on_lost=self._lost.set,
            snapshot=self._snapshot,
        )
        dispatcher.noted = self._noted
        try:
            await dispatcher.start()
        except StoreUnavailable as error:
            self.say(f"the store does not answer: {error.what}; trying again")
            self._dispatcher = None
            return
        for worker in self._crew.workers.values():
            if worker.ready.is_set() and not worker.draining:
                dispatcher.add_lane(worker, queues=self._plan.queues)
        self.started.set()
        await _first(self._stop, self._lost)
        if self._lost.is_set():
            self._abandon()
        else:
            await self._drain(dispatcher)
        await dispatcher.stop()

    def _abandon(self) -> None:
        """The session is over and others may have its tasks: what runs here must end, and a new session begins."""
        fault = self._dispatcher.fault if self._dispatcher is not None else None
        cause = f" by a fault of Pitboss itself ({type(fault).__name__}: {fault})" if fault is not None else ""
        self.say(f"the session was lost{cause}; its workers are ended, and a new session begins")
        self._dispatcher = None
        self._crew.kill()

    async def _drain(self, dispatcher: Dispatcher) -> None:
        self._crew.quiet()
        draining = asyncio.create_task(dispatcher.drain(self._plan.drain_seconds))
        hurry = asyncio.create_task(self._stop_now.wait())
        if dispatcher.running():
            self.say(_waiting_for(dispatcher.running(), self._plan.drain_seconds))
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        left = dispatcher.running()
        for task in (draining, hurry):
            task.cancel()
        await asyncio.gather(draining, hurry, return_exceptions=True)
        if left:
            self.say(f"{len(left)} task(s) did not end in time and go back to the queue; no attempt is spent")
            self._crew.kill()
        else:
            await dispatcher.flushed()
            self._crew.drain()

    async def _take_over(self) -> None:
        """End the sessions of managers that died on this host, so that their tasks need not wait for the expiry."""
        for session in await self._engine.sessions():
            if not session.ended and host.is_dead(session):
                await self._engine.end_session(session.number)
                self.say(f"manager with pid {session.info.pid} on this host is gone; its tasks are taken over")
        await reclaim(self._engine)

    def _snapshot(self) -> str:
        # The keeper asks from its own thread: each of these copies is one step that no other thread can divide.
        workers = tuple(
            WorkerFigures(name=worker.name, pid=worker.pid, running=len(worker.claims), rss=worker.rss)
            for worker in list(self._crew.workers.values())
            if worker.ready.is_set()
        )
        plan = self._plan
        figures = Snapshot(target=plan.target, queues=plan.queues, concurrency=plan.concurrency, workers=workers)
        return msgspec.json.encode(figures).decode()

    def _policy(self, handler: str) -> Policy:
        return self._policies.get(handler) or Policy()

    def _spec(self, name: str) -> Spec:
        return Spec(
            name=name, target=self._plan.target, concurrency=self._plan.concurrency, manager=host.identity((), 0).pid
        )


def _waiting_for(claims: list[Claim], seconds: float) -> str:
    names: dict[str, int] = {}
    for claim in claims:
        names[claim.handler] = names.get(claim.handler, 0) + 1
    listed = ", ".join(f"{count} × {name}" for name, count in sorted(names.items()))
    return f"waiting up to {seconds:g} s for {len(claims)} running task(s): {listed}. Once more stops at once."


async def _first(*events: asyncio.Event, within: float | None = None) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
