"""What it costs to look at a full store: `python -m benchmarks.full_store [sqlite|postgres]`

There are two stores: one with 10,000 finished tasks, 1,000 failed and 1,000 pending, and one with a hundred times as
many. Each read is done on both: milliseconds (the fastest of three), and steps of SQLite's machine or pages of
PostgreSQL. It ends with exit code 1 if a read that an index serves costs more on the full store.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.stores import ENGINES
from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.protocol import FullStore
from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.filter import parsed
from pitboss.simulate.clock import FakeClock
from tests.engines.full_store import LOOKED_THROUGH, Read, fill, postgres_pages, reads, sqlite_steps
from tests.servers.postgres import PostgresServer

FEW, MANY = 10_000, 1_000_000
ROUNDS = 3
# These count, and reach their limit in the full store only.
LIMITED = ("status", "groups", "why: pending", "why: first", "list: state:held reason:handler")
# SQLite counts steps, and a step more or less for each level of an index.
SLACK = {"sqlite": 200, "postgres": 60}


class Cost(NamedTuple):
    millis: float
    counted: int


def _looked_through(text: str) -> Read:
    return lambda store: store.find(parsed(text), limit=20)


def _all_reads(marks: dict[str, str]) -> dict[str, Read]:
    return reads(marks) | {f"stops: {text}": _looked_through(text) for text in LOOKED_THROUGH}


async def on_sqlite(stored: int) -> dict[str, Cost]:
    with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder, pytest.MonkeyPatch.context() as patch:
        plain = SqliteEngine(Path(folder) / "store.db", clock=FakeClock())
        await plain.open()
        marks = await fill(plain, stored)
        with sqlite_steps(patch, each=10) as cost:
            counting = SqliteEngine(Path(folder) / "store.db", clock=FakeClock())
            await counting.open()

            async def counted(read: Read) -> int:
                return await cost.of(read, counting)

            found = await _measured(plain, _all_reads(marks), counted)
            await counting.close()
        await plain.close()
    return found


async def on_postgres(stored: int) -> dict[str, Cost]:
    with PostgresServer() as server, pytest.MonkeyPatch.context() as patch:
        dsn = await asyncio.to_thread(server.create_database)
        plain, counting = (PostgresEngine(dsn, clock=FakeClock(), listen=False) for _ in range(2))
        await plain.open()
        await counting.open()
        marks = await fill(plain, stored)
        with postgres_pages(patch, counting) as cost:

            async def counted(read: Read) -> int:
                return await cost.of(read, counting)

            found = await _measured(plain, _all_reads(marks), counted)
        await plain.close()
        await counting.close()
    return found


async def _measured(
    store: FullStore, all_reads: dict[str, Read], counted: Callable[[Read], Awaitable[int]]
) -> dict[str, Cost]:
    found = {}
    for name, read in all_reads.items():
        took = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await read(store)
            took.append(time.perf_counter() - began)
        found[name] = Cost(min(took) * 1000, await counted(read))
    return found


def report(kind: str, few: dict[str, Cost], many: dict[str, Cost]) -> bool:
    """Print the table; whether no read grew that an index serves."""
    unit = "steps" if kind == "sqlite" else "pages"
    print(f"\n| {kind} | {FEW:,}: ms | {unit} | {MANY:,}: ms | {unit} |\n|---|--:|--:|--:|--:|")
    grown = []
    for name, one in few.items():
        other = many[name]
        print(f"| {name} | {one.millis:.1f} | {one.counted:,} | {other.millis:.1f} | {other.counted:,} |")
        bounded = name in LIMITED or name.startswith("stops: ")
        if not bounded and other.counted > 1.3 * one.counted + SLACK[kind]:
            grown.append(name)
    print(
        f"\n{kind}: " + (f"these grew: {', '.join(grown)}" if grown else "no read grew that an index serves"),
        flush=True,
    )
    return not grown


def main() -> None:
    right = True
    for kind in sys.argv[1:] or ENGINES:
        measure = on_sqlite if kind == "sqlite" else on_postgres
        right &= report(kind, asyncio.run(measure(FEW)), asyncio.run(measure(MANY)))
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
