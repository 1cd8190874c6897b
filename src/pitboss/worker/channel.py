"""What a manager and its child processes say to each other, and the socket they say it over.

A frame is a length, a version byte and a list of messages in MessagePack. Neither side ever waits for the other: every
message is complete by itself. `docs/reference/messages.md` lists the messages, and a test compares it with this file.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from pitboss.model.access import AuditEntry
from pitboss.model.alert_message import AlertMessage
from pitboss.model.duration import Span
from pitboss.model.facts import AnyFact
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Outcome
from pitboss.model.resource import Report, UseEnd
from pitboss.model.task import Claim

VERSION = 1
MAX_FRAME = 64 * 1024 * 1024
_HEAD = struct.Struct("!IB")
M = TypeVar("M")
In = TypeVar("In")
Out = TypeVar("Out")


class TaskMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="task"):
    """Run this task."""

    claim: Claim


class StopMessage(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """Cancel this task."""

    id: TaskId
    claim: int


class StackMessage(msgspec.Struct, frozen=True, array_like=True, tag="stack"):
    """Say where this task is."""

    id: TaskId
    claim: int


class RecallMessage(msgspec.Struct, frozen=True, array_like=True, tag="recall"):
    """Give back the tasks that have not started."""


class DrainMessage(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """No more work will come: finish what runs, then exit."""


class AnswerMessage(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """The answer to an `ask`: a value as MessagePack, or an error as (code, what, why, fix)."""

    number: int
    value: bytes = b""
    error: tuple[str, str, str, str] | None = None


class FactMessage(msgspec.Struct, frozen=True, array_like=True, tag="fact"):
    """Something happened that a hook wants to hear."""

    fact: AnyFact


class ReadyMessage(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The process has started; work may come."""

    pid: int


class BrokenMessage(msgspec.Struct, frozen=True, array_like=True, tag="broken"):
    """The process cannot start, such as for an app that cannot be loaded, and exits: the error in one line, and its
    traceback."""

    error: str
    traceback: str = ""


class ResultMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="result"):
    """A task completed. `report` says how the resource that it held behaved, `use_end` ends the use of it."""

    id: TaskId
    claim: int
    ran: Span
    outcome: Outcome
    report: Report | None = None
    use_end: UseEnd | None = None


class ErrorMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="error"):
    """A task ended in any other way."""

    id: TaskId
    claim: int
    ran: Span
    outcome: Outcome
    report: Report | None = None
    use_end: UseEnd | None = None


class ProgressMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="progress"):
    """How far a task is."""

    id: TaskId
    claim: int
    percent: int
    note: str | None = None


class HeartbeatMessage(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat"):
    """The event loop is running. `stuck` tasks or hooks did not return in time and were abandoned; `handled` ended."""

    running: int
    stuck: int = 0
    handled: int = 0


class MetricsMessage(msgspec.Struct, frozen=True, array_like=True, tag="metrics"):
    """The worker's own figures."""

    rss: int
    cpu_seconds: float
    handled: int


class LogMessage(msgspec.Struct, frozen=True, array_like=True, tag="log"):
    """A log line of the process itself. `about` is what it tells the state of, if a new process tells it again."""

    level: str
    text: str
    about: str = ""


class AskMessage(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A call to the store from inside a handler or hook; the arguments as MessagePack. `entry`: for the audit log."""

    number: int
    verb: str
    arguments: bytes
    entry: AuditEntry | None = None


class StackOfMessage(msgspec.Struct, frozen=True, array_like=True, tag="stack_of"):
    """Where a task is: file, line and function of each frame, the innermost last."""

    id: TaskId
    claim: int
    lines: tuple[str, ...] = ()
    note: str = ""


class HandledMessage(msgspec.Struct, frozen=True, array_like=True, tag="handled"):
    """All hooks of one fact have ended, `failed` of them with an error: the next fact may come."""

    failed: int = 0


class ListeningMessage(msgspec.Struct, frozen=True, array_like=True, tag="listening"):
    """The address of the HTTP server, with the port that it got."""

    url: str


class WornOutMessage(msgspec.Struct, frozen=True, array_like=True, tag="worn_out"):
    """The delivery process could not reach its broker for many tries: replace it, the fault may be in the process."""

    why: str


class TellMessage(msgspec.Struct, frozen=True, array_like=True, tag="tell"):
    """Send this through these channels of alerts at once: the store is away and cannot keep it."""

    channels: tuple[str, ...]
    message: AlertMessage


ToWorker = TaskMessage | StopMessage | StackMessage | RecallMessage | DrainMessage | AnswerMessage
ToManager = (
    ReadyMessage
    | BrokenMessage
    | ResultMessage
    | ErrorMessage
    | ProgressMessage
    | HeartbeatMessage
    | MetricsMessage
    | LogMessage
    | AskMessage
    | StackOfMessage
)
ToHooks = FactMessage | DrainMessage | AnswerMessage
FromHooks = ReadyMessage | BrokenMessage | HandledMessage | HeartbeatMessage | AskMessage
ToHttp = DrainMessage
FromHttp = ReadyMessage | BrokenMessage | HeartbeatMessage | ListeningMessage
ToDelivery = DrainMessage | TellMessage
FromDelivery = ReadyMessage | BrokenMessage | HeartbeatMessage | LogMessage | WornOutMessage


class FrameError(Exception):
    """The other side does not speak this protocol."""


class Codec(Generic[M]):
    """Splits a stream of bytes into messages."""

    def __init__(self, decode: Callable[[bytes], list[M]]) -> None:
        self._decode = decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        """The messages that are complete by now."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _HEAD.size:
            length, version = _HEAD.unpack_from(buffer, start)
            if version != VERSION or length > MAX_FRAME:
                raise FrameError(f"version {version}, length {length}: not a frame of version {VERSION}")
            end = start + _HEAD.size + length
            if len(buffer) < end:
                break
            yield from self._decode(bytes(memoryview(buffer)[start + _HEAD.size : end]))
            start = end
        if start:
            del buffer[:start]


_encoder = msgspec.msgpack.Encoder()


def encoded(
    messages: Sequence[ToWorker | ToManager | ToHooks | FromHooks | FromHttp | FromDelivery | ToDelivery],
) -> bytes:
    """One frame with these messages."""
    body = _encoder.encode(messages)
    return _HEAD.pack(len(body), VERSION) + body


def worker_codec() -> Codec[ToWorker]:
    """Decodes what a manager says to a worker."""
    return Codec(msgspec.msgpack.Decoder(list[ToWorker]).decode)


def manager_codec() -> Codec[ToManager]:
    """Decodes what a worker says."""
    return Codec(msgspec.msgpack.Decoder(list[ToManager]).decode)


def hooks_codec() -> Codec[ToHooks]:
    """Decodes what a manager says to its hook process."""
    return Codec(msgspec.msgpack.Decoder(list[ToHooks]).decode)


def from_hooks_codec() -> Codec[FromHooks]:
    """Decodes what a hook process says."""
    return Codec(msgspec.msgpack.Decoder(list[FromHooks]).decode)


def http_codec() -> Codec[ToHttp]:
    """Decodes what a manager says to its HTTP server."""
    return Codec(msgspec.msgpack.Decoder(list[ToHttp]).decode)


def from_http_codec() -> Codec[FromHttp]:
    """Decodes what an HTTP server says."""
    return Codec(msgspec.msgpack.Decoder(list[FromHttp]).decode)


def delivery_codec() -> Codec[ToDelivery]:
    """Decodes what a manager says to its delivery process."""
    return Codec(msgspec.msgpack.Decoder(list[ToDelivery]).decode)


def from_delivery_codec() -> Codec[FromDelivery]:
    """Decodes what a delivery process says."""
    return Codec(msgspec.msgpack.Decoder(list[FromDelivery]).decode)


class Channel(asyncio.Protocol, Generic[In, Out]):
    """One end of the socket. All messages of one turn of the event loop go out as one frame.

    `hear` gets each message that comes in; `ended` is called once, when the other end is gone.
    """

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
        """Send it, together with everything else that is said in this turn of the loop."""
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
            # Nothing after this can be decoded: treat it like the end of the socket.
            self.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._ended()
