"""PostgreSQL is stopped and started while messages come in: nothing is lost, and nothing comes twice."""

import asyncio

import pytest

from pitboss.model.source import SourceState, outbox
from pitboss.model.states import State
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.sources.stage import Stage, until_true

COUNT = 400


@pytest.fixture
def durable_stage(
    durable_server: PostgresServer, durable_dsn: str, rabbit_server: RabbitServer, rabbit_vhost: str
) -> Stage:
    return Stage(durable_dsn, rabbit_server, rabbit_vhost)


@pytest.mark.fresh_loop(limit=60)
async def test_nothing_is_lost_or_doubled_while_the_store_is_away(
    durable_stage: Stage, durable_server: PostgresServer
) -> None:
    stage = durable_stage
    running = await stage.start(stage.spec(prefetch=50))
    await stage.send_numbers(COUNT // 2)
    await stage.stored(20)
    await asyncio.to_thread(durable_server.stop)
    try:
        await stage.send_numbers(COUNT // 2, COUNT // 2)
        await stage.send(b"nonsense")
        await running.until(SourceState.STORE, within=5)
        assert stage.unsettled() > 0
    finally:
        # Not in another thread: the kernel would end the server with it.
        durable_server.start()
    await running.until(SourceState.RUNNING, within=5)
    await stage.taken_in()
    # Messages with ids: once, whatever the store had done when it went away.
    assert await stage.numbers() == list(range(COUNT))

    async def published() -> bool:
        return [task.state for task in await stage.tasks(outbox("one"))] == [State.COMPLETED]

    await until_true(published, what="the outbox has a session again")
    await stage.dead(1)
