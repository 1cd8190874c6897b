"""Eight settlers and everybody who may meet them on the same rows of PostgreSQL: no deadlock, no error."""

import asyncio
from collections import Counter

import msgspec
import psycopg

from tests.faults.children import together
from tests.faults.crowd_load import Deeds, miscounted

PROCESSES = 4


def crowded(
    dsn: str, seconds: float, load: str = "tests.faults.crowd_load", processes: int = PROCESSES
) -> tuple[Counter[str], list[str]]:
    """What was done altogether, and everything that was wrong."""
    many = [[dsn, str(seed), str(seconds)] for seed in range(processes)]
    with together(load, many) as children:
        all_deeds = [msgspec.json.decode(child.result(seconds + 60), type=Deeds) for child in children]
    done: Counter[str] = Counter()
    for deeds in all_deeds:
        done.update(deeds.done)
    faults = [error for deeds in all_deeds for error in deeds.errors]
    found = deadlocks(dsn)
    faults += [f"{found} deadlocks"] if found else []
    return done, faults + asyncio.run(miscounted(dsn))


def deadlocks(dsn: str) -> int:
    """The server's own count; the engine would repeat the call and say nothing."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])
