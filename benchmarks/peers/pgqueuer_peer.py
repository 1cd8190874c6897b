"""pgqueuer on PostgreSQL: two `pgq run` with batches of 100, or as the variant says; durable tables (its default)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.base import TEXT, Peer, store, tool, variant
from benchmarks.tally import mark


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """What `pgq run` runs."""
    connection = await asyncpg.connect(store())
    queue = PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        mark(json.loads(job.payload)["n"])

    yield queue
    await connection.close()


def _payload(n: int) -> bytes:
    return json.dumps({"n": n, "text": TEXT}).encode()


class Pgqueuer(Peer):
    packages = ("pgqueuer", "asyncpg", "uvloop")
    sizes = (1000, 10_000)

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def prepare(self) -> None:
        self._runner.run(self._prepare())

    def one(self, first: int, count: int) -> None:
        self._runner.run(self._one(first, count))

    def many(self, first: int, count: int, size: int) -> None:
        self._runner.run(self._many(first, count, size))

    def workers(self) -> list[list[str]]:
        options = ["--batch-size", variant() or "100", "--log-level", "WARNING"]
        command = [tool("pgq"), "run", f"{__name__}:main", *options]
        return [command, command]

    def left(self) -> int:
        return int(self._runner.run(self._connection.fetchval("SELECT count(*) FROM pgqueuer")))

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    async def _prepare(self) -> None:
        self._connection = await asyncpg.connect(store())
        self._queries = Queries(AsyncpgDriver(self._connection))
        await self._queries.install()

    async def _one(self, first: int, count: int) -> None:
        for n in range(first, first + count):
            await self._queries.enqueue("noop", _payload(n))

    async def _many(self, first: int, count: int, size: int) -> None:
        for begin in range(first, first + count, size):
            numbers = range(begin, min(begin + size, first + count))
            names, priorities = ["noop"] * len(numbers), [0] * len(numbers)
            await self._queries.enqueue(names, [_payload(n) for n in numbers], priorities)


def make() -> Peer:
    return Pgqueuer()
