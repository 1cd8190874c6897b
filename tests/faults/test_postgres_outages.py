"""PostgreSQL killed, cut off and halted in the middle of work: every task ends exactly once, and no attempt is lost."""

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import psutil
import psycopg
import pytest

from pitboss.engines.postgres import PostgresEngine
from tests.faults.shop import Outcomes, Shop
from tests.servers.postgres import PostgresServer

# `make soak` strikes more often, and in the middle of more tasks.
TASKS = 2000
# Fewer connections than this would prove little. The engines open them again within milliseconds.
CONNECTIONS = 5
RECONNECTED_SECONDS = 10.0
TASKS_PER_SECOND = 625
Trouble = Callable[[PostgresServer], None]


def killed(server: PostgresServer) -> None:
    """kill -9 of the postmaster and of everything that it started; then a start, which recovers."""
    server.kill9()
    server.start()


def cut_off(server: PostgresServer) -> None:
    """All connections are ended by the server, three times in a row."""
    for _ in range(3):
        assert _terminate_all(server.dsn) >= CONNECTIONS
        time.sleep(0.2)


def halted(server: PostgresServer) -> None:
    """The whole server stands still for 3 s, as on a host that swaps or is being moved."""
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    for process in family:
        process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(3)
        assert family[0].status() == psutil.STATUS_STOPPED
    finally:
        for process in family:
            process.send_signal(signal.SIGCONT)


def _terminate_all(dsn: str) -> int:
    """End all connections, once the processes have connected again after the last time."""
    mine = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        until = time.monotonic() + RECONNECTED_SECONDS
        while time.monotonic() < until:
            ((connected,),) = connection.execute(
                f"SELECT count(*) FROM pg_stat_activity WHERE {mine}".encode()
            ).fetchall()
            if connected >= CONNECTIONS:
                break
            time.sleep(0.01)
        rows = connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}".encode())
        return len(rows.fetchall())


async def _shop(dsn: str, times: int, tasks: int, strikes: "SimpleQueue[Future[None] | None]") -> Outcomes:
    """Ask for a strike each time that another part of the tasks has ended."""
    try:
        async with Shop(lambda: PostgresEngine(dsn)) as shop:
            putting = asyncio.create_task(shop.enqueue(tasks, tasks / TASKS_PER_SECOND))
            for part in range(1, times + 1):
                await shop.until_ended(tasks * part // (times + 2), 60)
                strike: Future[None] = Future()
                strikes.put(strike)
                await asyncio.wrap_future(strike)
            await putting
            await shop.until_ended(tasks, 60)
            return await shop.closed()
    finally:
        strikes.put(None)


def troubled(server: PostgresServer, dsn: str, trouble: Trouble, times: int, tasks: int) -> Outcomes:
    """The shop works in a thread: the server is the child of the thread that starts it, and ends with that."""
    strikes: SimpleQueue[Future[None] | None] = SimpleQueue()
    with ThreadPoolExecutor(1) as pool:
        shop = pool.submit(lambda: asyncio.run(_shop(dsn, times, tasks, strikes)))
        while strike := strikes.get():
            try:
                trouble(server)
                strike.set_result(None)
            except BaseException as error:
                strike.set_exception(error)
        return shop.result()


@pytest.mark.parametrize(("trouble", "times"), [(killed, 3), (cut_off, 6), (halted, 1)])
def test_every_task_ends_once(trouble: Trouble, times: int, durable_server: PostgresServer, durable_dsn: str) -> None:
    outcomes = troubled(durable_server, durable_dsn, trouble, times, TASKS)
    assert outcomes.faults == []
    assert outcomes.put == outcomes.ended == TASKS
    assert outcomes.lost_sessions == 0
    if trouble is not halted:
        assert outcomes.unknown_calls > 0, "the trouble hit nothing"
