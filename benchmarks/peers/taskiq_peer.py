"""Taskiq on Redis, by stream (acknowledged) or by list (not): `taskiq worker --workers 2`, 100 at once, no results."""

import asyncio

import uvloop
from redis.asyncio import Redis
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from benchmarks.peers.base import TEXT, Peer, store, tool, variant
from benchmarks.tally import mark

_AT_ONCE = 100

broker = ListQueueBroker(store()) if variant() == "list" else RedisStreamBroker(store())


@broker.task(task_name="noop")
async def noop(n: int, text: str) -> None:
    mark(n)


class Taskiq(Peer):
    packages = ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop")

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def prepare(self) -> None:
        # Also creates the stream's group; without it, workers would not see earlier tasks.
        self._runner.run(broker.startup())

    def one(self, first: int, count: int) -> None:
        self._runner.run(self._put(first, count, 1))

    def best(self, first: int, count: int) -> None:
        self._runner.run(self._put(first, count, _AT_ONCE))

    def workers(self) -> list[list[str]]:
        options = ["--workers", "2", "--max-async-tasks", "100", "--log-level", "WARNING"]
        return [[tool("taskiq"), "worker", f"{__name__}:broker", *options]]

    def left(self) -> int:
        return self._runner.run(self._left())

    def close(self) -> None:
        self._runner.run(broker.shutdown())
        self._runner.close()

    async def _put(self, first: int, count: int, at_once: int) -> None:
        for begin in range(first, first + count, at_once):
            end = min(begin + at_once, first + count)
            await asyncio.gather(*(noop.kiq(n, TEXT) for n in range(begin, end)))

    async def _left(self) -> int:
        async with Redis(connection_pool=broker.connection_pool) as client:
            if variant() == "list":
                return int(await client.llen(broker.queue_name))
            group = (await client.xinfo_groups(broker.queue_name))[0]
            return int(group["pending"]) + int(group["lag"] or 0)


def make() -> Peer:
    return Taskiq()
