"""The API and the dashboard inside another application, which has the process and the event loop."""

import asyncio
from collections.abc import Awaitable, Callable

from pitboss.http.app import make_app
from pitboss.http.context import Server
from pitboss.http.gate import Gate, GateRules, Receive, Scope, Send


class Mounted:
    """An ASGI application. It opens the store at its first request, and `aclose` closes it."""

    def __init__(self, make: Callable[[], Awaitable[Server]], rules: GateRules) -> None:
        self._make, self._rules = make, rules
        self._opening: asyncio.Task[Gate] | None = None
        self._server: Server | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Frameworks do not pass the events of their life on to what is mounted in them.
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        gate = await asyncio.shield(self._opening)
        await gate(scope, receive, send)

    async def aclose(self) -> None:
        """Close the store, and end the streams of open pages."""
        server, self._server, self._opening = self._server, None, None
        if server is not None:
            await server.stop()
            await server.store.close()

    async def _open(self) -> Gate:
        server = await self._make()
        await server.start()
        self._server = server
        return make_app(server, self._rules)
