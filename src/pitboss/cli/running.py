"""A manager's life under `pitboss up`: from the open store to the last line, over reloads and signals."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pitboss import wiring
from pitboss.cli.failures import told
from pitboss.cli.footer import Footer
from pitboss.cli.journal import Journal
from pitboss.cli.screen import Screen
from pitboss.cli.systemd import Notifier
from pitboss.config import service_manager
from pitboss.engines.protocol import Store
from pitboss.manager.manager import Manager, Plan
from pitboss.model.errors import PitbossError
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo
from pitboss.model.states import State
from pitboss.model.task import NewTask, Unique
from pitboss.worker.describe import Description

_FIGURES_SECONDS = 1.0
_STATUS_SECONDS = 5.0
_STOPS = (signal.SIGINT, signal.SIGTERM)


class Order(NamedTuple):
    """What to run. `watched` is the folder whose changes replace the workers, if any do; `again` reads settings and
    code anew."""

    store: str
    plan: Plan
    on_start: tuple[str, ...]
    watched: Path | None
    quiet: bool
    verbose: bool
    again: "Callable[[], tuple[Plan, Description]] | None" = None


class Run:
    """One `pitboss up`."""

    def __init__(self, screen: Screen, order: Order, description: Description) -> None:
        self._screen, self._order, self._description = screen, order, description
        self._footer = Footer(wanted=not order.quiet)
        self._clock = wiring.SystemClock()
        self._manager: Manager | None = None
        self._signals = 0
        self._wanted_anew = asyncio.Event()
        self._service = Notifier(service_manager())

    async def serve(self, engine: Store) -> str:
        """Until a signal; the summary."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        journal = Journal(self._say, loop.time, quiet=self._order.quiet, full=self._is_watched())
        for number in _STOPS:
            loop.add_signal_handler(number, self._stop)
        # A terminal that is closed says so with the same signal: then it is a stop.
        loop.add_signal_handler(signal.SIGHUP, self._stop if sys.stdin.isatty() else self._wanted_anew.set)
        await self._feed(engine)
        self._footer.open()
        figures = asyncio.create_task(self._figures(engine, journal)) if self._footer.shown else None
        try:
            await self._manage(engine, journal)
        finally:
            if figures is not None:
                figures.cancel()
                await asyncio.gather(figures, return_exceptions=True)
            self._footer.close()
        return journal.summary(loop.time() - began)

    async def _manage(self, engine: Store, journal: Journal) -> None:
        url = self._order.store
        self._manager = manager = Manager(
            engine,
            self._order.plan,
            self._description,
            make_engine=None if url.startswith("memory:") else lambda: wiring.make_engine(url),
            clock=self._clock,
            luck=wiring.luck(),
            tell=self._say,
            noted=journal.note,
        )
        work = (self._renew(manager), self._look_for_changes(), self._tell_service(manager), self._service.beat())
        renewing = [asyncio.create_task(one) for one in work]
        try:
            await manager.run()
        finally:
            self._service.stopping()
            for task in renewing:
                task.cancel()
            await asyncio.gather(*renewing, return_exceptions=True)

    async def _renew(self, manager: Manager) -> None:
        """Whenever it is wanted: read settings and code anew, and hand them to the manager if they are in order."""
        while self._order.again is not None:
            await self._wanted_anew.wait()
            self._wanted_anew.clear()
            try:
                plan, self._description = await asyncio.to_thread(self._order.again)
            except PitbossError as error:
                told(self._screen, error.what, why=error.why, fix="correct it; until then the code from before runs on")
                continue
            self._say("settings and code are read anew; workers are replaced one by one")
            self._service.reloading()
            await manager.reload(plan, self._description)
            self._service.ready()

    async def _tell_service(self, manager: Manager) -> None:
        """systemd hears that work is done from now on, and how it goes."""
        await manager.started.wait()
        self._service.ready()
        while self._service.listening:
            self._service.status(f"{len(manager.running())} running, {manager.finished_tasks} ended")
            await asyncio.sleep(_STATUS_SECONDS)

    async def _look_for_changes(self) -> None:
        if self._order.watched is None:
            return
        from watchfiles import PythonFilter, awatch

        async for changes in awatch(self._order.watched, watch_filter=PythonFilter()):
            names = sorted({Path(path).name for _, path in changes})
            self._say(f"changed: {', '.join(names)}")
            self._wanted_anew.set()

    async def _feed(self, engine: Store) -> None:
        """Enqueue what is to be there from the start, unless it is there from an earlier one."""
        known = {handler.name: handler for handler in self._description.handlers}
        make_id = IdMaker(self._clock.now, wiring.randbits())
        wanted = [_first_task(known[name], make_id) for name in self._order.on_start]
        if wanted:
            await engine.register(self._description.handlers)
            await engine.put(wanted)

    async def _figures(self, engine: Store, journal: Journal) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(signal.SIGWINCH, self._footer.open)
        before, at = 0, loop.time()
        while True:
            await asyncio.sleep(_FIGURES_SECONDS)
            done, now = journal.ended[State.COMPLETED], loop.time()
            with contextlib.suppress(Exception):  # figures are never worth a stop
                self._footer.show(await self._figured(engine, (done - before) / (now - at), journal))
            before, at = done, now

    async def _figured(self, engine: Store, rate: float, journal: Journal) -> str:
        queues = await engine.queues()
        waiting = sum(queue.counts.get(state, 0) for queue in queues for state in (State.PENDING, State.SCHEDULED))
        running = len(self._manager.running()) if self._manager else 0
        ended = journal.ended
        return (
            f"{rate:,.0f} tasks/s · {running:,} running · {waiting:,} waiting · "
            f"{ended[State.COMPLETED]:,} done · {ended[State.FAILED]:,} failed · Ctrl-C stops"
        )

    def _is_watched(self) -> bool:
        return self._order.verbose or self._screen.err.is_terminal

    def _stop(self) -> None:
        self._signals += 1
        self._say("stopping" if self._signals == 1 else "stopping now")
        self._service.stopping()
        if self._manager is not None:
            self._manager.stop()

    def _say(self, text: str, style: str = "") -> None:
        stamp = _time_of_day(self._clock.now())
        self._screen.err.print(f"{stamp} {text}", style=style or None, soft_wrap=True)


def _first_task(handler: HandlerInfo, make_id: Callable[[], str]) -> NewTask:
    key = Unique(f"{handler.name}/on-start")
    return NewTask(id=make_id(), handler=handler.name, queue=handler.queue, unique=key)


def _time_of_day(now: int) -> str:
    from pitboss.cli.words import local

    return local(now)[11:19]


def run_forever(screen: Screen, order: Order, description: Description, banner: Callable[[], Any]) -> str:
    """Open the store, show the banner, serve; the summary."""
    import uvloop

    from pitboss.cli.store import opened

    async def serve() -> str:
        engine = await opened(order.store, create=True)
        try:
            await _neighbours(screen, engine)
            banner()
            return await Run(screen, order, description).serve(engine)
        finally:
            await engine.close()

    # The thread that writes to SQLite and the event loop take turns at the interpreter; at the usual 5 ms a turn, each
    # waits for the other longer than it works (a tenth more tasks per second at a half).
    sys.setswitchinterval(0.0005)
    return uvloop.run(serve())


async def _neighbours(screen: Screen, engine: Store) -> None:
    from pitboss.manager import host
    from pitboss.model.waiting import alive

    here = host.identity((), 0)
    for session in alive(await engine.sessions(), wiring.SystemClock().now()):
        if session.info.host == here.host and not host.is_dead(session):
            screen.note(
                f"note: a manager (pid {session.info.pid}) on this host serves the store too; they share the work"
            )
