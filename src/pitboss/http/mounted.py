"""The API and the dashboard inside another application, which has the process and the event loop."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pitboss.http.app import make_app
from pitboss.http.context import Server
from pitboss.http.gate import Gate, GateRules, Receive, Scope, Send

_LOOK_SECONDS = 0.5


class Mounted:
    """An ASGI application. It opens the store at its first request, and `aclose` closes it."""

    def __init__(self, make: Callable[[], Awaitable[Server]], rules: GateRules) -> None:
        self._make, self._rules = make, rules
        self._opening: asyncio.Task[Gate] | None = None
        self._server: Server | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Frameworks do not pass the events of their life on to what is mounted in them.
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        gate = await asyncio.shield(self._opening)
        await gate(scope, receive, send)

    async def aclose(self) -> None:
        """Close the store, and end the streams of open pages."""
        server, self._server, self._opening = self._server, None, None
        if server is None or self._watching is None:
            return
        if not server.stopping.is_set():
            self._watching.cancel()
            await server.stop()
        with suppress(asyncio.CancelledError):
            await self._watching
        await server.store.close()

    async def _open(self) -> Gate:
        server = await self._make()
        await server.start()
        self._server = server
        self._watching = asyncio.create_task(_stop_with_process(server))
        return make_app(server, self._rules)


async def _stop_with_process(server: Server) -> None:
    """uvicorn calls `aclose` only after all connections are closed, and so waits for open streams for ever, unless they
    end when it is told to stop."""
    while not server.stopping.is_set():
        if _told_to_stop():
            await server.stop()
        else:
            await asyncio.sleep(_LOOK_SECONDS)


def _told_to_stop() -> bool:
    """Whether uvicorn has had a signal. Its handler of signals is a method of the running `uvicorn.Server`."""
    handlers = (signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT))
    return any(getattr(getattr(one, "__self__", None), "should_exit", False) is True for one in handlers)
