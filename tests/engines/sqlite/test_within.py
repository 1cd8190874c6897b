"""Enqueueing and publishing in the caller's own transaction."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from pitboss.engines.protocol import Within
from pitboss.model.declared import Declared
from pitboss.model.errors import InvalidInput, QueueFull, StoreUnavailable
from pitboss.model.event import NewEvent, Published, Subscription
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import QueueChange
from pitboss.model.states import State
from pitboss.model.task import Placed, Unique
from tests.engines.sqlite.store import new, opened, session_of

pytestmark = pytest.mark.fresh_loop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def mine(path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's connection, with a table of the caller."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


async def test_it_is_stored_with_the_callers_commit(path: Path, mine: sqlite3.Connection) -> None:
    async with opened(path) as engine:
        assert isinstance(engine, Within)
        await session_of(engine)
        mine.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
        mine.execute("INSERT INTO orders VALUES (1)")
        task = new()
        assert engine.put_within(mine, [task]) == [Placed(task.id, True, State.PENDING)]
        assert (await engine.count(EVERYTHING)).number == 0
        mine.commit()
        assert (await engine.count(EVERYTHING)).number == 1
        assert [queue.counts for queue in await engine.queues()] == [{State.PENDING: 1}]
        assert mine.row_factory is sqlite3.Row


async def test_it_goes_with_the_callers_rollback(path: Path, mine: sqlite3.Connection) -> None:
    async with opened(path) as engine:
        mine.execute("BEGIN IMMEDIATE")
        engine.put_within(mine, [new(unique=Unique("k"))])
        mine.rollback()
        assert (await engine.count(EVERYTHING)).number == 0
        assert await engine.queues() == []
        ((placed),) = await engine.put([new(unique=Unique("k"))])
        assert placed.created


async def test_a_refusal_leaves_the_callers_transaction_as_it_was(path: Path, mine: sqlite3.Connection) -> None:
    async with opened(path) as engine:
        await engine.change_queue("small", QueueChange(capacity=1))
        mine.execute("CREATE TABLE orders (id INTEGER)")
        mine.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(QueueFull):
            engine.put_within(mine, [new(queue="small"), new(queue="small")])
        assert mine.in_transaction
        mine.commit()
        assert mine.execute("SELECT count(*) FROM orders").fetchone()[0] == 1
        assert (await engine.count(EVERYTHING)).number == 0


async def test_without_a_transaction_it_is_refused(path: Path, mine: sqlite3.Connection) -> None:
    async with opened(path) as engine:
        with pytest.raises(InvalidInput, match="no open transaction") as caught:
            engine.put_within(mine, [new()])
        assert "BEGIN" in caught.value.fix


async def test_another_database_is_refused(path: Path, tmp_path: Path) -> None:
    async with opened(path) as engine:
        for other in (tmp_path / "other.db", ":memory:"):
            with closing(sqlite3.connect(other)) as connection:
                connection.execute("BEGIN")
                with pytest.raises(InvalidInput, match="not on"):
                    engine.put_within(connection, [new()])


async def test_an_event_is_published_with_the_callers_commit(path: Path, mine: sqlite3.Connection) -> None:
    async with opened(path) as engine:
        session = await session_of(engine)
        wanted = (Subscription(handler="job", pattern="user.*", ordered=True),)
        await engine.declare(Declared(app="shop", subscriptions=wanted), session=session.number)
        event = NewEvent(id=new().id, name="user.signup", key="k")
        mine.execute("BEGIN IMMEDIATE")
        assert engine.publish_within(mine, [event]) == [Published(event.id, True, ("job",))]
        mine.rollback()
        assert (await engine.events(), (await engine.count(EVERYTHING)).number, await engine.queues()) == ([], 0, [])
        mine.execute("BEGIN IMMEDIATE")
        engine.publish_within(mine, [event])
        engine.put_within(mine, [new(order_key="job/k")])
        mine.commit()
        assert [one.id for one in await engine.events()] == [event.id]
        assert [queue.counts for queue in await engine.queues()] == [{State.PENDING: 1, State.HELD: 1}]


async def test_events_that_cannot_be_published_leave_the_transaction_as_it_was(
    path: Path, mine: sqlite3.Connection
) -> None:
    async with opened(path) as engine:
        mine.execute("CREATE TABLE orders (id INTEGER)")
        mine.execute("INSERT INTO orders VALUES (1)")
        good, bad = NewEvent(id=new().id, name="x"), NewEvent(id=new().id, name="x", data=cast("str", object()))
        with pytest.raises(StoreUnavailable):
            engine.publish_within(mine, [good, bad])
        mine.commit()
        assert mine.execute("SELECT count(*) FROM orders").fetchone()[0] == 1
        assert await engine.events() == []
