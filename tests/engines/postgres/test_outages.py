"""The server dies, restarts, freezes or throws us out: calls say so in time, and later ones connect again."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.errors import StoreUnavailable
from tests.engines.postgres.yard import Yard, ends
from tests.servers.postgres import PostgresServer, free_port

pytestmark = pytest.mark.fresh_loop(limit=60)


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    """One of its own: that of the other tests has thousands of files, and takes a minute to recover."""
    with PostgresServer() as server:
        yield server


async def test_a_killed_server_loses_nothing_that_was_answered(yard: Yard, postgres_server: PostgresServer) -> None:
    acked: list[str] = []
    over = asyncio.Event()

    async def produce() -> None:
        while not over.is_set():
            tasks = yard.news(5)
            with suppress(StoreUnavailable):
                await yard.engine.put(tasks)
                acked.extend(task.id for task in tasks)

    producer = asyncio.create_task(produce())
    for _ in range(2):
        await _more_than(acked, 20)
        postgres_server.kill9()
        postgres_server.start()
        await _more_than(acked, len(acked))
    over.set()
    await producer
    found = await yard.engine.get(acked)
    assert all(found)
    await yard.assert_figures()


async def test_a_restart_between_calls_is_not_noticed(yard: Yard, postgres_server: PostgresServer) -> None:
    await yard.engine.put([yard.new()])
    postgres_server.restart()
    claims = (await yard.claim(1)).claims
    postgres_server.restart("immediate")
    assert [verdict.applied for verdict in await yard.engine.settle(ends(claims))] == [True]


async def test_a_call_waits_out_a_short_outage(yard: Yard, postgres_server: PostgresServer) -> None:
    postgres_server.stop()
    put = asyncio.create_task(yard.engine.put([yard.new()]))
    await asyncio.sleep(0.2)
    postgres_server.start()
    assert (await put)[0].created


async def test_a_call_under_way_when_its_connection_is_cut_says_that_it_may_have_happened(yard: Yard) -> None:
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE pitboss.tasks")
        put = asyncio.create_task(yard.engine.put([yard.new()]))
        await _until_waiting(yard)
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        with pytest.raises(StoreUnavailable, match="not known"):
            await put
        connection.execute("ROLLBACK")
    assert (await yard.engine.put([yard.new()]))[0].created


async def test_a_lock_that_is_not_given_ends_the_call_in_time(yard: Yard) -> None:
    hasty = await yard.open(limit=1.0, listen=False)
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE pitboss.tasks")
        begin = time.monotonic()
        with pytest.raises(StoreUnavailable, match="in time"):
            await hasty.put([yard.new()])
        assert time.monotonic() - begin < 2
        connection.execute("ROLLBACK")
    assert (await hasty.put([yard.new()]))[0].created


async def test_a_frozen_server_does_not_hang_a_call(yard: Yard) -> None:
    hasty = await yard.open(limit=1.0, listen=False)
    await hasty.put([yard.new()])
    (pipeline,) = hasty._writing._idle
    pids = [pipeline.connection.info.backend_pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await hasty.put([yard.new()])
        assert time.monotonic() - begin < 3
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert (await hasty.put([yard.new()]))[0].created


async def test_a_process_that_is_stopped_in_a_transaction_keeps_its_locks_no_longer_than_a_call_may_last(
    yard: Yard,
) -> None:
    """A manager that was stopped in the middle of a claim held a queue's row: no other manager could claim from it
    until that one went on, for over a minute in a trial."""
    stopped = await yard.open(limit=1.0, listen=False)
    await stopped.put([yard.new()])
    (pipeline,) = stopped._writing._idle
    cursor = pipeline.connection.cursor()
    await cursor.execute("BEGIN")
    await cursor.execute("LOCK TABLE pitboss.tasks")
    begin = time.monotonic()
    assert (await yard.engine.put([yard.new()]))[0].created
    assert time.monotonic() - begin < 4
    assert (await stopped.put([yard.new()]))[0].created, "its next call takes another connection"


async def test_a_missing_server_is_reported_soon_and_clearly() -> None:
    engine = PostgresEngine(f"postgresql://stranger:secret@127.0.0.1:{free_port()}/nowhere", limit=0.5)
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match="cannot be reached") as refused:
        await engine.open()
    assert time.monotonic() - begin < 3
    assert "secret" not in str(refused.value)
    await engine.close()


async def test_a_cancelled_call_leaves_the_engine_usable(yard: Yard) -> None:
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE pitboss.tasks")
        put = asyncio.create_task(yard.engine.put([yard.new()]))
        await _until_waiting(yard)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        connection.execute("ROLLBACK")
    assert (await yard.engine.put([yard.new()]))[0].created


async def test_a_listener_that_was_thrown_out_listens_again(yard: Yard) -> None:
    listener = yard.engine
    talker = await yard.open(listen=False)
    while await listener.wait(None, 0.05):
        pass
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    assert await listener.wait(None, 5), "rings may have been missed, so one is taken for granted"
    await _until(lambda: listener._doorbell.hears)
    while await listener.wait(None, 0.05):
        pass
    await talker.put([yard.new()])
    assert await listener.wait(["default"], 5)


async def test_a_listener_that_went_deaf_notices_and_listens_again(yard: Yard) -> None:
    deaf = PostgresEngine(yard.dsn)
    doorbell, channel = deaf._doorbell, deaf._sql.channel
    doorbell._probe_every = doorbell._try_again = 0.1
    await deaf.open()
    # Its own rings go elsewhere: all looks well, and nothing is heard.
    deaf._sql.channel = "elsewhere"
    await _until(lambda: not doorbell.hears)
    assert await deaf.wait(None, 5), "deaf, it looks by itself"
    deaf._sql.channel = channel
    await _until(lambda: doorbell.hears)
    await deaf.close()


async def _until(holds: Callable[[], bool], limit: float = 20.0) -> None:
    async with asyncio.timeout(limit):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _more_than(found: list[str], number: int) -> None:
    await _until(lambda: len(found) > number)


async def _until_waiting(yard: Yard) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while not await yard.count(query):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
