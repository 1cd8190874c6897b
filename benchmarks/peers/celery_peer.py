"""Celery on Redis: prefork with its defaults, or two solo workers that prefetch 64 (the best way found)."""

import celery
import redis

from benchmarks.peers.base import TEXT, Peer, store, tool, variant
from benchmarks.tally import mark

app = celery.Celery("bench", broker=store())
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True
if variant() == "solo":
    app.conf.worker_prefetch_multiplier = 64


@app.task(name="noop")
def noop(n: int, text: str) -> None:
    mark(n)


class Celery(Peer):
    packages = ("celery", "kombu", "redis", "hiredis")

    def prepare(self) -> None:
        self._client = redis.Redis.from_url(store())

    def one(self, first: int, count: int) -> None:
        with app.producer_or_acquire() as producer:
            for n in range(first, first + count):
                noop.apply_async((n, TEXT), producer=producer)

    def workers(self) -> list[list[str]]:
        command = [tool("celery"), "-A", __name__, "worker", "--loglevel", "WARNING"]
        if variant() == "solo":
            return [[*command, "--pool", "solo", "-n", f"solo{k}@%h"] for k in (1, 2)]
        return [[*command, "--pool", "prefork", "--concurrency", "2"]]

    def left(self) -> int:
        return int(self._client.llen("celery")) + int(self._client.hlen("unacked"))

    def close(self) -> None:
        self._client.close()


def make() -> Peer:
    return Celery()
