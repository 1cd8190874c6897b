"""PostgreSQL under a crowd: settlers, putters of the same keys, sweeps and operators do not get in each other's way."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
from psycopg.errors import DeadlockDetected

from tests.faults.crowd import crowded, deadlocks

DOINGS = ("put", "settlements applied", "reclaimed", "cancelled", "retried", "pruned")
SCARCE_DOINGS = ("create", "settlements applied", "operate", "change_members", "lease", "sweep", "cancel", "retry")
AMISS = {
    "a batch counts what is not so": """
        SELECT id, status, unfinished, real.n FROM pitboss.batches AS b, LATERAL (
            SELECT count(*) AS n FROM pitboss.tasks
            WHERE batch = b.id AND state NOT IN ('completed', 'failed', 'cancelled')
        ) AS real WHERE unfinished <> real.n
    """,
    "a batch has ended and has not": """
        SELECT id, status, unfinished FROM pitboss.batches
        WHERE (unfinished = 0) <> (status IN ('done', 'done_with_errors', 'cancelled'))
    """,
    "an item waits or runs although its batch does not": """
        SELECT t.id, t.state, b.status FROM pitboss.tasks AS t JOIN pitboss.batches AS b ON b.id = t.batch
        WHERE (t.state IN ('pending', 'scheduled') AND b.status <> 'running')
            OR (t.state = 'running' AND b.status NOT IN ('running', 'pausing', 'cancelling'))
    """,
    "figures of a batch": """
        SELECT batch, state, told.n, real.n FROM (
            SELECT batch, state, sum(n) AS n FROM (
                SELECT batch, state, n FROM pitboss.batch_counts
                UNION ALL SELECT batch, state, n FROM pitboss.count_deltas WHERE batch IS NOT NULL
            ) AS parts GROUP BY batch, state HAVING sum(n) <> 0
        ) AS told FULL JOIN (
            SELECT batch, state, count(*) AS n FROM pitboss.tasks WHERE batch IS NOT NULL GROUP BY batch, state
        ) AS real USING (batch, state) WHERE told.n IS DISTINCT FROM real.n
    """,
    "a member is held by others than it says": """
        SELECT pool, name, in_use, real.n FROM pitboss.resources AS r, LATERAL (
            SELECT (SELECT count(*) FROM pitboss.tasks AS t
                    WHERE state = 'running' AND resource = r.pool || '/' || r.name
                        AND started_at >= (r.settings::json ->> 'added_at')::bigint)
                + (SELECT count(*) FROM pitboss.leases AS l WHERE l.pool = r.pool AND l.name = r.name
                        AND leased_at >= (r.settings::json ->> 'added_at')::bigint) AS n
        ) AS real WHERE in_use <> real.n
    """,
}


def test_a_crowd_meets_no_deadlock(durable_dsn: str) -> None:
    done, faults = crowded(durable_dsn, 8)
    assert faults == []
    assert all(done[doing] > 0 for doing in DOINGS), done


def test_a_crowd_around_batches_and_resources_meets_no_deadlock(durable_dsn: str) -> None:
    done, faults = crowded(durable_dsn, 8, "tests.faults.scarce_crowd_load", 2)
    assert faults == []
    assert all(done[doing] > 0 for doing in SCARCE_DOINGS), done
    with psycopg.connect(durable_dsn, autocommit=True) as connection:
        wrong = [(what, row) for what, query in AMISS.items() for row in connection.execute(query.encode()).fetchall()]
    assert wrong == []


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
