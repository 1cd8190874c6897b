"""The server behind a proxy: answers HTTP on loopback after a delay, and logs arrivals by its own clock."""

import asyncio
import threading
import time
from collections import defaultdict
from typing import NamedTuple, Self

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Visit(NamedTuple):
    """Times are seconds of this process's monotonic clock. `beside` counts the member's other open requests."""

    at: float
    beside: int


class FarSide:
    """Runs in its own thread. Answers `GET /MEMBER` after `service` seconds."""

    def __init__(self, service: float) -> None:
        self.service = service
        self.port = 0
        self.visits: dict[str, list[Visit]] = defaultdict(list)
        self.count = 0
        self._here: dict[str, int] = defaultdict(int)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        member = head.split(b" ", 2)[1].decode().strip("/")
        self.visits[member].append(Visit(time.monotonic(), self._here[member]))
        self.count += 1
        self._here[member] += 1
        await asyncio.sleep(self.service)
        self._here[member] -= 1
        writer.write(_ANSWER)
        await writer.drain()
        writer.close()
