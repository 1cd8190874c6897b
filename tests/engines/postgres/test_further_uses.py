"""Uses that are asked for at once, while another transaction has locked a member."""

import asyncio

import psycopg
import pytest

from pitboss.model.duration import SECOND
from pitboss.model.errors import StaleLease
from pitboss.model.resource import Leased, Limits, NewResource, PoolRules, Want
from tests.engines.postgres.yard import Yard

pytestmark = pytest.mark.fresh_loop(limit=60)
POOL = "p"
MINUTE = 60 * SECOND


async def lent(yard: Yard) -> dict[str, str]:
    """The lease of each of three members."""
    await yard.engine.declare_pool(POOL, PoolRules(limits=Limits(concurrency=None)))
    await yard.engine.add_resources(POOL, [NewResource(name=name, labels=(name,)) for name in "abc"])
    for name in "abc":
        held = await yard.engine.acquire(POOL, Want(labels=(name,)), MINUTE, lease=f"of {name}")
        assert isinstance(held, Leased)
    return {name: f"of {name}" for name in "abc"}


async def test_a_use_that_waits_for_a_locked_member_does_not_delay_others(yard: Yard, postgres_dsn: str) -> None:
    leases = await lent(yard)
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await other.execute("SELECT FROM pitboss.resources WHERE name = 'a' FOR UPDATE")
        waiting = [asyncio.create_task(yard.engine.use(leases["a"])) for _ in range(3)]
        free = [asyncio.create_task(yard.engine.use(leases[name])) for name in "bcbc"]
        async with asyncio.timeout(5):
            await asyncio.gather(*free)
        assert not any(one.done() for one in waiting)
        await other.commit()
    await asyncio.gather(*waiting)
    shown = {one.name: one.record.uses for one in await yard.engine.resources(POOL)}
    assert shown == {"a": 4, "b": 3, "c": 3}


async def test_a_member_that_is_gone_is_not_held(yard: Yard) -> None:
    leases = await lent(yard)
    await yard.engine.change_resources(POOL, ["a"], None)
    with pytest.raises(StaleLease):
        await yard.engine.use(leases["a"])
    assert isinstance(await yard.engine.use(leases["b"]), int)
