"""Old row versions are vacuumed while the store is busy; if that cannot be done, calls go on."""

import asyncio

import psycopg
import pytest

from pitboss.engines.postgres import vacuum
from pitboss.model.session import ClaimRequest, Slot
from tests.engines.postgres.yard import Yard

pytestmark = pytest.mark.fresh_loop(limit=60)

_VACUUMED = "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'pitboss' AND relname = 'tasks'"
_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pitboss.tasks'::regclass"


async def _claim(yard: Yard, count: int) -> None:
    await yard.engine.put(yard.news(count))
    request = ClaimRequest(session=yard.session.number, slots=(Slot(free=count),))
    assert len((await yard.engine.claim(request)).claims) == count


async def _becomes_one(yard: Yard, query: str) -> bool:
    for _ in range(200):
        if await yard.count(query) == 1:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_enough_claims_vacuum_the_table(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "ENOUGH", 100)
    await _claim(yard, 60)
    assert await yard.count(_VACUUMED) == 0
    await _claim(yard, 60)
    assert await _becomes_one(yard, _VACUUMED)


async def test_a_vacuum_that_waits_for_a_lock_is_given_up(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "ENOUGH", 10)
    async with await psycopg.AsyncConnection.connect(yard.dsn) as other:
        # A vacuum needs a lock that this one excludes; claims do not.
        await other.execute("LOCK TABLE pitboss.tasks IN SHARE UPDATE EXCLUSIVE MODE")
        await _claim(yard, 20)
        assert await _becomes_one(yard, _WAITING)
        await _claim(yard, 5)
        await yard.engine.close()
    assert await yard.count(_VACUUMED) == 0
