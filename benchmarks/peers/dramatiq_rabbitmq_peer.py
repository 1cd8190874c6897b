"""Dramatiq on RabbitMQ: messages are acknowledged after the run; `send` waits for the broker's confirm.

The variant is "PROCESSES.THREADS.PREFETCH".
"""

import os
from collections.abc import Callable

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from benchmarks.peers.base import TEXT, Peer, tool, variant
from benchmarks.peers.rabbitmq import PlainProducer, broker_url
from benchmarks.tally import mark

QUEUE = "default"
broker = RabbitmqBroker(url=broker_url(), confirm_delivery=True)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n: int, text: str) -> None:
    mark(n)


class Dramatiq(Peer):
    packages = ("dramatiq", "pika")

    def __init__(self) -> None:
        self._processes, self._threads, prefetch = variant().split(".")
        os.environ["dramatiq_queue_prefetch"] = prefetch  # noqa: SIM112
        self._producer = PlainProducer()

    def prepare(self) -> None:
        broker.declare_queue(QUEUE, ensure=True)

    def one(self, first: int, count: int) -> None:
        for n in range(first, first + count):
            noop.send(n, TEXT)

    def best(self, first: int, count: int) -> None:
        """Without confirms, for a backlog: how it came into the queue is not measured."""
        self._producer.fill(QUEUE, ((noop.message(n, TEXT).encode(), None) for n in range(first, first + count)))

    def publishers(self) -> dict[str, Callable[[int, int], None]]:
        return {"send": self.one}

    def workers(self) -> list[list[str]]:
        return [[tool("dramatiq"), __name__, "--processes", self._processes, "--threads", self._threads]]

    def left(self) -> int:
        """What a worker holds is not counted."""
        return self._producer.count(QUEUE)

    def close(self) -> None:
        self._producer.close()
        broker.close()


def make() -> Peer:
    return Dramatiq()
