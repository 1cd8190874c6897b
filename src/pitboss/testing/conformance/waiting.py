"""Waiting: a hint that there may be work. Rings may be lost or false, but not on a healthy engine."""

import asyncio

from pitboss.engines.protocol import Engine
from pitboss.model.outcome import Released
from pitboss.testing.conformance.bench import Bench

SOON = 5.0


class Waiting:
    async def test_waiting_ends_with_its_time(self, bench: Bench) -> None:
        await silence(bench.store)
        assert not await bench.store.wait(["default"], 0.02)
        assert not await bench.store.wait(None, 0)

    async def test_a_put_wakes_a_waiter(self, bench: Bench) -> None:
        await silence(bench.store)
        waiter = asyncio.create_task(bench.store.wait(["default"], SOON))
        await asyncio.sleep(0)
        await bench.add()
        assert await waiter

    async def test_a_waiter_on_any_queue_is_woken(self, bench: Bench) -> None:
        await silence(bench.store)
        waiter = asyncio.create_task(bench.store.wait(None, SOON))
        await asyncio.sleep(0)
        await bench.add(queue="somewhere")
        assert await waiter

    async def test_a_ring_before_the_wait_counts(self, bench: Bench) -> None:
        await silence(bench.store)
        await bench.add()
        assert await bench.store.wait(["other", "default"], SOON)

    async def test_a_put_through_another_engine_is_heard(self, bench: Bench) -> None:
        other = await bench.open_engine()
        await silence(bench.store)
        waiter = asyncio.create_task(bench.store.wait(["default"], SOON))
        await asyncio.sleep(0)
        await other.put([bench.new()])
        assert await waiter

    async def test_all_that_makes_a_task_ready_rings(self, bench: Bench) -> None:
        claim = await bench.started(queue="a")
        await silence(bench.store)
        await bench.report(claim, Released())
        assert await bench.store.wait(["a"], SOON), "a release"
        await bench.take()
        await silence(bench.store)
        await bench.end(bench.me)
        await bench.reclaim()
        assert await bench.store.wait(["a"], SOON), "a loss"
        await bench.cancel(claim.id)
        await silence(bench.store)
        await bench.retry(claim.id)
        assert await bench.store.wait(["a"], SOON), "a retry"

    async def test_a_release_of_held_tasks_rings(self, bench: Bench) -> None:
        await bench.add(handler="stranger", queue="b")
        await silence(bench.store)
        await bench.register("stranger")
        assert await bench.store.wait(["b"], SOON)

    async def test_a_resumed_queue_rings(self, bench: Bench) -> None:
        await bench.change("default", paused=True)
        await bench.add()
        await silence(bench.store)
        await bench.change("default", paused=False)
        assert await bench.store.wait(["default"], SOON)

    async def test_a_wish_rings_those_that_wait_for_all_queues(self, bench: Bench) -> None:
        await silence(bench.store)
        await bench.store.wish("pool/mail", "{}")
        assert await bench.store.wait(None, SOON)

    async def test_a_follow_up_rings(self, bench: Bench) -> None:
        claim = await bench.started()
        await silence(bench.store)
        await bench.complete(claim, None, bench.new(queue="next"))
        assert await bench.store.wait(["next"], SOON)

    async def test_two_waiters_on_two_queues_are_both_served(self, bench: Bench) -> None:
        await silence(bench.store)
        waiters = [asyncio.create_task(bench.store.wait([name], SOON)) for name in ("a", "b")]
        await asyncio.sleep(0)
        await bench.put(bench.new(queue="a"), bench.new(queue="b"))
        assert await asyncio.gather(*waiters) == [True, True]

    async def test_a_cancelled_wait_leaves_nothing_behind(self, bench: Bench) -> None:
        await silence(bench.store)
        waiter = asyncio.create_task(bench.store.wait(None, SOON))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert waiter.cancelled()
        await bench.add()
        assert await bench.store.wait(None, SOON)


async def silence(engine: Engine) -> None:
    """Consume all rings so far."""
    while await engine.wait(None, 0.01):
        pass
