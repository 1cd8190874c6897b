"""Dramatiq on Redis: `dramatiq -p 2 -t 8` (its default threads), no result backend (its default)."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.base import TEXT, Peer, store, tool
from benchmarks.tally import mark

broker = RedisBroker(url=store())
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n: int, text: str) -> None:
    mark(n)


class Dramatiq(Peer):
    packages = ("dramatiq", "redis", "hiredis")

    def prepare(self) -> None:
        broker.client.ping()

    def one(self, first: int, count: int) -> None:
        for n in range(first, first + count):
            noop.send(n, TEXT)

    def workers(self) -> list[list[str]]:
        return [[tool("dramatiq"), __name__, "--processes", "2", "--threads", "8"]]

    def left(self) -> int:
        return int(broker.client.hlen("dramatiq:default.msgs"))

    def close(self) -> None:
        broker.client.close()


def make() -> Peer:
    return Dramatiq()
