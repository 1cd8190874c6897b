"""HTTP/1.1 with limits that uvicorn lacks: how large the head of a request may be, how long it may take, and how long a
client may pause in the middle of a body.

Both hold before a key is checked, so that nothing that a stranger sends fills the memory or keeps a connection.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 65_536
HEAD_SECONDS = 30.0


class LimitedProtocol(HttpToolsProtocol):
    """`_head` is the size so far of a head that has not ended; None while no head is awaited. `_unfinished`: a body has
    begun and not ended."""

    head_seconds = HEAD_SECONDS
    _head: int | None = 0
    _unfinished = False
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head is None:
            if self._late is not None:
                self._stop_timer()
            if self._unfinished:
                self._start_timer()
            return
        self._head += len(data)
        if self._head > MOST_HEAD:
            self.send_400_response("The head of the request is too large.")
        elif self._late is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head, self._unfinished = None, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._unfinished = False
        super().on_message_complete()

    def _start_timer(self) -> None:
        self._late = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
