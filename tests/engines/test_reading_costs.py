"""What a person looks at costs the same with ten times as many tasks in the store.

Counted in steps of SQLite's machine and in pages of PostgreSQL, so that a busy computer cannot change the result.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pitboss.client import waiting
from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.protocol import FullStore
from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.filter import parsed
from pitboss.operate import failures, status
from pitboss.simulate.clock import FakeClock
from tests.engines.full_store import (
    DAY,
    LOOKED_THROUGH,
    NOW,
    QUEUES,
    Cost,
    Read,
    fill,
    postgres_pages,
    reads,
    sqlite_steps,
)
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.fresh_loop(limit=120)
FEW, MANY = 2_000, 20_000
# Indexes are a level deeper, and a page is read more here and there.
SLACK = {"sqlite": 60, "postgres": 40}


@pytest.fixture
def stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts stop at fewer tasks than there are."""
    monkeypatch.setattr(status, "_COUNTED", 10)
    monkeypatch.setattr(failures, "MOST_READ", 10)
    monkeypatch.setattr(waiting, "_LINE_READ", 10)


async def measured(engine: str, folder: Path, server: PostgresServer, stored: int) -> dict[str, int]:
    async with costly(engine, folder, server, stored) as (store, cost, all_reads):
        return {name: await cost.of(read, store) for name, read in all_reads.items()}


@asynccontextmanager
async def costly(
    engine: str, folder: Path, server: PostgresServer, stored: int
) -> AsyncIterator[tuple[FullStore, Cost, dict[str, Read]]]:
    with pytest.MonkeyPatch.context() as patch:
        if engine == "sqlite":
            with sqlite_steps(patch) as cost:
                store = SqliteEngine(folder / f"{stored}.db", clock=FakeClock())
                await store.open()
                try:
                    yield store, cost, reads(await fill(store, stored))
                finally:
                    await store.close()
            return
        other = PostgresEngine(server.create_database(), clock=FakeClock(), listen=False)
        await other.open()
        try:
            marks = await fill(other, stored)
            with postgres_pages(patch, other) as cost:
                yield other, cost, reads(marks)
        finally:
            await other.close()


@pytest.mark.usefixtures("stops_early")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_reads_do_not_grow_with_what_is_stored(
    engine: str, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    few = await measured(engine, tmp_path, postgres_server, FEW)
    many = await measured(engine, tmp_path, postgres_server, MANY)
    grown = {name: (cost, many[name]) for name, cost in few.items() if many[name] > 1.3 * cost + SLACK[engine]}
    assert not grown, grown


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_the_oldest_wait_is_found_behind_items_and_priorities(
    engine: str, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    async with costly(engine, tmp_path, postgres_server, FEW) as (store, _, _):
        waits = {one.name: await waiting.oldest_wait(store, one, NOW) for one in await store.queues()}
    assert waits == dict.fromkeys(QUEUES, 20 * DAY)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_what_no_index_serves_stops_and_says_so(
    engine: str, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    costs: dict[str, list[int]] = {text: [] for text in LOOKED_THROUGH}
    for stored in (FEW, MANY):
        async with costly(engine, tmp_path, postgres_server, stored) as (store, cost, _):
            for text, found in costs.items():
                before = cost.total
                page = await store.find(parsed(text), limit=20, most=300)
                found.append(cost.total - before)
                assert (page.tasks, page.next is None, page.covered is None) == ([], False, False), text
                assert (await store.count(parsed(text), most=300)) == (0, True), text
    grown = {text: found for text, found in costs.items() if found[1] > 1.3 * found[0] + SLACK[engine]}
    assert not grown, grown
