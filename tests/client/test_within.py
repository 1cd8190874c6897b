"""Enqueueing inside the caller's own transaction, and straight from the caller's thread."""

import asyncio
import sqlite3
from pathlib import Path

import psycopg
import pytest

from pitboss import App, InvalidInput, QueueFull, State
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import QueueChange


def declared(url: str) -> App:
    app = App(url)

    @app.task
    def bill(order: int) -> None: ...

    return app


def stored(app: App) -> list[tuple[str, State]]:
    engine = app._connected().engine

    async def find(_: object) -> list[tuple[str, State]]:
        return [(task.params, task.state) for task in (await engine.find(EVERYTHING, oldest_first=True)).tasks]

    return app.ask(find, limit=10, what="finding")


def test_sqlite_tasks_share_the_fate_of_the_caller_s_rows(tmp_path: Path) -> None:
    with declared(f"sqlite:///{tmp_path}/shop.db") as app:
        bill = app.handlers["bill"]
        bill.enqueue(order=1)
        connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        connection.execute("CREATE TABLE orders (id INTEGER)")
        for order, end in ((2, "COMMIT"), (3, "ROLLBACK")):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO orders VALUES (?)", (order,))
            assert bill.using(within=connection).enqueue(order=order).created
            connection.execute(end)
        assert connection.execute("SELECT id FROM orders").fetchall() == [(2,)]
        connection.close()
        assert stored(app) == [('{"order":1}', State.PENDING), ('{"order":2}', State.PENDING)]


def test_a_first_enqueue_within_a_transaction_is_held_not_stuck(tmp_path: Path) -> None:
    with declared(f"sqlite:///{tmp_path}/shop.db") as first:
        first.ask(lambda client: client.store.handlers(), limit=10, what="opening")
    with declared(f"sqlite:///{tmp_path}/shop.db") as app:
        connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        app.handlers["bill"].using(within=connection).enqueue(order=1)
        connection.execute("COMMIT")
        connection.close()
        assert stored(app) == [('{"order":1}', State.HELD)]
        app.handlers["bill"].enqueue(order=2)
        assert [state for _, state in stored(app)] == [State.PENDING, State.PENDING]


def test_postgres_tasks_share_the_fate_of_the_caller_s_rows(postgres_dsn: str) -> None:
    with declared(postgres_dsn) as app:
        bill = app.handlers["bill"]
        with psycopg.connect(postgres_dsn) as connection:
            bill.using(within=connection).enqueue(order=1)
        with psycopg.connect(postgres_dsn) as connection:
            bill.using(within=connection).enqueue(order=2)
            connection.rollback()

        async def later() -> None:
            async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
                await bill.using(within=connection).aenqueue(order=3)

        asyncio.run(later())
        assert stored(app) == [('{"order":1}', State.PENDING), ('{"order":3}', State.PENDING)]


def test_a_store_without_transactions_says_so() -> None:
    with declared("memory://") as app, pytest.raises(InvalidInput, match="cannot enqueue within"):
        app.handlers["bill"].using(within=object()).enqueue(order=1)


def test_what_is_asked_straight_from_the_thread_keeps_its_meaning(tmp_path: Path) -> None:
    with declared(f"sqlite:///{tmp_path}/shop.db") as app:
        bill = app.handlers["bill"]
        first = bill.using(key="a").enqueue(order=1)
        assert bill.using(key="a").enqueue(order=1).id == first.id
        engine = app._connected().engine
        app.ask(lambda _: engine.change_queue("default", QueueChange(capacity=1)), limit=10, what="limiting")
        with pytest.raises(QueueFull):
            bill.enqueue(order=2)
        with pytest.raises(QueueFull):
            bill.using(wait="50ms").enqueue(order=2)
        first.cancel()
        assert bill.using(wait="1s").enqueue(order=2).created


def test_sqlite_events_share_the_fate_of_the_caller_s_rows(tmp_path: Path) -> None:
    with App(f"sqlite:///{tmp_path}/shop.db", name="shop") as app:

        @app.event_handler("paid")
        def book(data: dict[str, int]) -> None: ...

        app.event("paid", dict[str, int])
        assert app.publish("paid", {"order": 1}).handlers == ("book",)
        connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        for order, end in ((2, "COMMIT"), (3, "ROLLBACK")):
            connection.execute("BEGIN IMMEDIATE")
            assert app.publish("paid", {"order": order}, within=connection).handlers == ("book",)
            with pytest.raises(InvalidInput, match="does not fit the event"):
                app.publish("paid", {"order": "x"}, within=connection)
            connection.execute(end)
        connection.close()
        assert sorted(params for params, _ in stored(app)) == ['{"data":{"order":1}}', '{"data":{"order":2}}']


@pytest.mark.parametrize("known", [False, True])
def test_a_first_event_within_a_transaction_does_not_miss_its_handlers(tmp_path: Path, known: bool) -> None:
    """Neither does it wait for the caller's own lock."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with declared(url) as first:
        first.ask(lambda client: client.store.handlers(), limit=10, what="opening")
    with App(url, name="shop") as app:

        @app.event_handler("paid")
        def book(data: int) -> None: ...

        if known:
            app.declare()
            app.close()
        connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        if known:
            assert app.publish("paid", 1, within=connection).handlers == ("book",)
        else:
            with pytest.raises(InvalidInput, match=r"call app\.declare"):
                app.publish("paid", 1, within=connection)
        connection.execute("COMMIT")
        connection.close()


@pytest.mark.parametrize("call", ["publish", "publish_many", "enqueue"])
def test_a_transaction_on_a_file_without_tables_is_refused_at_once(tmp_path: Path, call: str) -> None:
    """It was blamed on another program, while the caller's own transaction kept the tables from being made."""
    with App(f"sqlite:///{tmp_path}/shop.db", name="shop") as app:

        @app.event_handler("paid")
        def book(data: int) -> None: ...

        @app.task
        def bill(order: int) -> None: ...

        def calls() -> None:
            match call:
                case "publish":
                    app.publish("paid", 1, within=connection)
                case "publish_many":
                    app.publish_many("paid", [1], within=connection)
                case _:
                    bill.using(within=connection).enqueue(order=1)

        connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(InvalidInput, match=r"no tables of Pitboss[\s\S]*app\.declare\(\)"):
            calls()
        assert connection.in_transaction, "what to do with it is the caller's decision"
        connection.execute("COMMIT")
        app.declare()
        connection.execute("BEGIN IMMEDIATE")
        calls()
        connection.execute("COMMIT")
        connection.close()
        assert [state for _, state in stored(app)] == [State.PENDING]
