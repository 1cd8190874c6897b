"""The manager: one session in the store, and the worker pools of one host."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

import msgspec

from pitboss.config import asks_for_traces
from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.dispatch.settler import Noted
from pitboss.engines.capabilities import capabilities
from pitboss.engines.host_clock import uptime
from pitboss.engines.protocol import Clock, Engine, Store
from pitboss.manager import host
from pitboss.manager.announcer import Announcer
from pitboss.manager.declarer import Declarer, register
from pitboss.manager.delivery import DeliveryKeeper, register_reserved
from pitboss.manager.desired_state import DesiredStateReader
from pitboss.manager.happening_log import HappeningLog
from pitboss.manager.health_checks import HealthChecks
from pitboss.manager.hooks import FactBuffer
from pitboss.manager.host_memory import HostMemory
from pitboss.manager.http_server import DRAIN_SECONDS, HttpServer
from pitboss.manager.key_watch import KeyWatch
from pitboss.manager.outages import OutageWatch, Work
from pitboss.manager.plan import Plan, declared, key_ring, policies, pool_logs
from pitboss.manager.pool_set import PoolSet
from pitboss.manager.reaper import Reaper
from pitboss.manager.sampler import Sampler
from pitboss.manager.scaler import Scaler
from pitboss.manager.session_router import SessionRouter
from pitboss.manager.snapshot import snapshot
from pitboss.manager.stacks import Stacks
from pitboss.manager.task_log import TaskLog
from pitboss.manager.trouble_log import TroubleLog
from pitboss.manager.worker_slot import Services
from pitboss.model.duration import Span
from pitboss.model.errors import PitbossError, StoreUnavailable
from pitboss.model.facts import AnyFact
from pitboss.model.lifecycle import stepped
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.session import Lead
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim
from pitboss.telemetry.logs.manager import ManagerLogs, set_up_manager
from pitboss.upkeep.all_duties import all_duties
from pitboss.upkeep.duties import run_duties
from pitboss.upkeep.leadership import Leadership, described
from pitboss.upkeep.notice import note_lost
from pitboss.upkeep.sweep import reclaim
from pitboss.worker.describe import Description
from pitboss.worker.main import WorkerSpec

_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_GRACE_SECONDS = 2.0
_TICK_SECONDS = 1.0
_SNAPSHOT_EVERY = 2
_PRUNE_LOGS = 60

__all__ = ["Manager", "Plan"]


class Manager:
    """Runs an app's tasks until it is asked to stop. `tell` gets sentences for people."""

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
        self._announcer = Announcer(tell, clock)
        self.say = self._announcer.say
        self._watcher = noted
        self._keys = KeyWatch(engine, key_ring(plan), warn=self._announcer.warn, say=self.say)
        self._task_log = TaskLog(asyncio.get_running_loop().time)
        self._policies = policies(description)
        self._desired = DesiredStateReader(engine)
        self._declarer = Declarer(engine, declared(plan, description), announcer=self._announcer)
        self._router = SessionRouter(engine)
        self._memory = HostMemory(plan.host_memory, self._router.started)
        self._reaper = Reaper()
        services = Services(self._router, self._announcer, self._reaper, clock)
        self._pools = PoolSet(services, plan, make_spec=self._spec, luck=luck, learn=self._memory.learn)
        self._router.stacks = Stacks(self._pools.every_worker, self._router.running, clock)
        self._scaler = Scaler(engine, self._pools, clock, self._router.room)
        self._leadership = Leadership(engine, lambda: self._router.session, clock=clock, told=self._led_by)
        self._hooks = FactBuffer(plan.target, description.hooks, engine, clock=clock, tell=self.say, logs=plan.logs)
        self.http = HttpServer(plan.http, clock=clock, tell=self.say)
        self._delivery = DeliveryKeeper(plan.delivery, clock=clock, announcer=self._announcer)
        self._sampler = Sampler(engine, clock, self._pools.every_pool, self._router, self._leadership.term)
        self._memory.noted = self._sampler.measured.used_memory
        self._happenings = HappeningLog(engine, clock=clock, luck=luck, session=lambda: self._router.session)
        self._announcer.publish = self._sampler.noting(self._publish)
        self._announcer.note = self._happenings.note
        self._outages = OutageWatch(
            capabilities(engine).outages, warn=self._announcer.warn, say=self.say, work=self._work
        )
        self._outages.noted = lambda kind, text: self._happenings.note(kind, "store", text)
        # A server that could not open the store is tried again.
        self._outages.back = self._try_side_processes
        self._outages.listener = self._delivery.store_alert(lambda: self._plan.alerts)
        self._sessions: list[int] = []
        self._known: set[str] = set()
        self._stop, self._stop_now, self._switch = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._logs: ManagerLogs | None = None
        self._snapshot, self._draining = "", False
        self._ahead: Span = 0
        self._shape: list[tuple[object, ...]] = []
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Serve until stopped."""
        logs = self._open_logs()
        try:
            await self._run()
        finally:
            if logs is not None:
                self._task_log.flush()
                logs.close()

    def _open_logs(self) -> ManagerLogs | None:
        if self._plan.logs is None:
            return None
        logs = self._logs = set_up_manager(self._plan.logs)
        self._announcer.log = self._task_log.log = logs.log
        logs.log.info("manager started", target=self._plan.target, pools=[pool.name for pool in self._plan.pools])
        return logs

    async def _run(self) -> None:
        self._ahead = self._clock.wall() - self._clock.now()
        await self._register(self._plan, self._description)
        await self._take_over()
        await self._desired.read()
        await self._memory.recall(capabilities(self._engine).figures, self._clock.now())
        warn, note = self._announcer.warn, self._happenings.note
        upkeep = all_duties(self._engine, lambda: self._plan, clock=self._clock, warn=warn, say=self.say, note=note)
        checks = HealthChecks(self._pools.every_pool, self._router, self._announcer, self._time_limit)
        troubles = TroubleLog(self._engine, self._clock, begun=warn, ended=self.say)
        work = (
            partial(run_duties, upkeep, term=self._leadership.term, warn=warn),
            self._declarer.run,
            self._tick,
            self._outages.run,
            self._happenings.run,
            partial(self._keys.run, _TICK_SECONDS, self._claim_only),
            self._scaler.run,
            self._leadership.campaign_forever,
            self._sampler.run,
            checks.run,
            troubles.run,
            partial(self.http.start_after, self.started, lambda: self._pools.starting),
        )
        duties = [asyncio.create_task(self._lasting(one)) for one in work]
        self._hooks.start()
        self._delivery.start()
        await self._pools.start(self._desired.state)
        try:
            pause = _PAUSE
            while not self._stop.is_set():
                began = self._clock.now()
                await self._serve()
                if self._switch.is_set():
                    continue
                # Do not flood a store that ends sessions as soon as they are opened.
                pause = _PAUSE if self._clock.now() - began >= self._plan.ttl else min(pause * 2, _LONGEST_PAUSE)
                await _first(self._stop, within=pause)
        finally:
            for duty in duties:
                duty.cancel()
            await self._sampler.finish(hurry=self._stop_now.is_set())
            await self._pools.end(grace=0 if self._stop_now.is_set() else _GRACE_SECONDS)
            await self._hooks.stop(0 if self._stop_now.is_set() else _GRACE_SECONDS)
            seconds = 0 if self._stop_now.is_set() else DRAIN_SECONDS
            await asyncio.gather(self.http.stop(seconds), self._delivery.stop(seconds))
            # Last: it kills every process that this manager has started.
            await self._reaper.stop()
            await asyncio.gather(*duties, return_exceptions=True)
            self._happenings.stopped()
            await self._happenings.close(0 if self._stop_now.is_set() else _GRACE_SECONDS)

    async def _lasting(self, duty: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start a broken duty again: otherwise the manager would look alive without doing it."""
        while True:
            try:
                return await duty()
            except Exception as error:
                self.say(f"a fault of Pitboss itself ({type(error).__name__}: {error}); it continues")
            await asyncio.sleep(_LONGEST_PAUSE)

    def stop(self) -> None:
        """The first call drains and ends; the second ends now."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def reload(self, plan: Plan, description: Description) -> None:
        """Continue with other settings and other code: workers are replaced one by one, and no task is lost.

        Returns when that is done, or when the new workers do not start and the old ones continue.
        """
        await self._register(plan, description)
        await self._declarer.change(declared(plan, description))
        self._policies = policies(description)
        self._plan, self._description = plan, description
        self._keys.ring = key_ring(plan)
        self._pools.change(plan)
        self._pools.follow(self._desired.state)
        self._hooks.change(plan.target, description.hooks)
        self._try_side_processes()
        if self._router.present is not None:
            self._router.present.outcomes.noted = self._noted()
        if self._known != set(self._policies) and await self._pools.changed():
            # Only a new session can tell the store which handlers are known here.
            self._switch.set()

    def _try_side_processes(self) -> None:
        """With the present settings: they may have changed, or could not open the store before."""
        self.http.change(self._plan.http)
        self._delivery.change(self._plan.delivery)

    async def _register(self, plan: Plan, description: Description) -> None:
        await register(self._engine, plan, description, self._announcer)
        figures = self._delivery.figures
        await register_reserved(self._engine, plan.delivery, plan.target, 0 if figures is None else figures.pid)
        await self._keys.watch_pools({one.resources for one in description.handlers if one.resources})

    @property
    def finished_tasks(self) -> int:
        return self._router.finished

    def running(self) -> list[Claim]:
        return self._router.running()

    async def _serve(self) -> None:
        """One session: until a stop, its loss, or a new session that knows other handlers."""
        self._switch.clear()
        lost = asyncio.Event()
        dispatcher = self._make_dispatcher(lost)
        try:
            dispatcher.claimer.claim_only(await self._keys.queues())
            session = await dispatcher.start()
            await self._declarer.open(session.number)
            divided = {queue.name for queue in await self._engine.queues() if queue.partitions is not None}
        except StoreUnavailable as error:
            self._outages.failed(error)
            if dispatcher.session is not None:
                await dispatcher.stop()
            return
        self._sessions.append(session.number)
        if len(self._sessions) == 1:
            pools = [f"{pool.name} ({pool.max_workers})" for pool in self._plan.pools] if self._plan.target else []
            self._happenings.started(session.number, pools, self._description.release)
        self._scaler.session = session.number
        self._scaler.wake()
        # Before the first worker is ready: a restart must be back within the grace, however long workers take to start.
        dispatcher.need_slots((pool.spec for pool in self._pools.pools.values()), divided)
        self._add_workers(dispatcher)
        self.started.set()
        await _first(self._stop, lost, self._switch)
        if lost.is_set():
            self._abandon(dispatcher)
            await dispatcher.stop()
        elif self._stop.is_set():
            await self._drain(dispatcher)
            await dispatcher.stop()
        else:
            self._router.retire(dispatcher)

    def _publish(self, fact: AnyFact) -> None:
        self._hooks.publish(fact)
        self._happenings.heard(fact)

    def _make_dispatcher(self, lost: asyncio.Event) -> Dispatcher:
        self._take_snapshot()
        self._known = set(self._policies)
        dispatcher = Dispatcher(
            self._engine,
            host.identity(tuple(self._policies), self._plan.ttl),
            clock=self._clock,
            luck=self._luck,
            policies=self._policy,
            make_keeper=self._make_engine,
            on_lost=lambda: self._session_lost(dispatcher, lost),
            snapshot=lambda: self._snapshot,
        )
        dispatcher.outcomes.noted, dispatcher.claimer.opens = self._noted(), self._keys.opens
        dispatcher.troubled = self._outages.failed
        dispatcher.measure(self._sampler.measured)
        dispatcher.on_sent_away(self._announcer.sent_away)
        dispatcher.claimer.slot_numbers.node = self._plan.node or host.name()
        dispatcher.claimer.slot_numbers.told = self._announcer.slots_taken
        dispatcher.claimer.slot_numbers.refused = self._announcer.slots_refused
        dispatcher.claimer.slot_numbers.exact = frozenset(pool.name for pool in self._plan.pools if pool.only)
        dispatcher.claimer.on_ring = self._scaler.wake
        return dispatcher

    def _noted(self) -> Noted | None:
        return self._note if self._hooks.wants_tasks or self._logs is not None else self._watcher

    def _note(self, claim: Claim, settlement: Settlement) -> None:
        if self._watcher is not None:
            self._watcher(claim, settlement)
        self._task_log.note(claim, settlement)
        if self._hooks.wants_tasks:
            # The name of a worker is the name of its pool and a number.
            self._hooks.note(claim, settlement, (settlement.worker or "").rpartition("-")[0])

    def _add_workers(self, dispatcher: Dispatcher) -> None:
        self._router.begin(dispatcher)
        dispatcher.quiet(self._draining)
        for pool in self._pools.pools.values():
            dispatcher.set_paused(pool.spec.name, pool.paused)
        dispatcher.set_places(self._pools.places())
        for pool, slot, worker in self._pools.working():
            self._router.add_worker(worker, pool.spec, pool.rest, slot.place)

    def _session_lost(self, dispatcher: Dispatcher, lost: asyncio.Event) -> None:
        lost.set()
        if dispatcher is not self._router.present:
            self._abandon(dispatcher)

    def _abandon(self, dispatcher: Dispatcher) -> None:
        """The session is over and other managers may have its tasks: kill what runs here, and open a new session."""
        fault = dispatcher.fault
        cause = f" by a fault of Pitboss itself ({type(fault).__name__}: {fault})" if fault is not None else ""
        why = self._outages.session_lost() or f"the session was lost{cause}"
        text = f"{why}; its workers are killed, and a new session begins"
        self._announcer.warn(text)
        self._happenings.session_lost(text)
        self._router.forget(dispatcher)
        self._pools.kill()

    def _work(self) -> Work:
        present = self._router.present
        alive = present is not None and not present.lost
        return Work(
            running=len(self._router.running()),
            unwritten=present.unwritten if present is not None else 0,
            expires_in=present.expires_in if present is not None and alive else None,
        )

    async def _drain(self, dispatcher: Dispatcher) -> None:
        self._pools.quiet()
        await self._leadership.retire()
        seconds = self._plan.drain_seconds
        draining = asyncio.create_task(self._router.drain(dispatcher, seconds))
        hurry = asyncio.create_task(self._stop_now.wait())
        if running := self._router.running():
            self._announcer.waiting_for(running, seconds)
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        left = self._router.running()
        for task in (draining, hurry):
            task.cancel()
        await asyncio.gather(draining, hurry, return_exceptions=True)
        if left:
            self.say(f"{len(left)} task(s) did not end in time and go back to the queue; this costs no attempt")
            self._pools.kill()
        else:
            await dispatcher.flushed()
            self._pools.drain()
        await self._router.end()

    async def _take_over(self) -> None:
        """End the sessions of managers that died on this host, so that their tasks need not wait until they expire."""
        for session in await self._engine.sessions():
            if not session.ended and host.is_dead(session):
                await self._engine.end_session(session.number)
                self.say(f"manager with pid {session.info.pid} on this host is gone; its tasks are taken over")
                note_lost(self._happenings.note, session, min(session.expires_at, self._clock.now()))
        await reclaim(self._engine)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            ticks += 1
            self._router.set_places(self._pools.places())
            self._publish_changes(ticks)
            self._notice_step()
            self._task_log.flush()
            if self._logs is not None and ticks % _PRUNE_LOGS == 0:
                await asyncio.to_thread(self._logs.prune, self._clock.wall())
            present = self._router.present
            if present is not None and self._memory.tight:
                present.set_admission(self._memory.admits)
            if self._desired.may_have_changed(present):
                await self._obey()

    def _claim_only(self, queues: frozenset[str] | None, changed: bool) -> None:
        """Leave out queues whose secrets cannot be opened here, and take them in again when the key is back."""
        present = self._router.present
        if present is not None:
            present.claimer.claim_only(queues)
            if changed:
                self._take_snapshot()
                present.renew_now()

    def _notice_step(self) -> None:
        """Say once that the wall clock was set, and by how much. The store's clock goes on by itself."""
        ahead = self._clock.wall() - self._clock.now()
        if stepped(self._ahead, ahead):
            step, self._ahead = ahead - self._ahead, ahead
            self._announcer.clock_set(step)

    def _publish_changes(self, ticks: int) -> None:
        """Figures go out with the next renewal; a worker that comes, goes or fails is published at once."""
        shape = [*self._pools.shape(), (self.http.figures, self._delivery.figures, self._router.stacks.found)]
        changed, self._shape = shape != self._shape, shape
        if changed or ticks % _SNAPSHOT_EVERY == 0:
            self._take_snapshot()
        if changed and self._router.present is not None:
            self._router.present.renew_now()

    async def _obey(self) -> None:
        """Do what operators want."""
        try:
            if not await self._desired.read():
                return
        except PitbossError:
            return  # the store is down: the next renewal says again that there is something to read
        self._pools.follow(self._desired.state)
        self._router.stacks.follow(self._desired.state, self._sessions)
        wanted = self._desired.of_manager(self._sessions)
        if wanted.drain != self._draining:
            self._draining = wanted.drain
            self.say(
                "draining: no new tasks are taken" if wanted.drain else "no longer draining: tasks are taken again"
            )
            if self._router.present is not None:
                self._router.present.quiet(wanted.drain)
        if wanted.stop and not self._stop.is_set():
            self.say("an operator asked this manager to stop")
            self.stop()
        if wanted.stop and wanted.now:
            self.stop()

    def _take_snapshot(self) -> None:
        term = self._leadership.term() or 0
        logs = self._plan.logs.folder if self._plan.logs is not None else ""
        app = declared(self._plan, self._description)
        told = snapshot(
            self._plan.target,
            self._pools,
            self._clock.now(),
            draining=self._draining,
            term=term,
            logs=logs,
            tasks_memory=self._memory.published(),
            room=self._router.room_of,
        )
        side = {"http": self.http.figures, "delivery": self._delivery.figures, "stacks": self._router.stacks.found}
        code = {"app": "" if app is None else app.app, "release": self._description.release}
        told = msgspec.structs.replace(told, usual=self._memory.usual, missing_keys=self._keys.missing, **side, **code)
        self._snapshot = msgspec.json.encode(told).decode()

    def _led_by(self, lead: Lead) -> None:
        # A manager that is alone leads: that is not worth a line.
        if not lead.mine or lead.term > 1:
            self.say(described(lead))
        self._happenings.led_by(lead)

    def _time_limit(self, claim: Claim) -> Span | None:
        return claim.timeout if claim.timeout is not None else self._policy(claim.handler).timeout

    def _policy(self, handler: str) -> Policy:
        return self._policies.get(handler) or Policy()

    def _spec(self, name: str, pool: PoolSpec) -> WorkerSpec:
        return WorkerSpec(
            name=name,
            target=self._plan.target,
            concurrency=pool.concurrency,
            manager=host.identity((), 0).pid,
            pool=pool.name,
            logs=pool_logs(self._plan.logs, name, pool),
            secrets_file=self._plan.secrets_file,
            clock_offset=self._clock.now() - uptime(),
            traces=asks_for_traces(),
        )


async def _first(*events: asyncio.Event, within: float | None = None) -> None:
    """Returns when one of the events is set, or the time is over."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
