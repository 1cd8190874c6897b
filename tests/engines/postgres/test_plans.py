"""Hot statements keep their plans: on a table without statistics, and with statistics that are wrong.

The plans looked at are the ones that the engine's own connection has prepared and keeps.
"""

import re

import psycopg
import pytest

from pitboss.model.outcome import Transition
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.states import State
from pitboss.model.task import Unique
from tests.engines.postgres.yard import Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=60)

_HOT = ("tasks", "attempts", "uniques", "starts")
_LIES = """
UPDATE pg_class SET reltuples = 1000000000, relpages = 1
WHERE relnamespace = 'pitboss'::regnamespace AND relname IN ('queues', 'sessions', 'handlers');
UPDATE pg_class SET reltuples = 0, relpages = 100000
WHERE relnamespace = 'pitboss'::regnamespace AND relname LIKE 'tasks%'
"""


async def _use(yard: Yard) -> None:
    """Every hot verb once, so that its statement is prepared."""
    await yard.engine.put([*yard.news(20), yard.new(unique=Unique("k")), yard.new(delay=1)])
    claims = (await yard.claim(5)).claims
    again = Transition(state=State.SCHEDULED, outcome="failed", delay=1, charged=True)
    await yard.engine.settle([*ends(claims[:2]), *ends(claims[2:], again)])
    request = ClaimRequest(session=yard.session.number, slots=(Slot(free=2),), handlers=frozenset({"else"}))
    await yard.engine.claim(request)
    await yard.engine.renew(yard.session.number)
    await yard.engine.reclaim()


async def _plans(yard: Yard) -> dict[str, str]:
    (connection,) = yard.engine._writing._idle
    rows = await (
        await connection.execute("SELECT name, statement, parameter_types::text[] FROM pg_prepared_statements")
    ).fetchall()
    plans = {}
    for name, statement, types in rows:
        if "pitboss" not in statement:
            continue
        values = ", ".join(f"NULL::{kind}" for kind in types)
        explain = f'EXPLAIN (COSTS OFF) EXECUTE "{name}"({values})' if types else f'EXPLAIN EXECUTE "{name}"'
        lines = await (await connection.execute(explain.encode(), prepare=False)).fetchall()
        plans[statement] = "\n".join(line for (line,) in lines)
    return plans


def _assert_steady(plans: dict[str, str]) -> None:
    assert len(plans) >= 8
    for statement, plan in plans.items():
        for table in _HOT:
            assert not re.search(rf"(Seq|Bitmap Heap) Scan on {table}\b", plan), f"{statement}\n{plan}"
    (claim,) = (plan for statement, plan in plans.items() if "SKIP LOCKED" in statement and "pooled" in statement)
    assert "Index Scan using tasks_pending" in claim
    assert "Tid Scan on tasks" in claim
    (settle,) = (plan for statement, plan in plans.items() if "judged" in statement)
    assert "Index Scan using tasks_pkey" in settle
    assert "Hash Join" not in settle
    assert "Tid Scan on tasks" in settle


async def test_plans_on_fresh_tables_without_statistics(yard: Yard) -> None:
    await _use(yard)
    _assert_steady(await _plans(yard))


async def test_plans_with_statistics_of_an_empty_table(yard: Yard) -> None:
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    await _use(yard)
    await yard.engine.put(yard.news(5000))
    _assert_steady(await _plans(yard))


async def test_plans_with_statistics_that_lie(yard: Yard) -> None:
    await yard.engine.put(yard.news(3000))
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        for lie in _LIES.split(";"):
            connection.execute(lie.encode())
    await _use(yard)
    _assert_steady(await _plans(yard))


async def test_a_claim_reads_no_more_rows_because_others_are_finished_scheduled_or_held(yard: Yard) -> None:
    await yard.engine.put([*yard.news(2000, delay=10**12), *yard.news(2000, handler="nobody"), *yard.news(2100)])
    await yard.engine.settle(ends((await yard.claim(2000)).claims))
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("VACUUM pitboss.tasks")
    before = await _read(yard)
    await yard.claim(10)
    assert await _read(yard) - before < 300


async def _read(yard: Yard) -> int:
    """Pages of tasks and its indexes that were touched so far."""
    (connection,) = yard.engine._writing._idle
    await connection.execute("SELECT pg_stat_force_next_flush()")
    return await yard.count(
        "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_all_tables"
        " WHERE schemaname = 'pitboss' AND relname = 'tasks'"
    )
