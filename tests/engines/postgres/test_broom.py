"""Old row versions are cleared away while the store is busy, and nobody minds if that cannot be done."""

import asyncio

import psycopg
import pytest

from pitboss.engines.postgres import broom
from pitboss.model.session import ClaimRequest, Slot
from tests.engines.postgres.yard import Yard

pytestmark = pytest.mark.fresh_loop(limit=60)

_SWEPT = "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'pitboss' AND relname = 'tasks'"


async def _claim(yard: Yard, count: int) -> None:
    await yard.engine.put(yard.news(count))
    request = ClaimRequest(session=yard.session.number, slots=(Slot(free=count),))
    assert len((await yard.engine.claim(request)).claims) == count


async def _swept(yard: Yard) -> int:
    for _ in range(200):
        if count := await yard.count(_SWEPT):
            return count
        await asyncio.sleep(0.02)
    return 0


async def test_enough_claims_sweep_the_table(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broom, "ENOUGH", 100)
    await _claim(yard, 60)
    assert await yard.count(_SWEPT) == 0
    await _claim(yard, 60)
    assert await _swept(yard) == 1


async def test_a_sweep_in_somebody_s_way_is_given_up(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broom, "ENOUGH", 10)
    async with await psycopg.AsyncConnection.connect(yard.dsn) as other:
        # A vacuum wants a lock that this one excludes; claims do not.
        await other.execute("LOCK TABLE pitboss.tasks IN SHARE UPDATE EXCLUSIVE MODE")
        await _claim(yard, 20)
        await asyncio.sleep(0.1)
        await _claim(yard, 5)
        await yard.engine.close()
    assert await yard.count(_SWEPT) == 0
