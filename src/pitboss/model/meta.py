"""Where a task comes from: a JSON object that is stored with it, and given to every task that follows from it.

Besides these keys it may hold others, such as `headers`, which are passed on as they are.
"""

from typing import Any

import msgspec

from pitboss.model.canonical import Json, from_json, to_json
from pitboss.model.duration import Moment


class EventMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The event that the task handles."""

    id: str
    name: str
    key: str | None = None


class TickMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schedule that put the task, the tick it is for, and the newest tick before it that succeeded (wall clock)."""

    schedule: str
    scheduled_for: Moment
    last_success: Moment | None = None


class FailureMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The failed task that this one follows. `chain`: the handlers that failed before, so that none comes twice."""

    id: str
    handler: str
    attempts: int = 0
    category: str = ""
    message: str = ""
    type: str = ""
    reason: str = ""
    chain: tuple[str, ...] = ()
    dead_letter: bool = False


class MessageMark(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The message of a broker that became the task: which source took it from which queue, and what came with it."""

    source: str
    queue: str
    id: str | None = None
    exchange: str = ""
    routing_key: str = ""
    headers: dict[str, Any] = {}
    properties: dict[str, Any] = {}


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys that Pitboss itself writes. `trace` is the W3C context of the span that sent the task."""

    event: EventMark | None = None
    tick: TickMark | None = None
    failure: FailureMark | None = None
    message: MessageMark | None = None
    trace: dict[str, str] = {}


_decoder = msgspec.json.Decoder(Meta)
_NOTHING = Meta()


def read_meta(text: Json | None) -> Meta:
    return _NOTHING if text is None else _decoder.decode(text)


def with_meta(text: Json | None, meta: Meta) -> Json:
    """The stored object with these keys added or replaced."""
    kept: dict[str, Any] = {} if text is None else from_json(text)
    return to_json({**kept, **msgspec.to_builtins(meta)})


def trace_of(text: Json | None) -> dict[str, str]:
    """The context of the span that sent the task; empty without traces."""
    return read_meta(text).trace


def with_trace(text: Json | None, trace: dict[str, str]) -> Json:
    """The stored object in another trace."""
    return with_meta(text, Meta(trace=trace))
