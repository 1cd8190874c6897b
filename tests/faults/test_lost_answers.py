"""An answer that gets lost on its way: the store has acted, and who asked does not know it."""

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.testing.failpoints import Failpoints
from pitboss.wiring import SystemClock
from tests.faults.shop import Shop

pytestmark = pytest.mark.fresh_loop(limit=20)


@pytest.mark.parametrize("verb", ["put", "claim", "settle", "renew"])
async def test_the_call_is_repeated_and_the_work_goes_on(verb: str) -> None:
    failpoints = Failpoints()
    failpoints.plan(f"{verb}.after", "lost")
    engine = MemoryEngine(clock=SystemClock(), failpoint=failpoints)
    async with Shop(lambda: engine, managers=1, clients=1) as shop:
        await shop.enqueue(50, 0.1)
        await shop.until_ended(50, 5)
        outcomes = await shop.closed()
    assert failpoints.bitten == [(f"{verb}.after", "lost")]
    assert outcomes.faults == []
