"""Procrastinate on PostgreSQL: two workers with 20 jobs at a time each, finished jobs deleted (the best way found)."""

import asyncio

import procrastinate

from benchmarks.peers.base import TEXT, Peer, store, tool
from benchmarks.tally import mark

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=store(), max_size=20))


@app.task(name="noop")
async def noop(n: int, text: str) -> None:
    mark(n)


class Procrastinate(Peer):
    packages = ("procrastinate", "psycopg", "psycopg-pool")
    sizes = (1000, 10_000)

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def prepare(self) -> None:
        self._runner.run(self._prepare())

    def one(self, first: int, count: int) -> None:
        self._runner.run(self._one(first, count))

    def many(self, first: int, count: int, size: int) -> None:
        self._runner.run(self._many(first, count, size))

    def workers(self) -> list[list[str]]:
        options = ["--concurrency", "20", "--delete-jobs", "always"]
        command = [tool("procrastinate"), "--app", f"{__name__}.app", "--log-level", "warning", "worker", *options]
        return [command, command]

    def left(self) -> int:
        return self._runner.run(self._left())

    def close(self) -> None:
        self._runner.run(app.close_async())
        self._runner.close()

    async def _prepare(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    async def _one(self, first: int, count: int) -> None:
        for n in range(first, first + count):
            await noop.defer_async(n=n, text=TEXT)

    async def _many(self, first: int, count: int, size: int) -> None:
        for begin in range(first, first + count, size):
            end = min(begin + size, first + count)
            await noop.batch_defer_async(*({"n": n, "text": TEXT} for n in range(begin, end)))

    async def _left(self) -> int:
        query = "SELECT count(*) AS left FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        return int((await app.connector.execute_query_one_async(query))["left"])


def make() -> Peer:
    return Procrastinate()
