"""A real server on a real socket: the application of `make_app` under uvicorn, in a thread with its own event loop."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import uvicorn
import uvloop

from pitboss import wiring
from pitboss.engines.protocol import FullStore
from pitboss.http.app import make_app
from pitboss.http.context import Server
from pitboss.http.gate import Gate, GateRules
from pitboss.http.protocol import LimitedProtocol
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import IdMaker
from pitboss.model.session import SessionInfo
from pitboss.operate.keys import create_key

T = TypeVar("T")
LOCAL = GateRules(local=True)
Wrap = Callable[[FullStore], Any]


class Site:
    """`url` has no prefix. `wrap` may put something between the server and its store."""

    def __init__(self, rules: GateRules = LOCAL, *, url: str = "memory://", wrap: Wrap | None = None) -> None:
        self._rules, self._store_url, self._wrap = rules, url, wrap
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="site", daemon=True)
        self._ready = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.answers: Counter[int] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "the server did not start"
        self.http = httpx.Client(base_url=self.url, timeout=20, trust_env=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.http.close()
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(15)
        assert not self._thread.is_alive(), "the server did not stop"

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def key(self, *roles: str, name: str | None = None) -> str:
        """A new key with these roles."""

        async def make() -> str:
            self._keys += 1
            chosen = name or f"key-{self._keys}"
            _, text = await create_key(
                self.store, chosen, roles, by="test", make_id=wiring.key_id, make_secret=wiring.key_secret
            )
            await self.server.keys.read()
            return text

        return self.do(make())

    def counts(self) -> dict[str, int]:
        """How much of everything the store holds."""

        async def read() -> dict[str, int]:
            return {
                "tasks": (await self.store.count(EVERYTHING)).number,
                "types": len(await self.store.handlers()),
                "keys": len(await self.store.api_keys()),
                "batches": len(await self.store.batches(limit=10_000)),
                "queues": len(await self.store.queues()),
                "resources": sum(pool.members for pool in await self.store.resource_pools()),
                "schedules": len(await self.store.schedules()),
                "events": len(await self.store.events(limit=10_000)),
                "workers": sum(session.info.kind == "remote" for session in await self.store.sessions()),
            }

        return self.do(read())

    @property
    def framework(self) -> Any:
        """The FastAPI application behind the gate."""
        return self.app._app

    @property
    def dashboard(self) -> Any:
        """The application behind /ui."""
        return self.app._site

    _keys = 0
    app: Gate
    store: FullStore
    server: Server
    http: httpx.Client

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._ready.set()
            self._loop.close()
            self._socket.close()

    async def _run(self) -> None:
        engine: Any = wiring.make_engine(self._store_url)
        await engine.open()
        self.store = engine
        seen: Any = engine if self._wrap is None else self._wrap(engine)
        self.server = Server(
            seen,
            info=SessionInfo(host="site", kind="http"),
            make_id=IdMaker(engine.clock.now, wiring.randbits()),
            make_key_id=wiring.key_id,
            make_secret=wiring.key_secret,
            luck=wiring.luck(),
        )
        await self.server.start()
        self.app = make_app(self.server, self._rules)
        self._uvicorn = _uvicorn(self._counted, self._ready)
        await self._uvicorn.serve(sockets=[self._socket])
        await engine.close()

    async def _counted(self, scope: Any, receive: Any, send: Any) -> None:
        """The application; every answer is counted by its code."""

        async def counting(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.answers[message["status"]] += 1
            await send(message)

        await self.app(scope, receive, counting)

    def _stop(self) -> None:
        async def stop() -> None:
            await self.server.stop()
            self._uvicorn.should_exit = True

        self._stopping = self._loop.create_task(stop())


class _Uvicorn(uvicorn.Server):
    """Signals belong to pytest."""

    def __init__(self, config: uvicorn.Config, ready: threading.Event) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()


def _uvicorn(app: Any, ready: threading.Event) -> uvicorn.Server:
    config = uvicorn.Config(
        app, interface="asgi3", http=LimitedProtocol, ws="none", lifespan="off", proxy_headers=False,
        access_log=False, log_config=None,
        server_header=False, timeout_keep_alive=75, timeout_graceful_shutdown=1,
    )  # fmt: skip
    return _Uvicorn(config, ready)
