"""What `pgq run` runs; `python -m benchmarks.boards.pgqueuer_app 2000` creates the tables and puts the jobs."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.boards.plan import pages


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    connection = await asyncpg.connect(os.environ["PGQUEUER_DSN"])
    queue = PgQueuer(AsyncpgDriver(connection))

    # Only held jobs can be retried.
    @queue.entrypoint("work", on_failure="hold")
    async def work(job: Job) -> None:
        if not json.loads(job.payload)["good"]:
            raise RuntimeError("no")

    yield queue
    await connection.close()


async def fill(tasks: int) -> None:
    connection = await asyncpg.connect(os.environ["PGQUEUER_DSN"])
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for page in pages(tasks):
        payloads = [json.dumps(one).encode() for one in page]
        await queries.enqueue(["work"] * len(page), payloads, [0] * len(page))
    await connection.close()


if __name__ == "__main__":
    asyncio.run(fill(int(sys.argv[1])))
