"""The tables [sources.NAME]: queues of a message broker whose messages become tasks."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from pitboss.config.values import duration, whole
from pitboss.model.duration import Span
from pitboss.model.errors import InvalidInput
from pitboss.model.message import SHORT_BYTES
from pitboss.model.source import DEDUPE, DLQ_SUFFIX, PREFETCH, SourceSpec

SOURCES = "sources"
_MOST_PREFETCH = 10_000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_URL = re.compile(r"amqps?://[^\s]+\Z")


def _url(value: Any) -> Any:
    if not isinstance(value, str) or not _URL.match(value):
        raise InvalidInput(
            "this is not the address of a RabbitMQ server",
            why="it is a URL that begins with amqp:// or amqps://",
            fix='write it like "amqp://user:password@host:5672/vhost"',
        )
    if why := _unencoded(value):
        raise InvalidInput(
            "this URL of a RabbitMQ server cannot be read",
            why=why,
            fix="percent-encode special characters in user, password and virtual host: "
            "%40 for @, %2F for /, %23 for #, %3F for ?, %3A for :",
        )
    return value


def _unencoded(url: str) -> str:
    """What shows that a special character, of a password for instance, stands as it is. Nothing of the URL is shown."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "its port is not a number, or its host is none"
    if "#" in url:
        return "# ends a URL, and here something follows it"
    if "@" not in parts.netloc and "@" in url:
        return "the host ends before the @ that should precede it"
    return ""


def _queue(value: Any) -> Any:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= SHORT_BYTES:
        raise InvalidInput(
            f"{value!r:.60} cannot name a queue of RabbitMQ",
            why=f"it is text of 1 to {SHORT_BYTES} bytes",
            fix="write the queue's name as RabbitMQ has it",
        )
    return value


class SourceSettings(BaseModel):
    """One table. `source_specs` says which keys must be there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str | None, BeforeValidator(_url)] = None
    queue: Annotated[str | None, BeforeValidator(_queue)] = None
    handler: str | None = None
    dead_letter_queue: Annotated[str | None, BeforeValidator(_queue)] = None
    prefetch: Annotated[int, BeforeValidator(whole), Field(ge=1, le=_MOST_PREFETCH)] = PREFETCH
    dedupe: Annotated[Span, PlainValidator(duration)] = DEDUPE
    competing: bool = False
    create: Literal["classic", "quorum"] | None = None


KEYS = tuple(SourceSettings.model_fields)


def named_sources(value: Any) -> Any:
    """The tables, if they are tables and their names fit the environment."""
    if not isinstance(value, dict):
        raise InvalidInput(
            "this is not a table", why="a source is a table of keys", fix="write [sources.NAME], and its keys below it"
        )
    for name in value:
        if not _NAME.match(name):
            raise InvalidInput(
                f"{name!r:.60} cannot name a source",
                why="a name has small letters, digits and _, and begins with a letter",
                fix="choose a name of that form; the name of RabbitMQ's queue is the key queue",
            )
    return value


def source_specs(sources: dict[str, SourceSettings]) -> tuple[SourceSpec, ...]:
    """Every source, complete."""
    specs = tuple(_spec(name, said) for name, said in sources.items())
    for number, one in enumerate(specs):
        for other in specs[:number]:
            if (one.url, one.queue) == (other.url, other.queue):
                raise InvalidInput(
                    f'the sources "{other.name}" and "{one.name}" take the same queue',
                    why=f'each message of "{one.queue}" would reach one of them by chance',
                    fix="remove one of the tables",
                )
    return specs


def _spec(name: str, said: SourceSettings) -> SourceSpec:
    url, queue, handler = (_needed(name, key, getattr(said, key)) for key in ("url", "queue", "handler"))
    dead_letter_queue = said.dead_letter_queue or f"{queue}{DLQ_SUFFIX}"
    if dead_letter_queue == queue:
        raise InvalidInput(
            f'the source "{name}" has "{queue}" as its queue and as its dead-letter queue',
            why="what fails would come again at once, for ever",
            fix=f"leave dead_letter_queue out: it is {queue}{DLQ_SUFFIX} then",
        )
    return SourceSpec(
        name=name,
        url=url,
        queue=queue,
        handler=handler,
        dead_letter_queue=dead_letter_queue,
        prefetch=said.prefetch,
        dedupe=said.dedupe,
        competing=said.competing,
        create=said.create,
    )


_MEANINGS = {
    "url": ("it is where the RabbitMQ server is", 'url = "amqp://user:password@host:5672/"'),
    "queue": ("it is the queue of RabbitMQ that is consumed", 'queue = "download_queue"'),
    "handler": ("a foreign message names no handler, so the source does", 'handler = "download"'),
}


def _needed(name: str, key: str, value: str | None) -> str:
    if value:
        return value
    why, line = _MEANINGS[key]
    raise InvalidInput(
        f"sources.{name} has no {key}",
        why=why,
        fix=f"write {line} below [sources.{name}], or set PITBOSS_SOURCES__{name.upper()}__{key.upper()}",
    )
