"""The HTTP server of a manager: a process of its own, so that requests never slow down the tasks, nor the reverse."""

import asyncio
import os
from collections.abc import Callable

import msgspec

from pitboss.config import ServerSpec
from pitboss.engines.protocol import Clock
from pitboss.manager.side_process import Program, SideProcess, SideState
from pitboss.model.pool import PoolSpec
from pitboss.model.snapshot import ServerFigures
from pitboss.worker.channel import FromHttp, ListeningMessage, ToHttp, from_http_codec

MODULE = "pitboss.cli.http_server"
# How long requests may take to end at a stop.
DRAIN_SECONDS = 5.0
RULES = PoolSpec(name="http")
# How often to look whether the workers have started: for five seconds.
_LOOKS = 50
_LOOK_SECONDS = 0.1
_FIX = "choose another port with --port or [http] port, or leave the server out with --no-http"


class HttpServer:
    """Keeps the server running as its settings say; None: there is none. `tell` gets sentences for people."""

    def __init__(
        self,
        spec: ServerSpec | None,
        *,
        clock: Clock,
        tell: Callable[[str], None],
        module: str = MODULE,
        rules: PoolSpec = RULES,
    ) -> None:
        self._spec, self._tell = _with_manager(spec), tell
        self._url = ""
        self._started = False
        program = Program(
            "HTTP server",
            module,
            self._spec or ServerSpec(store=""),
            from_http_codec,
            broken="it cannot start",
            fix=_FIX,
            secret=True,
            at_once=True,
        )
        self._process: SideProcess[FromHttp, ToHttp] = SideProcess(
            program, rules=rules, clock=clock, tell=tell, heard=self._hear, ended=self._ended, gave_up=self._give_up
        )
        # Set once it answers requests, and when it is not started again by itself.
        self.listening, self.given_up = asyncio.Event(), asyncio.Event()

    @property
    def text(self) -> str:
        """How it is, in a few words."""
        found = self.figures
        return "no HTTP API" if found is None else f"HTTP API {found.state} at {found.url}"

    async def start_after(self, session: asyncio.Event, busy: Callable[[], bool]) -> None:
        """Start it once the manager has a session and its workers have started: they need the processors more. Workers
        that take long are not waited for."""
        await session.wait()
        for _ in range(_LOOKS):
            if not busy():
                break
            await asyncio.sleep(_LOOK_SECONDS)
        self.start()

    def start(self) -> None:
        """Run it from now on."""
        self._started = True
        if self._spec is not None:
            self._process.restart(self._spec)

    def change(self, spec: ServerSpec | None) -> None:
        """Continue with these settings. The same ones change nothing, unless the server was given up: then it is tried
        again."""
        before, self._spec = self._spec, _with_manager(spec)
        if not self._started:
            return
        if self._spec is None:
            self._process.retire()
        elif self._spec != before or self._process.status.state in (SideState.CRASHED, SideState.STOPPED):
            self._process.restart(self._spec)

    @property
    def figures(self) -> ServerFigures | None:
        """What other hosts see; None if there is no server."""
        if self._spec is None:
            return None
        status = self._process.status
        url = self._url or (self._spec.url if self._spec.port else "")
        return ServerFigures(
            url=url, state=status.state.value, pid=status.pid, restarts=status.restarts, why=status.why
        )

    async def stop(self, within: float = DRAIN_SECONDS) -> None:
        """Let it answer what it is asked already, within this time. No other follows."""
        await self._process.stop(within)

    def _hear(self, message: FromHttp, _: Callable[[ToHttp], None]) -> None:
        if isinstance(message, ListeningMessage):
            self._url = message.url
            self.listening.set()
            base = self._spec.base_path if self._spec is not None else ""
            self._tell(f"the HTTP API is at {message.url}{base} (docs at {message.url}{base}/docs)")

    def _give_up(self) -> None:
        self.given_up.set()

    def _ended(self) -> str:
        self._url = ""
        return ""


def _with_manager(spec: ServerSpec | None) -> ServerSpec | None:
    return None if spec is None else msgspec.structs.replace(spec, manager=os.getpid())
