"""Messages to a broker: each is stored as a task of a source's outbox, and published by the delivery process."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pitboss.client.client import Client
from pitboss.client.params import plain_value
from pitboss.model.canonical import from_json, to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId
from pitboss.model.message import HEADER_BYTES, JSON_TYPE, SHORT_BYTES, OutMessage, Properties, stored, table_size
from pitboss.model.source import outbox, source_of
from pitboss.model.task import NewTask
from pitboss.model.text import listed


def out_message(
    queue: str, message: Any, *, exchange: str, headers: Mapping[str, Any] | None, message_id: str | None
) -> OutMessage:
    """The message, checked. Bytes are sent as they are, anything else as JSON."""
    for what, text in (("queue", queue), ("exchange", exchange), ("message id", message_id or "")):
        if (
            not isinstance(text, str)
            or len(text.encode()) > SHORT_BYTES
            or (what == "queue" and not (text or exchange))
        ):
            raise InvalidInput(
                f"{text!r:.60} cannot be the {what} of a message",
                why=f"it is text of at most {SHORT_BYTES} bytes",
                fix="pass the name of a queue, or an exchange and a routing key, as RabbitMQ has them",
            )
    raw = isinstance(message, bytes)
    body = message if raw else to_json(message, what=f"message to {queue}", plain=plain_value).encode()
    told: dict[str, Any] = from_json(to_json(dict(headers or {}), what="headers"))
    if table_size(told) > HEADER_BYTES:
        raise InvalidInput(
            "the headers cannot be sent",
            why=f"they take more than {HEADER_BYTES:,} bytes, or have a name of more than {SHORT_BYTES}, or a number"
            " that does not fit 64 bits with its sign",
            fix="put the data into the message itself",
        )
    kind = "application/octet-stream" if raw else JSON_TYPE
    properties = Properties(message_id=message_id, headers=told, content_type=kind)
    return OutMessage(routing_key=queue, exchange=exchange, body=body, properties=properties)


async def outbox_task(
    client: Client, message: OutMessage, source: str | None, task_id: TaskId, parent: TaskId | None
) -> NewTask:
    """The task that publishes this message, through the source of this name, or the only one that there is."""
    name = _outbox(source, await client.outboxes())
    if name is None:
        name = _outbox(source, await client.outboxes(anew=True))
    if name is None:
        known = await client.outboxes()
        names = listed([source_of(one) for one in known])
        raise InvalidInput(
            f'there is no source "{source}"' if source is not None else "it is not clear which source should publish",
            why=f"the sources of this store are {names}" if known else "this store has no source of messages",
            fix="pass source=… with one of these names"
            if known
            else "write [sources.NAME] with its url into pitboss.toml, and start a manager",
        )
    if message.properties.message_id is None:
        # So that a consumer can recognise a repetition.
        message = replace(message, properties=replace(message.properties, message_id=task_id))
    return NewTask(id=task_id, handler=name, queue=name, params=stored(message), parent=parent)


def _outbox(source: str | None, known: list[str]) -> str | None:
    name = known[0] if source is None and len(known) == 1 else outbox(source or "")
    return name if name in known else None
