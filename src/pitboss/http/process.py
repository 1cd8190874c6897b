"""The server process: listens, serves until it is told to drain, and says that it lives."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pitboss.config import ServerSpec, is_loopback
from pitboss.http.app import make_app
from pitboss.http.context import Server
from pitboss.http.gate import GateRules
from pitboss.http.protocol import LimitedProtocol
from pitboss.http.rate import RateLimit
from pitboss.worker.channel import (
    Channel,
    FromHttp,
    HeartbeatMessage,
    ListeningMessage,
    ReadyMessage,
    ToHttp,
    http_codec,
)

HEARTBEAT_SECONDS = 1.0
_BACKLOG = 2048
_KEEP_ALIVE = 75
_GRACE = 3


class _Uvicorn(uvicorn.Server):
    """Signals are the manager's: it drains this process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(spec: ServerSpec) -> socket.socket:
    """The socket that the server listens on. `OSError` if the port is taken, or the address is not this machine's."""
    family = socket.AF_INET6 if ":" in spec.host else socket.AF_INET
    host = "127.0.0.1" if spec.host == "localhost" else spec.host
    return socket.create_server((host, spec.port), family=family, backlog=_BACKLOG)


def rules_of(spec: ServerSpec) -> GateRules:
    limit = RateLimit(spec.rate[0]) if spec.rate else None
    return GateRules(
        local=is_loopback(spec.host),
        origins=spec.origins,
        max_body=spec.max_body,
        rate=limit,
        host=spec.host,
        hosts=spec.hosts,
        base_path=spec.base_path,
        environment=spec.environment,
        secure=spec.tls_cert is not None,
    )


class HttpProcess:
    """One server, until its manager drains it or is gone."""

    def __init__(self, spec: ServerSpec, server: Server, listening: socket.socket) -> None:
        self._spec, self._server, self._listening = spec, server, listening
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                make_app(server, rules_of(spec)),
                http=LimitedProtocol,
                ws="none",
                lifespan="off",
                # Nothing that a client says may change its address.
                proxy_headers=False,
                access_log=False,
                log_config=None,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_GRACE,
                ssl_certfile=spec.tls_cert,
                ssl_keyfile=spec.tls_key,
            )
        )

    @property
    def url(self) -> str:
        port = self._listening.getsockname()[1]
        host = f"[{self._spec.host}]" if ":" in self._spec.host else self._spec.host
        return f"{'http' if self._spec.tls_cert is None else 'https'}://{host}:{port}"

    async def run(self, end: socket.socket) -> None:
        """Serve until the manager says drain, or is gone."""
        over = asyncio.Event()

        def hear(_: ToHttp) -> None:
            over.set()

        channel: Channel[ToHttp, FromHttp] = await Channel.over(end, http_codec(), hear, over.set)
        await self._server.start()
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[self._listening]))
        channel.say(ReadyMessage(os.getpid()))
        channel.say(ListeningMessage(self.url))
        beating = asyncio.create_task(self._beat(channel))
        await over.wait()
        # Long polls end at once, with nothing.
        await self._server.stop()
        self._uvicorn.should_exit = True
        await serving
        beating.cancel()
        channel.close()

    async def _beat(self, channel: Channel[ToHttp, FromHttp]) -> None:
        while True:
            channel.say(HeartbeatMessage(self._server.claims.waiting))
            await asyncio.sleep(HEARTBEAT_SECONDS)
