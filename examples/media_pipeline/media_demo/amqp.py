"""RabbitMQ as other programs see it: a producer that knows only the name of a queue, and a look at dead letters."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from media_demo.processes import Manager
from media_demo.sending import DeadLetter

_SOURCES = ("download", "cutter", "preview")


class OverRabbitMQ:
    """Publishes as the document's producers do: each declares the queue, and no message has an id."""

    options: tuple[str, ...] = ()
    retry: tuple[str, ...] = ("--source", "download")

    def __init__(self, url: str) -> None:
        self._url = url
        # The sources themselves are in pitboss.toml.
        self.settings = {f"PITBOSS_SOURCES__{name.upper()}__URL": url for name in _SOURCES}

    def send(self, manager: Manager, queue: str, message: dict[str, Any]) -> None:
        self.send_text(queue, json.dumps(message))

    def send_text(self, queue: str, text: str) -> bool:
        with self._channel() as channel:
            channel.queue_declare(queue, durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", queue, text.encode(), pika.BasicProperties(delivery_mode=2))
        return True

    def waiting(self) -> int:
        with self._channel() as channel:
            found = [channel.queue_declare(f"{name}_queue", passive=True) for name in _SOURCES]
        return sum(int(one.method.message_count) for one in found)

    def dead_letters(self) -> list[DeadLetter]:
        """Those of all three queues. They stay there: what is not acknowledged goes back when the channel closes."""
        with self._channel() as channel:
            return [letter for name in _SOURCES for letter in _all(channel, f"{name}_queue_dlq")]

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        try:
            yield connection.channel()
        finally:
            connection.close()


def _all(channel: BlockingChannel, queue: str) -> Iterator[DeadLetter]:
    while True:
        got, properties, body = channel.basic_get(queue)
        if got is None:
            return
        yield DeadLetter(queue, dict(properties.headers or {}), body.decode())
