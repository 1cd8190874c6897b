"""Properties of messages between the driver's types and ours, which are those of JSON."""

import base64
import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import pika

from pitboss.engines.broker_protocol import Message, OutMessage, Properties
from pitboss.model.message import HEADER_BYTES, table_size

PERSISTENT = 2
_FIELDS = tuple(name for name in Properties.__struct_fields__ if name != "headers")


def received(tag: int, method: Any, properties: Any, body: bytes) -> Message:
    return Message(
        tag, body, ours(properties), _field(method.exchange), _field(method.routing_key), bool(method.redelivered)
    )


def to_send(message: OutMessage) -> Any:
    known = message.properties
    # RabbitMQ would close the channel, or the connection, with all other messages on it.
    if known.expiration is not None and not (known.expiration.isascii() and known.expiration.isdigit()):
        raise ValueError(f'expiration "{known.expiration}" is not a number of milliseconds')
    if known.headers and table_size(known.headers) > HEADER_BYTES:
        raise ValueError(
            f"its headers take more than {HEADER_BYTES:,} bytes, or have a name or number that is too long"
        )
    fields = {name: getattr(known, name) for name in _FIELDS}
    return pika.BasicProperties(headers=_sendable(known.headers) or None, delivery_mode=PERSISTENT, **fields)


def plain(value: Any) -> Any:
    """A value of a header with the types of JSON."""
    match value:
        case bytes() | bytearray():
            return _text(bytes(value))
        case datetime():
            return value.isoformat()
        case Decimal():
            return float(value)
        case float() if not math.isfinite(value):
            return f"{value}"
        case int() if not isinstance(value, bool):
            return int(value)  # the driver has a subclass for long ones
        case dict():
            return {plain(name): plain(part) for name, part in value.items()}
        case list():
            return [plain(part) for part in value]
    return value


def ours(theirs: Any) -> Properties:
    # Nearly all are missing, and every message comes through here.
    fields = {name: _field(value) for name in _FIELDS if (value := getattr(theirs, name)) is not None}
    return Properties(headers=plain(theirs.headers) if theirs.headers else {}, **fields)


def _sendable(value: Any) -> Any:
    """The driver cannot encode floats, so they are sent as text."""
    match value:
        case float():
            return f"{value}"
        case dict():
            return {name: _sendable(part) for name, part in value.items()}
        case list():
            return [_sendable(part) for part in value]
    return value


def _field(value: Any) -> Any:
    return value if type(value) is str else plain(value)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode()
