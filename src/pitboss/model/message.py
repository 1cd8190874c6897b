"""Messages of a broker as values: how one becomes a task's parameters, and how tasks become messages."""

import base64
import re
from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec

from pitboss.model.canonical import Json, from_json, refuse_length, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId, checked_id
from pitboss.model.meta import MessageMark, Meta, read_meta, with_meta
from pitboss.model.signals import Fail

# The headers of a dead letter.
TASK, SOURCE, HANDLER = "x-pitboss-task", "x-pitboss-source", "x-pitboss-handler"
REASON, ERROR, ATTEMPTS = "x-pitboss-reason", "x-pitboss-error", "x-pitboss-attempts"
CATEGORY = "x-pitboss-category"
MALFORMED = "malformed"
JSON_TYPE = "application/json"
WHOLE = "message"
_OWN = (TASK, SOURCE, HANDLER, REASON, CATEGORY, ERROR, ATTEMPTS)
_COPIES = frozenset({"CC", "BCC"})
_NOT_OBJECTS = frozenset({"string", "integer", "number", "boolean", "array", "null"})
_LONGEST_TEXT = 2000
# The most bytes of a property that is text, or of a header's name; and of all headers. The properties of a message are
# in one frame of at most 128 KiB: the broker ends a connection that sends a larger one.
SHORT_BYTES = 255
HEADER_BYTES = 120_000
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Properties(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What comes with the body of a message. `headers` has JSON types only: bytes are text where they are UTF-8, else
    base64; times are ISO texts."""

    message_id: str | None = None
    headers: dict[str, Any] = {}
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    app_id: str | None = None
    timestamp: int | None = None
    priority: int | None = None
    expiration: str | None = None


_TEXTS = ("message_id", "content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id")


class Message(msgspec.Struct, frozen=True):
    """A message that was delivered. `tag` grows with each delivery of one connection."""

    tag: int
    body: bytes
    properties: Properties
    exchange: str = ""
    routing_key: str = ""
    redelivered: bool = False


class OutMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to publish. It is always persistent, and mandatory: one that reaches no queue is an error."""

    routing_key: str
    body: bytes
    exchange: str = ""
    properties: Properties = Properties()


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An outgoing message as the parameters of a task. A body that is not UTF-8 is stored as base64."""

    routing_key: str
    exchange: str = ""
    text: str | None = None
    base64: str | None = None
    properties: Properties = Properties()


def stored(message: OutMessage) -> Json:
    """The parameters of the outbox task that publishes this message."""
    refuse_length(len(message.body), "message")
    try:
        body = {"text": _storable(message.body.decode())}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(message.body).decode()}
    kept = _Stored(routing_key=message.routing_key, exchange=message.exchange, properties=message.properties, **body)
    return to_json(msgspec.to_builtins(kept), what="message")


def _storable(text: str) -> str:
    """Text that every store keeps as it is; else it goes as base64."""
    if _CONTROLS.search(text):
        raise UnicodeDecodeError("utf-8", b"", 0, 0, "it has control characters")
    return text


def read_stored(params: Json) -> OutMessage:
    kept = msgspec.json.decode(params, type=_Stored)
    body = (kept.text or "").encode() if kept.base64 is None else base64.b64decode(kept.base64)
    return OutMessage(routing_key=kept.routing_key, exchange=kept.exchange, body=body, properties=kept.properties)


def takes_whole(schema: Json) -> bool:
    """Whether a handler gets the whole message: its only parameter is called `message`, and is not plain text, a number
    or a list. Otherwise the fields of the message are its parameters."""
    known = from_json(schema).get("properties", {})
    return known.keys() == {WHOLE} and known[WHOLE].get("type") not in _NOT_OBJECTS


def arguments(value: Any, whole: bool) -> Mapping[str, Any] | None:
    """The parameters for the value of a message; None if it is not an object."""
    if not isinstance(value, dict):
        return None
    return {WHOLE: value} if whole else value


def marked(message: Message, source: str, queue: str) -> Json:
    """The meta of a task that was a message."""
    known = message.properties
    mark = MessageMark(
        source=source,
        queue=queue,
        id=known.message_id,
        exchange=message.exchange,
        routing_key=message.routing_key,
        headers=known.headers,
        properties={
            key: value
            for key, value in msgspec.to_builtins(known).items()
            if key not in ("headers", "message_id") and value is not None
        },
    )
    return with_meta(None, Meta(message=mark))


def dead_letter(
    dead: Mapping[str, Any], meta: Json | None, *, source: str, queue: str, task: str, whole: bool
) -> OutMessage:
    """A task that failed for good as a message: the body that it came with, and what went wrong as headers.

    `dead` is the task as a dead-letter handler gets it, `task` the outbox task. A task that was no message has its
    params as the body, and the id of its outbox task.
    """
    error = dead.get("error") or {}
    params = dead.get("params") or {}
    body = params[WHOLE] if whole and WHOLE in params else params
    told = {
        TASK: dead["id"],
        SOURCE: source,
        HANDLER: dead["handler"],
        REASON: dead.get("reason") or error.get("category") or "failed",
        CATEGORY: error.get("category") or "",
        ERROR: _short(_error_text(error)),
        ATTEMPTS: dead.get("attempts", 0),
    }
    mark = read_meta(meta).message
    known = Properties()
    # A task that follows from a message has its meta, but is not that message.
    if mark is not None and mark.source == source and dead.get("parent") is None:
        known = msgspec.convert({**mark.properties, "message_id": mark.id, "headers": mark.headers}, Properties)
    properties = _labelled(known, told)
    named, typed = properties.message_id or task, properties.content_type or JSON_TYPE
    properties = msgspec.structs.replace(properties, message_id=named, content_type=typed)
    return OutMessage(routing_key=queue, body=to_json(body).encode(), properties=properties)


def refused(message: Message, reason: str, *, source: str, handler: str, queue: str) -> OutMessage:
    """A message that no task can be made of, with the reason."""
    told = {SOURCE: source, HANDLER: handler, REASON: MALFORMED, ERROR: _short(reason)}
    return OutMessage(routing_key=queue, body=message.body, properties=_labelled(message.properties, told))


def _labelled(known: Properties, told: dict[str, Any]) -> Properties:
    """The properties of a dead letter. What the broker would not take back is left out: bytes are longer as text."""
    texts = {name: text for name in _TEXTS if (text := getattr(known, name)) is not None}
    long = {name: None for name, text in texts.items() if len(text.encode()) > SHORT_BYTES}
    headers = {**_without_copies(known.headers), **told}
    if table_size(headers) > HEADER_BYTES:
        headers = {**told, ERROR: f"{told[ERROR]} (the headers of the message were too large to be kept)"}
    # A date of expiry was about the first delivery: a dead letter must stay.
    return msgspec.structs.replace(known, headers=headers, **{**long, "expiration": None})


def table_size(value: object) -> float:
    """How many bytes a value of headers takes at most as the broker gets it; infinite if it cannot get it."""
    match value:
        case None | bool():
            return 2
        case int():
            return 9 if -(2**63) <= value < 2**63 else inf
        case float():
            return 5 + len(f"{value}")  # sent as text
        case str():
            return 5 + len(value.encode())
        case list():
            return 5 + sum(map(table_size, value))
        case dict():
            names = [len(name.encode()) for name in value]
            fits = max(names, default=0) <= SHORT_BYTES
            return 5 + sum(names) + len(names) + sum(map(table_size, value.values())) if fits else inf
    return inf


def _without_copies(headers: Mapping[str, Any]) -> dict[str, Any]:
    """RabbitMQ sends a copy to each queue that these headers name: a dead letter could come back to its source at once,
    for ever."""
    return {key: value for key, value in headers.items() if key not in _COPIES}


def dead_task_id(properties: Properties) -> TaskId | None:
    """The task that a dead letter of ours was."""
    named = properties.headers.get(TASK)
    try:
        return checked_id(named) if isinstance(named, str) else None
    except InvalidInput:
        return None


def without_labels(properties: Properties) -> Properties:
    """The properties of a dead letter as they were before it died."""
    headers = {key: value for key, value in properties.headers.items() if key not in _OWN}
    return msgspec.structs.replace(properties, headers=headers)


def _error_text(error: Mapping[str, Any]) -> str:
    """With the class of the error, unless the handler itself said that it failed."""
    kind, message = error.get("type"), error.get("message") or ""
    return f"{kind}: {message}" if kind and kind != Fail.__name__ else message


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
