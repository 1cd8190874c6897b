"""The manager: one session in the store, the pools of one host, and what goes on between them."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

import msgspec

from pitboss.dispatch.dispatcher import Dispatcher, Noted
from pitboss.engines.capabilities import check_needs, resources_of
from pitboss.engines.protocol import Clock, Engine, Store
from pitboss.manager import host
from pitboss.manager.desk import Desk
from pitboss.manager.figures import snapshot
from pitboss.manager.hub import Hub
from pitboss.manager.news import News
from pitboss.manager.orders import Orders
from pitboss.manager.process import WorkerProcess
from pitboss.manager.room import HostRoom
from pitboss.manager.scaler import Scaler
from pitboss.manager.signals import first
from pitboss.manager.staff import Staff
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import PitbossError, StoreUnavailable
from pitboss.model.facts import AnyFact
from pitboss.model.outcome import TimedOut
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.resource import PoolRules
from pitboss.model.retention import Retention
from pitboss.model.session import DEFAULT_TTL, Lead
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, TaskError
from pitboss.telemetry.logs.manager import ManagerLogs, set_up_manager
from pitboss.telemetry.logs.settings import LogSettings
from pitboss.upkeep.lead import Leadership, spoken
from pitboss.upkeep.sweep import reclaim, sweep_forever
from pitboss.worker.describe import Description
from pitboss.worker.frames import ToManager
from pitboss.worker.main import Spec

_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_GRACE_SECONDS = 2.0
_TICK_SECONDS = 1.0
_TELL_EVERY = 2
_PRUNE_LOGS = 60


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a manager runs one app."""

    target: str
    pools: tuple[PoolSpec, ...] = (PoolSpec(),)
    drain_seconds: float = 30.0
    ttl: Span = DEFAULT_TTL
    retention: Retention = Retention()
    host_memory: int | None = None
    logs: LogSettings | None = None
    resources: tuple[tuple[str, PoolRules], ...] = ()
    secrets_file: str | None = None


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
        self._make_engine, self._clock, self._luck = make_engine, clock, luck
        self._news = News(tell, self._publish, clock)
        self.say = self._news.say
        self._watcher = noted
        self._policies = _policies(description)
        self._orders = Orders(engine)
        self._staff = Staff(self, plan, make_spec=self._spec, luck=luck, learn=self._learn)
        self._desk = Desk(engine)
        self._room = HostRoom(plan.host_memory, self._desk.started)
        self._scaler = Scaler(engine, self._staff, clock, self._desk.room)
        self._leadership = Leadership(engine, self._present_session, clock=clock, told=self._led_by)
        self._hub = self._make_hub()
        self._sessions: list[int] = []
        self._known: set[str] = set()
        self._draining = False
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._switch = asyncio.Event()
        self._logs: ManagerLogs | None = None
        self._told = ""
        self._shape: list[tuple[object, ...]] = []
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Serve until stopped."""
        logs = self._open_logs()
        try:
            await self._run()
        finally:
            if logs is not None:
                logs.close()

    def _open_logs(self) -> ManagerLogs | None:
        if self._plan.logs is None:
            return None
        logs = self._logs = set_up_manager(self._plan.logs)
        self._news.log = logs.log
        logs.log.info("manager started", target=self._plan.target, pools=[pool.name for pool in self._plan.pools])
        return logs

    async def _run(self) -> None:
        await self._register(self._plan, self._description)
        await self._take_over()
        await self._orders.read()
        term = self._leadership.term
        sweep = partial(sweep_forever, self._engine, self._plan.retention, self._clock, term=term)
        work = (sweep, self._tick, self._scaler.run, self._leadership.campaign_forever)
        duties = [asyncio.create_task(self._lasting(one)) for one in work]
        self._hub.start()
        await self._staff.start(self._orders.wishes)
        try:
            pause = _PAUSE
            while not self._stop.is_set():
                began = self._clock.now()
                await self._serve()
                if self._switch.is_set():
                    continue
                # A store that ends sessions as soon as they are opened must not be flooded with new ones.
                pause = _PAUSE if self._clock.now() - began >= self._plan.ttl else min(pause * 2, _LONGEST_PAUSE)
                await first(self._stop, within=pause)
        finally:
            for duty in duties:
                duty.cancel()
            await self._staff.end(grace=0 if self._stop_now.is_set() else _GRACE_SECONDS)
            await self._hub.stop(0 if self._stop_now.is_set() else _GRACE_SECONDS)
            await asyncio.gather(*duties, return_exceptions=True)

    async def _lasting(self, duty: Callable[[], Coroutine[object, object, None]]) -> None:
        """A duty that breaks must not leave a manager that looks alive and no longer does it: it is begun again."""
        while True:
            try:
                return await duty()
            except Exception as error:
                self.say(f"a fault of Pitboss itself ({type(error).__name__}: {error}); it goes on")
            await asyncio.sleep(_LONGEST_PAUSE)

    def stop(self) -> None:
        """First: drain and end. Again: end now."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def reload(self, plan: Plan, description: Description) -> None:
        """Go on with other settings and other code: workers are replaced one by one, and no task is lost by it.

        Returns when that is done, or when the new workers turned out not to start and the old ones go on.
        """
        await self._register(plan, description)
        self._policies = _policies(description)
        self._plan, self._description = plan, description
        self._staff.change(plan)
        self._staff.wish(self._orders.wishes)
        self._change_hub()
        if self._known != set(self._policies) and await self._staff.changed():
            # Only a new session can tell the store that other handlers are known here.
            self._switch.set()

    async def _register(self, plan: Plan, description: Description) -> None:
        """Pools first: a task whose queue is bound to one must find its rules."""
        check_needs(self._engine, description.handlers, [name for name, _ in plan.resources])
        if plan.resources:
            resources = resources_of(self._engine)
            for name, rules in plan.resources:
                await resources.declare_pool(name, rules)
        await self._engine.register(description.handlers)

    def _change_hub(self) -> None:
        """Hooks are code too."""
        self._hub.change(self._plan.target, self._description.hooks)
        if self._desk.present is not None:
            self._desk.present.noted = self._note if self._hub.wants_tasks else self._watcher

    @property
    def finished_tasks(self) -> int:
        return self._desk.finished

    def running(self) -> list[Claim]:
        return self._desk.running()

    # What the staff asks and tells.

    def now(self) -> Moment:
        return self._clock.now()

    def hired(self, worker: WorkerProcess, spec: PoolSpec) -> None:
        self._news.started(worker, spec)
        self._desk.seat(worker, spec, self._staff.rest(spec))

    def leaving(self, worker: WorkerProcess) -> None:
        self._desk.close(worker)

    def lost(self, worker: WorkerProcess, error: TaskError | None) -> None:
        self._news.ended(worker, error, self._desk.remove(worker, error))

    def given_up(self, name: str, spec: PoolSpec, why: str, crashes: int) -> None:
        self._news.given_up(name, spec, why, crashes)

    def scaled(self, pool: str, before: int, after: int, why: str) -> None:
        self._news.scaled(pool, before, after, why)

    def _learn(self, handler: str, size: int) -> None:
        self._room.learn(handler, size)

    def paused(self, pool: str, paused: bool) -> None:
        if self._desk.present is not None:
            self._desk.present.set_paused(pool, paused)

    def time_limit(self, claim: Claim) -> Span | None:
        return claim.timeout if claim.timeout is not None else self._policy(claim.handler).timeout

    def timed_out(self, worker: WorkerProcess, claim: Claim, error: TaskError) -> None:
        if worker.ended_task((claim.id, claim.token.claim), well=False, ran=0) is not None:
            self._desk.finish(worker, claim, TimedOut(error), 0)

    def heard(self, worker: WorkerProcess, message: ToManager) -> None:
        self._desk.hear(worker, message)

    # One session after the other.

    async def _serve(self) -> None:
        """One session, from its opening to a stop, its loss, or its succession by one that knows other handlers."""
        self._switch.clear()
        lost = asyncio.Event()
        dispatcher = self._make_dispatcher(lost)
        try:
            session = await dispatcher.start()
        except StoreUnavailable as error:
            self.say(f"the store does not answer: {error.what}; trying again")
            return
        self._sessions.append(session.number)
        self._scaler.session = session.number
        self._seat_everybody(dispatcher)
        self.started.set()
        await first(self._stop, lost, self._switch)
        if lost.is_set():
            self._abandon(dispatcher)
            await dispatcher.stop()
        elif self._stop.is_set():
            await self._drain(dispatcher)
            await dispatcher.stop()
        else:
            self._desk.retire(dispatcher)

    def _make_dispatcher(self, lost: asyncio.Event) -> Dispatcher:
        self._tell_snapshot()
        self._known = set(self._policies)
        dispatcher = Dispatcher(
            self._engine,
            host.identity(tuple(self._policies), self._plan.ttl),
            clock=self._clock,
            luck=self._luck,
            policies=self._policy,
            make_keeper=self._make_engine,
            on_lost=lambda: self._session_lost(dispatcher, lost),
            snapshot=lambda: self._told,
        )
        dispatcher.noted = self._note if self._hub.wants_tasks else self._watcher
        return dispatcher

    def _note(self, claim: Claim, settlement: Settlement) -> None:
        if self._watcher is not None:
            self._watcher(claim, settlement)
        # A worker has the name of its pool and a number.
        self._hub.note(claim, settlement, (settlement.worker or "").rpartition("-")[0])

    def _seat_everybody(self, dispatcher: Dispatcher) -> None:
        self._desk.present = dispatcher
        dispatcher.quiet(self._draining)
        for crew in self._staff.crews.values():
            dispatcher.set_paused(crew.spec.name, crew.paused)
        for worker, spec in self._staff.at_work():
            self._desk.seat(worker, spec, self._staff.rest(spec))

    def _session_lost(self, dispatcher: Dispatcher, lost: asyncio.Event) -> None:
        lost.set()
        if dispatcher is not self._desk.present:
            self._abandon(dispatcher)

    def _abandon(self, dispatcher: Dispatcher) -> None:
        """The session is over and others may have its tasks: what runs here must end, and a new session begins."""
        fault = dispatcher.fault
        cause = f" by a fault of Pitboss itself ({type(fault).__name__}: {fault})" if fault is not None else ""
        self.say(f"the session was lost{cause}; its workers are ended, and a new session begins")
        self._desk.forget(dispatcher)
        self._staff.kill()

    async def _drain(self, dispatcher: Dispatcher) -> None:
        self._staff.quiet()
        seconds = self._plan.drain_seconds
        draining = asyncio.create_task(self._desk.drain(dispatcher, seconds))
        hurry = asyncio.create_task(self._stop_now.wait())
        if running := self._desk.running():
            self._news.waiting_for(running, seconds)
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        left = self._desk.running()
        for task in (draining, hurry):
            task.cancel()
        await asyncio.gather(draining, hurry, return_exceptions=True)
        if left:
            self.say(f"{len(left)} task(s) did not end in time and go back to the queue; no attempt is spent")
            self._staff.kill()
        else:
            await dispatcher.flushed()
            self._staff.drain()
        await self._desk.end()

    async def _take_over(self) -> None:
        """End the sessions of managers that died on this host, so that their tasks need not wait for the expiry."""
        for session in await self._engine.sessions():
            if not session.ended and host.is_dead(session):
                await self._engine.end_session(session.number)
                self.say(f"manager with pid {session.info.pid} on this host is gone; its tasks are taken over")
        await reclaim(self._engine)

    # What operators want, and what they are told.

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            ticks += 1
            self._tell_changes(ticks)
            if self._logs is not None and ticks % _PRUNE_LOGS == 0:
                await asyncio.to_thread(self._logs.prune, self._clock.now())
            present = self._desk.present
            if present is not None and self._room.tight:
                present.set_admission(self._room.admits)
            if self._orders.expected(present):
                await self._obey()

    def _tell_changes(self, ticks: int) -> None:
        """The figures are told with the next beat; a worker that comes, goes or fails is told at once."""
        shape = self._staff.shape()
        changed, self._shape = shape != self._shape, shape
        if changed or ticks % _TELL_EVERY == 0:
            self._tell_snapshot()
        if changed and self._desk.present is not None:
            self._desk.present.tell_now()

    async def _obey(self) -> None:
        try:
            if not await self._orders.read():
                return
        except PitbossError:
            return  # the store is away: the next renewal tells again that there is something to read
        self._staff.wish(self._orders.wishes)
        wanted = self._orders.of_manager(self._sessions)
        if wanted.drain != self._draining:
            self._draining = wanted.drain
            self.say(
                "draining: no new tasks are taken" if wanted.drain else "no longer draining: tasks are taken again"
            )
            if self._desk.present is not None:
                self._desk.present.quiet(wanted.drain)
        if wanted.stop and not self._stop.is_set():
            self.say("an operator asked this manager to stop")
            self.stop()
        if wanted.stop and wanted.now:
            self.stop()

    def _tell_snapshot(self) -> None:
        term = self._leadership.term() or 0
        logs = self._plan.logs.folder if self._plan.logs is not None else ""
        told = snapshot(
            self._plan.target, self._staff, self._clock.now(), draining=self._draining, term=term, logs=logs
        )
        self._told = msgspec.json.encode(told).decode()

    def _publish(self, fact: AnyFact) -> None:
        self._hub.publish(fact)

    def _make_hub(self) -> Hub:
        return Hub(
            self._plan.target,
            self._description.hooks,
            self._engine,
            clock=self._clock,
            tell=self.say,
            logs=self._plan.logs,
        )

    def _present_session(self) -> int | None:
        present = self._desk.present
        return present.session.number if present is not None and present.session is not None else None

    def _led_by(self, lead: Lead) -> None:
        # A manager that is alone leads: nobody needs to be told.
        if not lead.mine or lead.term > 1:
            self.say(spoken(lead))

    def _policy(self, handler: str) -> Policy:
        return self._policies.get(handler) or Policy()

    def _spec(self, name: str, pool: PoolSpec) -> Spec:
        return Spec(
            name=name,
            target=self._plan.target,
            concurrency=pool.concurrency,
            manager=host.identity((), 0).pid,
            pool=pool.name,
            logs=self._plan.logs,
            secrets_file=self._plan.secrets_file,
        )


def _policies(description: Description) -> dict[str, Policy]:
    return {handler.name: msgspec.json.decode(handler.policy, type=Policy) for handler in description.handlers}
