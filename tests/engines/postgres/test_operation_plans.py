"""A portion of an operation finds its tasks by an index, with and without statistics."""

import psycopg
import pytest

from pitboss.engines.postgres.connections import STEADY_PLANS
from pitboss.engines.postgres.operations import portion
from pitboss.engines.postgres.script import Ask, Statements
from pitboss.model.filter import parsed
from pitboss.model.operation import NewOperation, Operation, Verb, begun
from tests.engines.postgres.yard import Yard

FILL = """
INSERT INTO pitboss.tasks (id, priority, created_at, finished_at, attempts, state, queue, handler, params)
SELECT gen_random_uuid(), 0, 1, 2, 1, CASE WHEN n % 20 = 0 THEN 'failed' ELSE 'completed' END, 'default', 'job', '{}'
FROM generate_series(1, 20000) AS n
"""


def asked(operation: Operation) -> tuple[Ask, list[Ask]]:
    """A setting for the transaction, and the statements with which a portion chooses its tasks."""
    script = portion(Statements("pitboss", ""), operation, 100, 5)
    setting, seen = next(script), script.send([])
    return setting, [seen, script.send([("01a3c000-0000-7000-8000-00000000000f",)])]


@pytest.mark.parametrize("analyzed", [False, True])
async def test_failed_tasks_are_found_by_id(yard: Yard, analyzed: bool) -> None:
    new = NewOperation(id="o", verb=Verb.RETRY, wanted=parsed("state:failed task:job"))
    setting, asks = asked(begun(new, 3))
    async with await psycopg.AsyncConnection.connect(yard.dsn) as connection:
        await connection.execute(FILL)
        if analyzed:
            await connection.execute("ANALYZE pitboss.tasks")
        for name, value in STEADY_PLANS.items():
            await connection.execute(f"SET {name} = {value}".encode())
        await connection.execute(setting.sql.encode())
        for ask in asks:
            rows = await (await connection.execute(f"EXPLAIN {ask.sql}".encode(), ask.values)).fetchall()
            plan = "\n".join(row[0] for row in rows)
            assert "tasks_failed_by_id" in plan, plan
            assert "Sort" not in plan, plan
