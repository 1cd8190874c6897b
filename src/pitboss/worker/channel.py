"""One end of the socket between a manager and a worker. What is said in one turn of the loop goes out as one frame."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from pitboss.worker.frames import Codec, FrameError, encoded

In = TypeVar("In")
Out = TypeVar("Out")


class Channel(asyncio.Protocol, Generic[In, Out]):
    """Speaks and hears messages; `hear` gets each one, `ended` is called once when the other end is gone."""

    def __init__(self, codec: Codec[In], hear: Callable[[In], None], ended: Callable[[], None]) -> None:
        self._codec, self._hear, self._ended = codec, hear, ended
        self._transport: asyncio.Transport | None = None
        self._unsent: list[Out] = []
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def over(
        cls, end: socket.socket, codec: Codec[In], hear: Callable[[In], None], ended: Callable[[], None]
    ) -> "Channel[In, Out]":
        """A channel over one end of a socket pair."""
        end.setblocking(False)
        _, channel = await asyncio.get_running_loop().create_connection(lambda: cls(codec, hear, ended), sock=end)
        return channel

    def say(self, message: Out) -> None:
        """Send it with whatever else is said in this turn of the loop."""
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(message)

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None and not self._transport.is_closing():
            messages: Any = unsent
            self._transport.write(encoded(messages))

    def close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._codec.feed(data):
                self._hear(message)
        except FrameError:
            # Whatever it says from here on cannot be understood: the same as silence.
            self.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._ended()
