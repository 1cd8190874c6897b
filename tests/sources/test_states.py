"""The states of sources that a broker or a store causes: named in `pitboss status` within 5 s, and over within 5 s.

`test_outbox.py` has those of an alarm and of messages that reach no queue, `test_taking_in.py` the one that stands by.
"""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from pitboss.engines.amqp.consuming import AmqpConsuming
from pitboss.model.errors import StoreUnavailable
from pitboss.model.queue import HandlerInfo
from pitboss.model.source import SourceState
from pitboss.model.task import NewTask, Placed
from tests.servers.postgres import free_port
from tests.servers.rabbitmq import RabbitServer
from tests.servers.relay import Relay
from tests.sources.stage import DLQ, QUEUE, Stage, until, until_true


async def works(stage: Stage) -> None:
    """Messages come in and go out."""
    before = len(await stage.tasks())
    await stage.send({"number": before, "bad": True})
    await stage.stored(before + 1)
    await stage.ran()
    await stage.dead(1)


class LateServer(Relay):
    """The broker at a port where nothing was before."""

    def __init__(self, target: int, port: int) -> None:
        super().__init__(target)
        self._listener.close()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = port


async def test_a_broker_that_is_away_at_the_start_is_waited_for(sqlite_stage: Stage) -> None:
    stage, port = sqlite_stage, free_port()
    running = await stage.start(stage.spec(url=stage.rabbit.url(stage.vhost, port=port)), running=False)
    said = await running.told(SourceState.AWAY)
    assert f"127.0.0.1:{port}" in said
    assert running.state(out=True) is SourceState.AWAY
    with LateServer(stage.rabbit.port, port):
        await running.well()
        await works(stage)
        await stage.stop(running)


async def test_a_broker_that_is_stopped_is_connected_again_when_it_is_back(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    running = await stage.start()
    await stage.send_numbers(5)
    await stage.taken_in()
    await asyncio.to_thread(stage.rabbit.stop)
    try:
        await running.told(SourceState.AWAY)
        assert running.state(out=True) is SourceState.AWAY
    finally:
        # Not in another thread: the kernel would end the server with it.
        stage.rabbit.start()
    await running.well()
    await stage.connect()
    await works(stage)
    assert any("source one takes no messages (away)" in line for line in running.lines)
    await until(lambda: "source one takes messages again" in running.lines, within=5)


async def test_a_connection_that_an_operator_closes_is_made_again(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    running = await stage.start()
    stage.rabbit.close_connections()
    await running.until(SourceState.AWAY, within=5)
    assert "closed by an operator" in running.figures().why
    await running.until(SourceState.RUNNING, within=5)
    await running.until(SourceState.RUNNING, out=True, within=5)
    await stage.connect()
    await works(stage)


async def test_a_refused_password_is_named_and_over_when_it_is_right(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    user = "ann"
    running = await stage.start(stage.spec(url=stage.rabbit.url(stage.vhost, user)), running=False)
    said = await running.told(SourceState.REFUSED)
    assert 'refuses the user "ann"' in said
    await until(lambda: any("source one publishes nothing (refused)" in line for line in running.lines))
    stage.rabbit.make_user(user)
    stage.rabbit.permit(user, stage.vhost)
    await running.well()
    await works(stage)
    await stage.stop(running)
    stage.rabbit.delete_user(user)


async def test_a_refused_permission_is_named_and_over_when_it_is_given(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    user = stage.rabbit.make_user("bob")
    await stage.producer.queue(DLQ, "classic")
    stage.rabbit.permit(user, stage.vhost, read="^$")
    running = await stage.start(stage.spec(url=stage.rabbit.url(stage.vhost, user)), running=False)
    said = await running.told(SourceState.REFUSED)
    assert "ACCESS_REFUSED" in said
    stage.rabbit.permit(user, stage.vhost)
    await running.well()
    await works(stage)
    await stage.stop(running)
    stage.rabbit.delete_user(user)


async def test_a_refused_publish_is_named_and_over_when_it_is_permitted(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    user = stage.rabbit.make_user("cid")
    stage.rabbit.permit(user, stage.vhost)
    running = await stage.start(stage.spec(url=stage.rabbit.url(stage.vhost, user)))
    stage.rabbit.permit(user, stage.vhost, write="^$")
    await stage.publish(DLQ, {"a": 1})
    said = await running.told(SourceState.REFUSED, out=True)
    assert "ACCESS_REFUSED" in said
    assert running.state() is SourceState.RUNNING
    stage.rabbit.permit(user, stage.vhost)
    await running.well()
    await stage.dead(1)
    await stage.stop(running)
    stage.rabbit.delete_user(user)


async def test_a_missing_queue_is_waited_for(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    running = await stage.start(stage.spec(queue="later"), running=False)
    said = await running.told(SourceState.MISSING)
    assert "later" in said
    await stage.producer.queue("later", "classic")
    await running.well()
    await stage.send_numbers(1, queue="later")
    await stage.stored(1)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_missing_queue_is_made_if_asked_for(sqlite_stage: Stage, kind: str) -> None:
    stage = sqlite_stage
    await stage.start(stage.spec(queue="made", create=kind))
    await stage.send_numbers(3, queue="made")
    await stage.stored(3)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_queue_that_is_deleted_while_it_is_consumed_is_missing(sqlite_stage: Stage, kind: str) -> None:
    stage = sqlite_stage
    await stage.producer.queue("line", "quorum" if kind == "quorum" else "classic")
    running = await stage.start(stage.spec(queue="line"))
    stage.rabbit.delete_queue(stage.vhost, "line")
    await running.told(SourceState.MISSING)
    await stage.producer.queue("line", "classic")
    await running.well()
    await stage.send_numbers(1, queue="line")
    await stage.stored(1)


@pytest.mark.parametrize("exclusive", [True, False])
async def test_a_queue_that_another_program_consumes_is_in_use(sqlite_stage: Stage, exclusive: bool) -> None:
    stage = sqlite_stage
    other: AmqpConsuming = stage.reader
    await other.consume(QUEUE, prefetch=1, exclusive=exclusive, heard=lambda _: None, ended=lambda _: None)
    running = await stage.start(running=False)
    said = await running.told(SourceState.IN_USE)
    assert "another consumer" in said.lower()
    await other.stop()
    await running.well()
    await works(stage)


async def test_a_full_queue_is_named_until_there_is_room(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.limit("narrow", 2)
    running = await stage.start(stage.spec("narrow"))
    await stage.send_numbers(3)
    said = await running.told(SourceState.FULL)
    assert '"narrow"' in said
    await stage.ran(2)
    await running.well()


async def test_a_handler_that_is_not_registered_is_named_until_it_is(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    running = await stage.start(stage.spec("later"), running=False)
    said = await running.told(SourceState.NO_HANDLER)
    assert '"later"' in said
    await stage.store.register([HandlerInfo(name="later")])
    await running.well()


async def test_a_store_that_is_away_is_named_until_it_is_back(sqlite_stage: Stage) -> None:
    """It cannot be told through the store itself, but to the manager."""
    stage = sqlite_stage
    store = await stage.open_store()
    put, away = store.put, True

    async def refused(tasks: Sequence[NewTask]) -> list[Placed]:
        if away:
            raise StoreUnavailable("the store is away", why="a test", fix="wait")
        return list(await put(tasks))

    store.put = refused  # type: ignore[method-assign]
    running = await stage.start(store=store)
    await stage.send_numbers(1)
    await until(lambda: "source one takes no messages (store): the store is away" in running.lines, within=5)
    away = False
    await until(lambda: "source one takes messages again" in running.lines, within=5)
    await stage.taken_in()
    assert await stage.numbers() == [0]


async def test_a_late_acknowledgement_ends_the_consumption_and_it_begins_again(
    sqlite_stage: Stage, rabbit_server: RabbitServer
) -> None:
    """The broker's consumer_timeout: a store that is away for long may hold messages for longer."""
    stage = sqlite_stage
    rabbit_server.set_consumer_timeout(100)
    store = await stage.open_store()
    go, put = asyncio.Event(), store.put

    async def held(tasks: Sequence[NewTask]) -> list[Placed]:
        await go.wait()
        return list(await put(tasks))

    store.put = held  # type: ignore[method-assign]
    try:
        running = await stage.start(store=store)
        await stage.send_numbers(5, ids=False)
        await until(lambda: running.figures().received > 0)

        async def timed_out() -> bool:
            rabbit_server.tick_channels()
            return await stage.ready() == 5

        await until_true(timed_out, what="the broker takes the messages back")
    finally:
        rabbit_server.set_consumer_timeout(1_800_000)
    go.set()
    await stage.taken_in()
    assert set(await stage.numbers()) == set(range(5))
    await running.until(SourceState.RUNNING, within=5)
