"""What the peers on RabbitMQ share: a plain connection that fills and counts queues. Needs pika."""

import os
from collections.abc import Iterable

import pika

BROKER = "BENCH_BROKER"
_PERSISTENT = 2


def broker_url() -> str:
    """The broker's URL; workers inherit the variable from the producer."""
    return os.environ[BROKER]


class PlainProducer:
    """A producer that knows only a queue, and does not wait for confirms."""

    def __init__(self) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{broker_url()}?heartbeat=600"))
        self._channel = self._connection.channel()

    def declare(self, queue: str) -> None:
        self._channel.queue_declare(queue, durable=True)

    def fill(self, queue: str, bodies: Iterable[tuple[bytes, str | None]]) -> None:
        """Publish bodies with their ids. When this returns, all are in the queue."""
        for body, known in bodies:
            properties = pika.BasicProperties(delivery_mode=_PERSISTENT, message_id=known)
            self._channel.basic_publish("", queue, body, properties)
        # The broker answers when it has done what came before on the channel.
        self.count(queue)

    def count(self, queue: str) -> int:
        """How many messages wait; those that a consumer holds are not counted."""
        return int(self._channel.queue_declare(queue, passive=True).method.message_count)

    def close(self) -> None:
        self._connection.close()
