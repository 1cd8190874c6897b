"""`app.publish_to`: a message to a broker is stored with what causes it. `tests/sources` has its way to the broker."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pitboss import App, InvalidInput
from pitboss.model.canonical import from_json
from pitboss.model.filter import EVERYTHING
from pitboss.model.message import read_stored
from pitboss.model.source import SourceSpec, outbox
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.testing.sandbox import sandbox

LONG = "ü" * 128


def source(name: str = "one") -> SourceSpec:
    return SourceSpec(name=name, url="amqp://h", queue="in", handler="work", dead_letter_queue="in_dlq")


def with_sources(url: str, *names: str) -> App:
    """An app on a store that a manager with these sources has used."""
    app = App(url)
    infos = [source(name).outbox_info("app.py") for name in names]
    app.ask(lambda client: client.store.register(infos), limit=10, what="registering")
    return app


def stored(app: App) -> list[Task]:
    engine = app._connected().engine

    async def find(_: object) -> list[Task]:
        return list((await engine.find(EVERYTHING, oldest_first=True)).tasks)

    return app.ask(find, limit=10, what="finding")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


def test_a_message_is_a_task_of_the_outbox(url: str) -> None:
    with with_sources(url, "one") as app:
        handle = app.publish_to("results", {"size": 1}, headers={"h": [1]}, message_id="m1")
        (task,) = stored(app)
    assert (task.id, task.handler, task.queue, task.state) == (handle.id, outbox("one"), outbox("one"), State.PENDING)
    out = read_stored(task.params)
    assert (out.routing_key, out.exchange, out.body) == ("results", "", b'{"size":1}')
    assert (out.properties.message_id, out.properties.headers) == ("m1", {"h": [1]})


async def test_async_callers_publish_too(tmp_path: Path) -> None:
    app = await asyncio.to_thread(with_sources, f"sqlite:///{tmp_path}/shop.db", "one")
    await app.apublish_to("video.done", b"\xff\x00", exchange="media")
    (task,) = await asyncio.to_thread(stored, app)
    out = read_stored(task.params)
    assert (out.exchange, out.routing_key, out.body) == ("media", "video.done", b"\xff\x00")
    await asyncio.to_thread(app.close)


def test_a_message_shares_the_fate_of_the_callers_transaction_in_sqlite(tmp_path: Path) -> None:
    with with_sources(f"sqlite:///{tmp_path}/shop.db", "one") as app:
        connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        for text, end in (("kept", "COMMIT"), ("gone", "ROLLBACK")):
            connection.execute("BEGIN IMMEDIATE")
            app.publish_to("results", text, within=connection)
            connection.execute(end)
        connection.close()
        assert [read_stored(task.params).body for task in stored(app)] == [b'"kept"']


def test_a_message_shares_the_fate_of_the_callers_transaction_in_postgres(postgres_dsn: str) -> None:
    with with_sources(postgres_dsn, "one") as app, psycopg.connect(postgres_dsn) as connection:
        app.publish_to("results", "kept", within=connection)
        assert stored(app) == []
        connection.commit()
        app.publish_to("results", "gone", within=connection)
        connection.rollback()
        assert [read_stored(task.params).body for task in stored(app)] == [b'"kept"']


async def test_a_message_shares_the_fate_of_an_async_transaction(postgres_dsn: str) -> None:
    app = await asyncio.to_thread(with_sources, postgres_dsn, "one")
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
        await app.apublish_to("results", "kept", within=connection)
        await connection.commit()
        await app.apublish_to("results", "gone", within=connection)
        await connection.rollback()
    assert [read_stored(task.params).body for task in await asyncio.to_thread(stored, app)] == [b'"kept"']
    await asyncio.to_thread(app.close)


def test_a_handler_publishes_as_its_child() -> None:
    app = App("memory://")

    @app.task(max_attempts=2, backoff="1s")
    async def work() -> None:
        await app.apublish_to("results", {"a": 1})

    with sandbox(app) as box:
        app.ask(lambda client: client.store.register([source().outbox_info("x")]), limit=10, what="registering")
        handle = work.enqueue()
        box.drain()
        (message,) = box.tasks(task=outbox("one"))
        assert message.parent == handle.id
        assert message.state is State.PENDING, "no worker takes it"


def test_the_source_may_be_left_out_if_there_is_one(tmp_path: Path) -> None:
    with with_sources(f"sqlite:///{tmp_path}/shop.db", "one", "two") as app:
        with pytest.raises(InvalidInput, match="not clear which source") as refused:
            app.publish_to("results", {})
        assert refused.value.why == "the sources of this store are one, two"
        app.publish_to("results", {}, source="two")
        assert [task.handler for task in stored(app)] == [outbox("two")]
        with pytest.raises(InvalidInput, match='there is no source "three"'):
            app.publish_to("results", {}, source="three")


def test_a_store_without_sources_says_what_to_do(tmp_path: Path) -> None:
    with App(f"sqlite:///{tmp_path}/shop.db") as app:
        with pytest.raises(InvalidInput, match="this store has no source of messages") as refused:
            app.publish_to("results", {})
        assert "[sources.NAME]" in refused.value.fix
        assert stored(app) == []


def test_a_source_that_is_added_later_is_found_at_once(tmp_path: Path) -> None:
    """What is known of sources is kept for some seconds, but not that there is none."""
    with with_sources(f"sqlite:///{tmp_path}/shop.db") as app:
        with pytest.raises(InvalidInput):
            app.publish_to("results", {})
        app.ask(lambda client: client.store.register([source().outbox_info("x")]), limit=10, what="registering")
        app.publish_to("results", {})
        assert len(stored(app)) == 1


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        (("", {}), {}, "cannot be the queue"),
        ((LONG, {}), {}, "cannot be the queue"),
        ((5, {}), {}, "cannot be the queue"),
        (("q", {}), {"exchange": LONG}, "cannot be the exchange"),
        (("q", {}), {"message_id": LONG}, "cannot be the message id"),
        (("q", float("nan")), {}, "nan"),
        (("q", object()), {}, "object"),
        (("q", {"a": "b\0"}), {}, "NUL"),
        (("q", "x" * 1_100_000), {}, "bytes"),
        (("q", {}), {"headers": {"a": 2**70}}, "64 bits"),
        (("q", {}), {"headers": {"a": 2**63}}, "headers cannot be sent"),
        (("q", {}), {"headers": {LONG: 1}}, "headers cannot be sent"),
        (("q", {}), {"headers": {"a": "x" * 130_000}}, "headers cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is_stored(
    tmp_path: Path, arguments: tuple[Any, Any], options: dict[str, Any], told: str
) -> None:
    with with_sources(f"sqlite:///{tmp_path}/shop.db", "one") as app:
        with pytest.raises(InvalidInput, match=told):
            app.publish_to(*arguments, **options)
        assert stored(app) == []


def test_an_exchange_needs_no_routing_key(tmp_path: Path) -> None:
    with with_sources(f"sqlite:///{tmp_path}/shop.db", "one") as app:
        app.publish_to("", {}, exchange="fanout")
        (task,) = stored(app)
        assert from_json(task.params)["exchange"] == "fanout"
