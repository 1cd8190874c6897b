"""Enqueueing in the caller's own transaction."""

import psycopg
import pytest
from psycopg.rows import dict_row

from pitboss.engines.postgres.faults import translated
from pitboss.model.errors import InvalidInput, QueueFull, StoreUnavailable
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import QueueChange
from pitboss.model.states import State
from pitboss.model.task import Placed, Unique
from tests.engines.postgres.yard import Yard

pytestmark = pytest.mark.fresh_loop


async def test_a_task_comes_with_the_caller_s_commit(yard: Yard) -> None:
    task = yard.new(params='{"a":"\\"\\\\"}', tags=("x", 'y"z'))
    with psycopg.connect(yard.dsn, row_factory=dict_row) as connection:
        connection.execute("CREATE TABLE orders (n int)")
        connection.execute("INSERT INTO orders VALUES (1)")
        assert yard.engine.put_within(connection, [task]) == [Placed(task.id, True, State.PENDING)]
        assert await yard.engine.get([task.id]) == [None]
        connection.commit()
    (found,) = await yard.engine.get([task.id])
    assert found is not None
    assert (found.params, found.tags) == (task.params, task.tags)
    assert await yard.engine.wait(["default"], 5)


async def test_a_task_goes_with_the_caller_s_rollback(yard: Yard) -> None:
    task = yard.new(unique=Unique("k"))
    with psycopg.connect(yard.dsn) as connection:
        yard.engine.put_within(connection, [task])
        connection.rollback()
    assert await yard.engine.get([task.id]) == [None]
    assert not await yard.engine.wait(None, 0.05)
    assert (await yard.engine.put([yard.new(unique=Unique("k"))]))[0].created


async def test_an_async_connection_is_awaited(yard: Yard) -> None:
    keep, drop = yard.new(), yard.new()
    async with await psycopg.AsyncConnection.connect(yard.dsn) as connection:
        assert [one.created for one in await yard.engine.put_within(connection, [keep])] == [True]
        await connection.commit()
        await yard.engine.put_within(connection, [drop])
        await connection.rollback()
    found = await yard.engine.get([keep.id, drop.id])
    assert [one is not None for one in found] == [True, False]


async def test_a_refusal_leaves_the_caller_s_transaction_usable(yard: Yard) -> None:
    await yard.engine.change_queue("small", QueueChange(capacity=1))
    with psycopg.connect(yard.dsn) as connection:
        connection.execute("CREATE TABLE orders (n int)")
        with pytest.raises(QueueFull) as refused:
            yard.engine.put_within(connection, yard.news(2, queue="small"))
        assert (refused.value.waiting, refused.value.asked) == (0, 2)
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.commit()
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    assert (await yard.engine.count(EVERYTHING)).number == 0


async def test_an_autocommit_connection_commits_at_once(yard: Yard) -> None:
    task = yard.new()
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        yard.engine.put_within(connection, [task])
        assert (await yard.engine.get([task.id]))[0] is not None


async def test_inside_a_transaction_block_of_the_driver(yard: Yard) -> None:
    task = yard.new()
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        with connection.transaction(force_rollback=True):
            yard.engine.put_within(connection, [task])
        assert await yard.engine.get([task.id]) == [None]


async def test_anything_else_is_refused(yard: Yard) -> None:
    with pytest.raises(InvalidInput, match="object"):
        yard.engine.put_within(object(), [yard.new()])  # type: ignore[arg-type]


def test_a_conflict_is_not_called_a_lost_connection() -> None:
    """A deadlock in the caller's transaction was described as a lost connection, which a repeated call mends."""
    for conflict in (psycopg.errors.DeadlockDetected(), psycopg.errors.SerializationFailure()):
        told = translated(conflict)
        assert isinstance(told, StoreUnavailable)
        assert "conflict" in told.what
        assert "as a whole" in told.fix
