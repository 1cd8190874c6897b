"""Keeps one process running beside the workers, with the restart rules of a pool: hooks, the HTTP server.

Nothing here knows what the process does. It is started as `python -m MODULE SPEC FD` and follows four rules, in the
messages of `worker/channel.py`. It says `ready`, or `broken` if it cannot start. It says something, such as
`heartbeat`, at least every few seconds. After `drain` it finishes its work and exits with code 0. It exits when its
manager is gone (`worker/child.py`).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

import msgspec

from pitboss.engines.protocol import Clock
from pitboss.manager.child_process import ChildProcess, exit_text
from pitboss.manager.strays import end_strays
from pitboss.model import restart
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.pool import PoolSpec
from pitboss.worker.channel import BrokenMessage, Codec

In = TypeVar("In")
Out = TypeVar("Out")


class SideState(StrEnum):
    """Like the state of a worker; `crashed` means that it is not started again by itself."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    RESTARTING = "restarting"
    CRASHED = "crashed"
    STOPPED = "stopped"


class SideStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `status` shows. `why` says why it crashed for good."""

    name: str
    state: SideState
    pid: int = 0
    restarts: int = 0
    why: str = ""


class Program(NamedTuple, Generic[In]):
    """What to run: `name` for people ("hook process"), the module, its settings, and the decoder of what it says.

    `broken` begins the sentence about a process that says that it cannot start, and `fix` ends it. `secret`: its
    settings are not shown in the list of processes. `at_once`: one that had been ready is replaced at once, and its end
    does not count, like that of the last worker of a pool.
    """

    name: str
    module: str
    spec: msgspec.Struct
    codec: Callable[[], Codec[In]]
    broken: str = "the app cannot be loaded"
    fix: str = ""
    secret: bool = False
    at_once: bool = False


class SideProcess(Generic[In, Out]):
    """Starts the program, restarts it after a crash, kills it if it is silent, and gives up if it crashes too often.

    `heard` gets every message, and a function that answers the process that said it: another one may have taken its
    place since. `ended` is called at the end of each process and returns what was lost with it, for people. `gave_up`
    is called when no other process will follow. `tell` gets sentences for people.
    """

    def __init__(
        self,
        program: Program[In],
        *,
        rules: PoolSpec,
        clock: Clock,
        tell: Callable[[str], None],
        heard: Callable[[In, Callable[[Out], None]], None],
        ended: Callable[[], str] = lambda: "",
        gave_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._program, self._rules, self._clock, self._tell = program, rules, clock, tell
        self._heard, self._ended, self._gave_up = heard, ended, gave_up
        self._child: _Child[In, Out] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._record = restart.Record()
        self._restarts = 0
        self._why = ""
        self._wanted = self._stopping = False

    @property
    def ready(self) -> bool:
        """Whether it takes work now."""
        return self.running and self._child is not None and self._child.ready.is_set()

    @property
    def running(self) -> bool:
        """Whether there is a process that takes work, or will when it is ready."""
        return self._child is not None and not self._child.draining

    @property
    def status(self) -> SideStatus:
        pid = self._child.pid if self._child is not None else 0
        return SideStatus(name=self._program.name, state=self._state(), pid=pid, restarts=self._restarts, why=self._why)

    def start(self) -> None:
        """Run it from now on."""
        self._wanted = True
        self._wake.set()
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep())

    def restart(self, spec: msgspec.Struct) -> None:
        """Run it with other settings or new code: the present process finishes its work, and another one follows.

        Crashes so far are forgotten, so this also starts a process that had been given up.
        """
        self._program = self._program._replace(spec=spec)
        self._record, self._why = restart.Record(), ""
        self.drain()
        self.start()

    def retire(self) -> None:
        """Let the present process finish its work. No other follows until `start` or `restart`."""
        self._wanted, self._why = False, ""
        self.drain()

    def drain(self) -> None:
        """Let the present process finish its work and exit. Another one follows."""
        if self._child is not None:
            self._child.drain()

    def say(self, message: Out) -> None:
        if self._child is not None:
            self._child.say(message)

    async def stop(self, within: float, finish: Callable[[], Awaitable[None]] | None = None) -> None:
        """End it: wait for `finish`, let it drain, and kill it when `within` seconds are over. No other follows."""
        self._stopping = True
        self._wake.set()
        child = self._child
        if child is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    if finish is not None:
                        await finish()
                    if child.ready.is_set():
                        child.drain()
                        await child.gone.wait()
            child.kill()
        if self._keeping is not None:
            await self._keeping

    async def _keep(self) -> None:
        try:
            while not self._stopping:
                if self._wanted:
                    await self._follow(await self._life())
                else:
                    await self._pause(None)
        except Exception as error:
            self._give_up(f"a fault of Pitboss itself ({type(error).__name__}: {error})")

    async def _life(self) -> "_End":
        """One process, from its start to its end."""
        began, how, code = self._clock.now(), "", None
        self._wake.clear()
        program = self._program
        self._child = child = _Child(f"{os.getpid()}:{program.module}", program.codec(), self._heard)
        try:
            await child.run(program.module, program.spec, {}, secret=program.secret)
            watching = asyncio.create_task(self._watch(child))
            try:
                code = await child.ended()
            finally:
                watching.cancel()
        except OSError as error:
            how = f"cannot be started: {error.strerror or error}"
        finally:
            self._child = None
            lost = self._ended()
        if code is not None:
            await asyncio.to_thread(end_strays, child.mark)
        planned = child.draining and code == 0
        return _End(
            began, how or exit_text(code), lost, planned, child.unresponsive, child.broken, child.ready.is_set()
        )

    async def _watch(self, child: "_Child[In, Out]") -> None:
        """Kill a process that is silent for too long; one that never becomes ready is silent, too."""
        limit = rest = self._rules.unresponsive / SECOND
        while rest > 0:
            await asyncio.sleep(rest)
            rest = limit - child.silence
        self._tell(f"the {self._program.name} has said nothing for {limit:g} s and is killed")
        child.unresponsive = True
        child.kill()

    async def _follow(self, end: "_End") -> None:
        """After an end: nothing, a pause before the next start, or giving up."""
        if end.planned or self._stopping or not self._wanted:
            return
        if end.broken is not None:
            self._give_up(f"{self._program.broken}: {end.broken.error}", self._program.fix)
            return
        decision = restart.after_end(
            self._record,
            self._rules,
            started_at=end.began,
            now=self._clock.now(),
            clean=False,
            critical=end.unresponsive,
            last=self._program.at_once and end.was_ready,
        )
        self._record = decision.record
        if decision.delay is None:
            self._give_up(f"it {end.how}, and {decision.why}")
            return
        lost = f", and {end.lost}" if end.lost else ""
        again = f"in {spoken(decision.delay)}" if decision.delay else "at once"
        self._tell(f"the {self._program.name} {end.how}{lost}; it starts again {again}")
        self._restarts += 1
        await self._pause(decision.delay / SECOND)

    async def _pause(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def _give_up(self, why: str, fix: str = "") -> None:
        self._why, self._wanted = why, False
        then = f"; {fix}" if fix else ""
        self._tell(f"the {self._program.name} stays down until the manager is reloaded or restarted: {why}{then}")
        self._gave_up()

    def _state(self) -> SideState:
        if self._child is not None:
            ready = SideState.RUNNING if self._child.ready.is_set() else SideState.STARTING
            return SideState.DRAINING if self._child.draining else ready
        if self._wanted and not self._stopping:
            return SideState.RESTARTING if self._record.recent else SideState.STARTING
        return SideState.CRASHED if self._why else SideState.STOPPED


class _Child(ChildProcess[In, Out]):
    """One process of a side process."""

    def __init__(self, mark: str, codec: Codec[In], heard: Callable[[In, Callable[[Out], None]], None]) -> None:
        # One manager may have several processes of one module.
        super().__init__(f"{mark}#{id(self):x}", codec)
        self._heard = heard
        self.unresponsive = False

    def _hear(self, message: In) -> None:
        super()._hear(message)
        self._heard(message, self.say)


class _End(NamedTuple):
    """How one process ended."""

    began: Moment
    how: str
    lost: str
    planned: bool
    unresponsive: bool
    broken: BrokenMessage | None
    was_ready: bool
