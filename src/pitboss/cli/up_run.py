"""Runs the manager of `pitboss up` and `pitboss serve`: signals, reloads, live figures, systemd."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pitboss import wiring
from pitboss.cli.command import id_maker, opened
from pitboss.cli.errors import show_error
from pitboss.cli.formatting import time_of_day, took
from pitboss.cli.http_options import check_listening
from pitboss.cli.screen import Screen
from pitboss.cli.systemd import Notifier
from pitboss.cli.up_output import StatusLine, TaskLines
from pitboss.config import Settings, declared_queues, service_manager
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.manager import host
from pitboss.manager.manager import Manager, Plan
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotDone, PitbossError
from pitboss.model.fleet import live_managers
from pitboss.model.new_task import TaskOptions, new_task
from pitboss.model.partition_keys import refuse_keyless
from pitboss.model.pool_slot import refuse_taken
from pitboss.model.states import State
from pitboss.operate.maintenance import refuse_damage
from pitboss.worker.describe import Description

_FIGURES_SECONDS = 1.0
_STATUS_SECONDS = 5.0
_STOPS = (signal.SIGINT, signal.SIGTERM)


class RunOptions(NamedTuple):
    """What to run. Changes in the folder `watched` reload the app; `again` reads settings and code again."""

    store: str
    plan: Plan
    on_start: tuple[str, ...]
    watched: Path | None
    quiet: bool
    verbose: bool
    again: "Callable[[], tuple[Plan, Description]] | None" = None


class Run:
    """One `pitboss up` or `pitboss serve`: the latter has no pools."""

    def __init__(self, screen: Screen, options: RunOptions, description: Description) -> None:
        self._screen, self._options, self._description = screen, options, description
        self._status_line = StatusLine(wanted=not options.quiet)
        self._clock = wiring.SystemClock()
        self._manager: Manager | None = None
        self._signals = 0
        self._reload = asyncio.Event()
        self._service = Notifier(service_manager())

    async def serve(self, engine: Store) -> str:
        """Run until a signal; returns the summary."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        lines = TaskLines(self._say, loop.time, quiet=self._options.quiet, full=self._is_watched())
        for number in _STOPS:
            loop.add_signal_handler(number, self._stop)
        # A closed terminal sends SIGHUP too: then it means stop, not reload.
        loop.add_signal_handler(signal.SIGHUP, self._stop if sys.stdin.isatty() else self._reload.set)
        await self._enqueue_on_start(engine)
        self._status_line.open()
        figures = asyncio.create_task(self._figures(engine, lines)) if self._status_line.shown else None
        try:
            await self._manage(engine, lines)
        finally:
            if figures is not None:
                figures.cancel()
                await asyncio.gather(figures, return_exceptions=True)
            self._status_line.close()
        lasted = loop.time() - began
        return lines.summary(lasted) if self._runs_tasks else f"stopped after {took(round(lasted * SECOND))}"

    async def _manage(self, engine: Store, lines: TaskLines) -> None:
        url = self._options.store
        self._manager = manager = Manager(
            engine,
            self._options.plan,
            self._description,
            make_engine=None if url.startswith("memory:") else lambda: wiring.make_engine(url),
            clock=engine.clock,
            luck=wiring.luck(),
            tell=self._say,
            noted=lines.note,
        )
        work = (
            self._reload_when_asked(manager, engine),
            self._watch_files(),
            self._tell_service(manager),
            self._end_without_server(manager),
            self._service.beat(),
        )
        beside = [asyncio.create_task(one) for one in work]
        try:
            await manager.run()
        finally:
            self._service.stopping()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if manager.http.given_up.is_set() and not self._runs_tasks:
            raise NotDone(
                "the HTTP API cannot be served",
                why=manager.http.figures.why if manager.http.figures else "it was given up",
                fix="choose another port with --port or [http] port",
            )

    async def _reload_when_asked(self, manager: Manager, engine: Store) -> None:
        """Read settings and code again, and hand them to the manager if they can be used."""
        while self._options.again is not None:
            await self._reload.wait()
            self._reload.clear()
            try:
                plan, description = await asyncio.to_thread(self._options.again)
                await check_listening(engine, plan.http)
            except PitbossError as error:
                show_error(self._screen, error.what, why=error.why, fix="correct it; until then the old code runs on")
                continue
            self._description = description
            done = "settings and code were reloaded; workers are replaced one by one"
            self._say(done if self._runs_tasks else "settings were reloaded")
            self._service.reloading()
            await manager.reload(plan, self._description)
            self._service.ready()

    async def _end_without_server(self, manager: Manager) -> None:
        """A manager without workers and without a server has nothing left to do."""
        await manager.http.given_up.wait()
        if not self._runs_tasks:
            manager.stop()

    async def _tell_service(self, manager: Manager) -> None:
        """Tell systemd that the manager is ready, and then its figures."""
        await manager.started.wait()
        if not self._runs_tasks:
            await manager.http.listening.wait()
        self._service.ready()
        while self._service.listening:
            figures = f"{len(manager.running())} running, {manager.finished_tasks} ended"
            self._service.status(figures if self._runs_tasks else manager.http.text)
            await asyncio.sleep(_STATUS_SECONDS)

    async def _watch_files(self) -> None:
        if self._options.watched is None:
            return
        from watchfiles import PythonFilter, awatch

        async for changes in awatch(self._options.watched, watch_filter=PythonFilter()):
            names = sorted({Path(path).name for _, path in changes})
            self._say(f"changed: {', '.join(names)}")
            self._reload.set()

    async def _enqueue_on_start(self, engine: Store) -> None:
        """The unique key keeps an unfinished task of an earlier start from getting a second one."""
        known = {handler.name: handler for handler in self._description.handlers}
        make_id = id_maker()
        once = TaskOptions(key="on-start")
        tasks = [new_task(known[name], "{}", make_id(), once) for name in self._options.on_start]
        if tasks:
            await engine.register(self._description.handlers)
            await engine.put(tasks)

    async def _figures(self, engine: Store, lines: TaskLines) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(signal.SIGWINCH, self._status_line.open)
        before, at = 0, loop.time()
        while True:
            await asyncio.sleep(_FIGURES_SECONDS)
            done, now = lines.ended[State.COMPLETED], loop.time()
            with contextlib.suppress(Exception):  # missing figures must not stop the manager
                self._status_line.show(await self._figures_text(engine, (done - before) / (now - at), lines))
            before, at = done, now

    async def _figures_text(self, engine: Store, rate: float, lines: TaskLines) -> str:
        queues = await engine.queues()
        waiting = sum(queue.counts.get(state, 0) for queue in queues for state in (State.PENDING, State.SCHEDULED))
        if not self._runs_tasks:
            claimed = sum(queue.counts.get(State.RUNNING, 0) for queue in queues)
            return f"{claimed:,} running · {waiting:,} waiting · Ctrl-C stops"
        running = len(self._manager.running()) if self._manager else 0
        ended = lines.ended
        return (
            f"{rate:,.0f} tasks/s · {running:,} running · {waiting:,} waiting · "
            f"{ended[State.COMPLETED]:,} done · {ended[State.FAILED]:,} failed · Ctrl-C stops"
        )

    @property
    def _runs_tasks(self) -> bool:
        return bool(self._options.plan.pools)

    def _is_watched(self) -> bool:
        return self._options.verbose or self._screen.err.is_terminal

    def _stop(self) -> None:
        self._signals += 1
        if self._manager is not None:
            self._manager.stop()
        self._service.stopping()
        self._say("stopping" if self._signals == 1 else "stopping now")

    def _say(self, text: str, style: str = "") -> None:
        # The terminal may have been closed: then there is no one to tell, and the manager must stop all the same.
        with contextlib.suppress(OSError):
            self._screen.err.print(f"{time_of_day(self._clock.wall())} {text}", style=style or None, soft_wrap=True)


def with_settings(settings: Settings, description: Description) -> Declared:
    """What the app declares, with what the settings say of its queues. Queues without any limit are left out."""
    declared = description.declared
    queues = declared_queues(settings, declared.queues, (handler.queue for handler in description.handlers))
    refuse_keyless(queues, description.handlers)
    return msgspec.structs.replace(declared, queues=queues)


def run_forever(screen: Screen, options: RunOptions, description: Description, banner: Callable[[], Any]) -> str:
    """Open the store, show the banner, serve; returns the summary."""
    import uvloop

    async def serve() -> str:
        await _refuse_damage(options.store)
        engine = await opened(options.store, create=True)
        try:
            await check_listening(engine, options.plan.http)
            await _refuse_taken_slots(engine, options.plan)
            await _note_other_managers(screen, engine)
            banner()
            return await Run(screen, options, description).serve(engine)
        finally:
            await engine.close()

    # The SQLite writer thread and the event loop take turns at the interpreter. With the usual 5 ms a turn, each waits
    # longer than it works; 0.5 ms gave a tenth more tasks per second.
    sys.setswitchinterval(0.0005)
    return uvloop.run(serve())


async def _refuse_damage(url: str) -> None:
    engine = wiring.make_engine(url)
    try:
        await refuse_damage(engine)
    finally:
        await engine.close()


async def _refuse_taken_slots(engine: Store, plan: Plan) -> None:
    """Refuse a start with `--only` if another living manager has one of these slots."""
    verbs = capabilities(engine).partitions
    if verbs is None or not any(pool.only for pool in plan.pools):
        return
    dead = {one.number for one in await engine.sessions() if host.is_dead(one)}
    live = [slot for slot in await verbs.slots() if slot.live and slot.session not in dead]
    for pool in plan.pools:
        refuse_taken(pool.name, [slot for slot in live if slot.pool == pool.name and slot.number in pool.only])


async def _note_other_managers(screen: Screen, engine: Store) -> None:
    here = host.identity((), 0)
    now = engine.clock.now()
    for one in live_managers(await engine.sessions(), now):
        if one.host == here.host and not host.is_dead(one.session):
            pid = one.session.info.pid
            screen.note(f"note: another manager (pid {pid}) on this host serves this store; they share the work")
