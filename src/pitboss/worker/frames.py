"""What manager and worker say to each other. A frame is a length, a version byte and a list of messages in MessagePack.

From the manager: `task`, `stop`, `recall`, `drain`, `answer`. From the worker: `ready`, `broken`, `result`, `error`,
`progress`, `heartbeat`, `metrics`, `log`, `ask`. One end never waits for the other: every message stands by itself.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from pitboss.model.duration import Span
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Outcome
from pitboss.model.resource import Report
from pitboss.model.task import Claim

VERSION = 1
MAX_FRAME = 64 * 1024 * 1024
_HEAD = struct.Struct("!IB")
M = TypeVar("M")


class TaskMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="task"):
    """Run this."""

    claim: Claim


class StopMessage(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """Somebody asked to cancel this one."""

    id: TaskId
    claim: int


class RecallMessage(msgspec.Struct, frozen=True, array_like=True, tag="recall"):
    """Give back what has not started."""


class DrainMessage(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """No more tasks will come: end when the running ones have ended."""


class AnswerMessage(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """The answer to an `ask`: a value as MessagePack, or an error's code and its three lines."""

    number: int
    value: bytes = b""
    error: tuple[str, str, str, str] | None = None


class ReadyMessage(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The worker has loaded the app and can take tasks."""

    pid: int


class BrokenMessage(msgspec.Struct, frozen=True, array_like=True, tag="broken"):
    """The worker cannot load the app, and ends: in one line, and in full."""

    error: str
    traceback: str = ""


class ResultMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="result"):
    """A task completed. `report` is what it came to for the resource that it held."""

    id: TaskId
    claim: int
    ran: Span
    outcome: Outcome
    report: Report | None = None


class ErrorMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="error"):
    """A task ended in any other way."""

    id: TaskId
    claim: int
    ran: Span
    outcome: Outcome
    report: Report | None = None


class ProgressMessage(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="progress"):
    """How far a task is."""

    id: TaskId
    claim: int
    percent: int
    note: str | None = None


class HeartbeatMessage(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat"):
    """The worker's loop turns. `stuck` tasks did not return in time and are given up; `handled` ones have ended."""

    running: int
    stuck: int = 0
    handled: int = 0


class MetricsMessage(msgspec.Struct, frozen=True, array_like=True, tag="metrics"):
    """The worker's own figures."""

    rss: int
    cpu_seconds: float
    handled: int


class LogMessage(msgspec.Struct, frozen=True, array_like=True, tag="log"):
    """Something the worker itself has to say."""

    level: str
    text: str


class AskMessage(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A call of the client's store from inside a handler; the arguments as MessagePack."""

    number: int
    verb: str
    arguments: bytes


ToWorker = TaskMessage | StopMessage | RecallMessage | DrainMessage | AnswerMessage
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
)


class FrameError(Exception):
    """The other end does not speak this protocol."""


class Codec(Generic[M]):
    """Frames out of bytes as they come, and bytes out of messages."""

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


def encoded(messages: Sequence[ToWorker | ToManager]) -> bytes:
    """One frame with these messages."""
    body = _encoder.encode(messages)
    return _HEAD.pack(len(body), VERSION) + body


def worker_codec() -> Codec[ToWorker]:
    """Reads what a manager says."""
    return Codec(msgspec.msgpack.Decoder(list[ToWorker]).decode)


def manager_codec() -> Codec[ToManager]:
    """Reads what a worker says."""
    return Codec(msgspec.msgpack.Decoder(list[ToManager]).decode)
