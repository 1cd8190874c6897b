"""PostgreSQL under a crowd: settlers, putters of the same keys, sweeps and operators do not get in each other's way."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
from psycopg.errors import DeadlockDetected

from tests.faults.crowd import crowded, crowded_around_batches, deadlocks

DOINGS = ("put", "settlements applied", "reclaimed", "cancelled", "retried", "pruned")
SCARCE_DOINGS = ("create", "settlements applied", "operate", "change_members", "lease", "sweep", "cancel", "retry")
# `make soak` goes on for a minute.
SECONDS = 4


def test_a_crowd_meets_no_deadlock(durable_dsn: str) -> None:
    done, faults = crowded(durable_dsn, SECONDS)
    assert faults == []
    assert all(done[doing] > 0 for doing in DOINGS), done


def test_a_crowd_around_batches_and_resources_meets_no_deadlock(durable_dsn: str) -> None:
    done, faults = crowded_around_batches(durable_dsn, SECONDS)
    assert faults == []
    assert all(done[doing] > 0 for doing in SCARCE_DOINGS), done


def test_a_deadlock_would_be_counted(durable_dsn: str) -> None:
    with psycopg.connect(durable_dsn) as one, psycopg.connect(durable_dsn) as other:
        one.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 2) AS n")
        one.commit()
        _lock(one, 1)
        _lock(other, 2)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(_lock, one, 2)
            try:
                _lock(other, 1)
            except DeadlockDetected:
                other.rollback()
            with suppress(DeadlockDetected):
                waiting.result()
    assert deadlocks(durable_dsn) == 1


def _lock(connection: psycopg.Connection, row: int) -> None:
    connection.execute("SELECT n FROM t WHERE n = %s FOR UPDATE", (row,))
