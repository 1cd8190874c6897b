"""Eight settlers and all clients that may meet them on the same rows of PostgreSQL: no deadlock, no error."""

import asyncio
from collections import Counter

import msgspec
import psycopg

from tests.faults.children import together
from tests.faults.crowd_load import Deeds, miscounted

PROCESSES = 4
# What must be found nowhere after a crowd around batches and members.
WRONG = {
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


def crowded_around_batches(dsn: str, seconds: float) -> tuple[Counter[str], list[str]]:
    """The same with batches, members of a pool and leases."""
    done, faults = crowded(dsn, seconds, "tests.faults.scarce_crowd_load", 2)
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = {what: connection.execute(query.encode()).fetchall() for what, query in WRONG.items()}
    return done, faults + [f"{what}: {row}" for what, rows in found.items() for row in rows]


def deadlocks(dsn: str) -> int:
    """The server's own count; the engine would repeat the call and say nothing."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])
