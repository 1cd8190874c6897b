"""Limits per key, rates, resources and batches in queues with partitions: what they allow, and ownership, both hold."""

import asyncio

import pytest

from pitboss.model.batch import Pause, Resume
from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.outcome import Released
from pitboss.model.partition import LOOK
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import NewResource, PoolRules, Want
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.partitioned import (
    EXCLUSIVE,
    WORK,
    add,
    asked,
    behind,
    divide,
    give,
    given,
    ids,
    new,
    two_owners,
)
from pitboss.testing.conformance.waiting import SOON, silence

MODES = ("affinity", *EXCLUSIVE)
AT_ONCE = 10


class MaxPerKey:
    @pytest.mark.parametrize("mode", MODES)
    async def test_no_more_tasks_of_a_key_run_than_may(self, bench: Bench, mode: str) -> None:
        await two_owners(bench, mode, max_per_key=2)
        await give(bench, {"c": 0})
        tasks = [await add(bench, key) for key in "aaac"]
        assert ids(await given(bench, 0, free=9)) == ids([*tasks[:2], tasks[3]])
        assert await given(bench, 0, free=9) == await given(bench, 1, free=9) == []

    async def test_the_slots_of_one_request_share_the_limit(self, bench: Bench) -> None:
        await two_owners(bench, "affinity", max_per_key=1)
        tasks = [await add(bench, key) for key in "aab"]
        slots = [Slot(free=2, number=n, queues=(WORK,)) for n in (0, 1)]
        claims = (await bench.ask(*slots)).claims
        assert ids(claims) == [tasks[0].id, tasks[2].id]

    async def test_the_end_of_a_claim_makes_room_and_rings(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=1)
        first, second = await add(bench, "a"), await add(bench, "a")
        (claim,) = await given(bench, 0)
        assert claim.id == first.id
        await silence(bench.store)
        await bench.complete(claim)
        assert await bench.store.wait([WORK], SOON)
        assert ids(await given(bench, 0)) == [second.id]

    async def test_a_lost_claim_makes_room_and_rings(self, bench: Bench) -> None:
        await two_owners(bench, "affinity", max_per_key=1)
        other = await bench.session("job")
        first = await add(bench, "a")
        await add(bench, "a")
        await given(bench, None, session=other)
        await bench.cancel(first.id)
        await bench.end(other)
        await silence(bench.store)
        await bench.reclaim()
        assert await bench.store.wait([WORK], SOON)
        assert len(await given(bench, 0, free=9)) == 1

    async def test_claims_at_once_share_the_limit(self, bench: Bench) -> None:
        await two_owners(bench, "affinity", max_per_key=1)
        bench.watching = False
        stores = [bench.store, await bench.open_engine()]
        await bench.put(*(new(bench, "a") for _ in range(AT_ONCE)))
        for _ in range(AT_ONCE):
            request = ClaimRequest(session=bench.me.number, slots=(Slot(free=2, queues=(WORK,)),))
            answers = await asyncio.gather(*(store.claim(request) for store in stores * 2))
            (claim,) = [claim for answer in answers for claim in answer.claims]
            await bench.complete(claim)

    async def test_tasks_without_a_key_are_not_limited(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=1)
        for _ in range(3):
            await add(bench, None)
        assert len(await given(bench, 0, free=9)) == 3

    async def test_an_operator_changes_and_withdraws_the_limit(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=2)
        for _ in range(5):
            await add(bench, "a")
        changed = await bench.change(WORK, max_per_key=1)
        assert (changed.max_per_key, changed.limited) == (1, ("max_per_key",))
        assert len(await given(bench, 0, free=9)) == 1
        assert (await bench.change(WORK, max_per_key=None)).max_per_key is None
        assert len(await given(bench, 0, free=2)) == 2
        withdrawn = await bench.change(WORK, withdraw=("max_per_key",))
        assert (withdrawn.max_per_key, withdrawn.limited) == (2, ())
        assert await given(bench, 0, free=9) == []

    async def test_what_an_operator_set_outlives_a_declaration(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=2)
        await bench.change(WORK, max_per_key=1)
        await divide(bench, mode="static", max_per_key=3)
        assert (await bench.queue(WORK)).max_per_key == 1
        await bench.change(WORK, withdraw=("max_per_key",))
        assert (await bench.queue(WORK)).max_per_key == 3

    async def test_a_higher_limit_is_heard(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=1)
        await silence(bench.store)
        await bench.change(WORK, max_per_key=2)
        assert await bench.store.wait([WORK], SOON)

    async def test_full_keys_do_not_stop_others_behind_the_look(self, bench: Bench) -> None:
        await behind(bench, "static", LOOK, max_per_key=1)
        tasks = [new(bench, key, priority=1) for key in "xxy"]
        await bench.put(*tasks)
        assert ids(await given(bench, 0, free=9)) == ids([tasks[0], tasks[2]])


class KeyedRates:
    async def test_a_rate_holds_for_all_slots_together(self, bench: Bench) -> None:
        await two_owners(bench)
        await bench.change(WORK, rate=rate("3/s"))
        tasks = [await add(bench, key) for key in "aabbab"]
        assert ids(await given(bench, 0, free=2)) == ids(tasks[:2])
        claimed = await asked(bench, 1, free=2)
        assert ids(claimed.claims) == [tasks[2].id]
        assert claimed.next_due == bench.now + SECOND
        bench.clock.advance(1)
        assert ids(await given(bench, 1, free=2)) == ids([tasks[3], tasks[5]])

    async def test_what_a_slot_may_not_take_is_no_start(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=1)
        await bench.change(WORK, rate=rate("2/s"))
        tasks = [await add(bench, key) for key in "aaab"]
        assert ids(await given(bench, 0, free=9)) == [tasks[0].id]
        assert ids(await given(bench, 1, free=9)) == [tasks[3].id]


class KeyedResources:
    async def test_a_slot_gets_its_own_tasks_with_members(self, bench: Bench) -> None:
        await _with_pool(bench, "p", "q")
        tasks = [await add(bench, key, handler="fetch") for key in "baab"]
        claims = await given(bench, 0, free=9)
        assert ids(claims) == ids(tasks[1:3])
        assert sorted(claim.leased.name for claim in claims if claim.leased) == ["p", "q"]
        claimed = await asked(bench, 1)
        assert (claimed.claims, [short.pool for short in claimed.shortages]) == ([], ["proxies"])
        await bench.complete(claims[0])
        assert ids(await given(bench, 1, free=9)) == [tasks[0].id]

    async def test_tasks_of_others_need_no_member(self, bench: Bench) -> None:
        await _with_pool(bench)
        await add(bench, "b", handler="fetch")
        claimed = await asked(bench, 0)
        assert (claimed.claims, claimed.shortages) == ([], ())

    async def test_a_limit_per_key_holds_beside_members(self, bench: Bench) -> None:
        await _with_pool(bench, "p", "q", "r", max_per_key=1)
        await give(bench, {"c": 0})
        tasks = [await add(bench, key, handler="fetch") for key in "aac"]
        claims = await given(bench, 0, free=9)
        assert ids(claims) == ids([tasks[0], tasks[2]])
        pools = await bench.store.resource_pools()
        assert [sum(pool.stages.values()) for pool in pools] == [3]

    async def test_items_that_no_member_fits_do_not_stop_a_slot(self, bench: Bench) -> None:
        await _with_pool(bench, "p", NewResource(name="q", labels=("eu",)))
        stuck = [new(bench, "a", handler="fetch", want=Want(labels=("us",))) for _ in range(3)]
        fit = [new(bench, "a", handler="fetch", want=Want(labels=("eu",))) for _ in range(2)]
        await bench.create(*(new(bench, "b", handler="fetch") for _ in range(3)), *stuck, *fit)
        assert ids(await given(bench, 0)) == [fit[0].id]

    async def test_own_tasks_behind_the_look_get_members(self, bench: Bench) -> None:
        await _with_pool(bench, "p")
        bench.watching = False
        await bench.put(*(new(bench, "b", handler="fetch") for _ in range(LOOK)))
        task = new(bench, "a", handler="fetch", priority=1)
        await bench.put(task)
        assert ids(await given(bench, 0, free=9)) == [task.id]


class KeyedBatches:
    @pytest.mark.parametrize("mode", EXCLUSIVE)
    async def test_a_slot_s_items_are_drawn_though_others_come_first(self, bench: Bench, mode: str) -> None:
        await two_owners(bench, mode)
        items = [new(bench, key) for key in "bbbaaa"]
        batch = await bench.create(*items)
        assert ids(await given(bench, 0, free=2)) == ids(items[3:5])
        assert (await bench.batch(batch)).counts == {State.RUNNING: 2, State.HELD: 4}
        assert ids(await given(bench, 1)) == [items[0].id]

    async def test_the_slots_of_one_request_draw_each_for_itself(self, bench: Bench) -> None:
        await two_owners(bench)
        items = [new(bench, key) for key in "aabb"]
        batch = await bench.create(*items)
        slots = [Slot(free=1, number=n, queues=(WORK,)) for n in (1, 0)]
        assert ids((await bench.ask(*slots)).claims) == [items[2].id, items[0].id]
        assert (await bench.batch(batch)).counts == {State.RUNNING: 2, State.HELD: 2}

    async def test_with_affinity_own_items_are_drawn_first(self, bench: Bench) -> None:
        await two_owners(bench, "affinity")
        items = [new(bench, key) for key in "bbaa"]
        await bench.create(*items)
        claims = [one for _ in range(4) for one in await given(bench, 0)]
        assert ids(claims) == ids([*items[2:], *items[:2]])

    async def test_items_come_by_priority_then_age(self, bench: Bench) -> None:
        await two_owners(bench)
        items = [new(bench, "a", priority=number % 2) for number in range(6)]
        await bench.create(*items)
        claims = [one for _ in range(3) for one in await given(bench, 0, free=2)]
        assert ids(claims) == ids(sorted(items, key=lambda item: (item.priority, item.id)))

    async def test_a_slot_without_items_of_its_own_draws_nothing(self, bench: Bench) -> None:
        await two_owners(bench)
        batch = await bench.create(*(new(bench, "b") for _ in range(3)))
        assert await given(bench, 0, free=9) == await given(bench, None, free=9) == []
        assert (await bench.batch(batch)).counts == {State.HELD: 3}
        assert await given(bench, 1, free=0, ahead=5) == []
        assert (await bench.batch(batch)).counts == {State.HELD: 3}

    async def test_items_without_a_key_are_drawn_by_any_slot(self, bench: Bench) -> None:
        await two_owners(bench)
        items = [new(bench, key) for key in ("b", None, "a")]
        await bench.create(*items)
        assert ids(await given(bench, None, free=9)) == [items[1].id]
        assert ids(await given(bench, 0, free=9)) == [items[2].id]

    async def test_items_of_other_queues_are_drawn_as_ever(self, bench: Bench) -> None:
        await two_owners(bench)
        keyed, plain = new(bench, "a"), bench.new()
        batch = await bench.create(new(bench, "b"), keyed, plain, bench.new())
        claims = await given(bench, 0, free=2, queues=None)
        assert sorted(ids(claims)) == sorted([keyed.id, plain.id])
        assert (await bench.batch(batch)).left == 4

    async def test_items_are_held_while_their_batch_is_paused(self, bench: Bench) -> None:
        await two_owners(bench)
        batch = await bench.create(*(new(bench, key) for key in "baa"))
        (claim,) = await given(bench, 0)
        await bench.act(batch, Pause())
        assert await given(bench, 0) == await given(bench, 1) == []
        await bench.report(claim, Released())
        assert (await bench.batch(batch)).counts == {State.HELD: 3}
        await bench.act(batch, Resume())
        assert ids(await given(bench, 0)) == [claim.id]
        assert len(await given(bench, 1)) == 1

    async def test_full_keys_starve_no_other(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=1)
        await give(bench, {"c": 0})
        items = [new(bench, key) for key in "aaac"]
        await bench.create(*items)
        assert ids(await given(bench, 0)) == [items[0].id]
        assert ids(await given(bench, 0)) == [items[3].id]
        assert await given(bench, 0) == []

    async def test_full_keys_starve_no_helper(self, bench: Bench) -> None:
        await two_owners(bench, "affinity", max_per_key=1)
        items = [new(bench, key) for key in "aaabb"]
        await bench.create(*items)
        claims = [one for number in (0, 1, 0) for one in await given(bench, number)]
        assert ids(claims) == [items[0].id, items[3].id]

    async def test_a_key_that_moves_is_not_drawn(self, bench: Bench) -> None:
        await two_owners(bench)
        batch = await bench.create(*(new(bench, "a") for _ in range(3)))
        (claim,) = await given(bench, 0)
        await give(bench, {"a": 1})
        assert await given(bench, 0) == await given(bench, 1) == []
        await bench.complete(claim)
        await give(bench, {})
        assert len(await given(bench, 1, free=9)) == 2
        assert (await bench.batch(batch)).counts == {State.COMPLETED: 1, State.RUNNING: 2}

    async def test_pending_items_of_others_do_not_stop_the_drawing(self, bench: Bench) -> None:
        await two_owners(bench)
        items = [new(bench, key) for key in "bba"]
        await bench.create(*items)
        drawn = await given(bench, 1, free=2)
        for claim in drawn:
            await bench.report(claim, Released())
        assert ids(await given(bench, 0)) == [items[2].id]

    async def test_a_claim_that_drew_only_items_due_later_comes_again_at_once(self, bench: Bench) -> None:
        await two_owners(bench)
        items = [new(bench, "a", delay=60 * SECOND), new(bench, "b"), new(bench, "a", priority=1)]
        await bench.create(*items)
        claimed = await asked(bench, 0)
        assert (claimed.claims, claimed.next_due) == ([], bench.now)
        assert ids(await given(bench, 0)) == [items[2].id]

    async def test_the_last_item_ends_the_batch(self, bench: Bench) -> None:
        await two_owners(bench)
        batch = await bench.create(*(new(bench, key) for key in "ab"))
        for number in (0, 1):
            (claim,) = await given(bench, number)
            await bench.complete(claim)
        assert (await bench.batch(batch)).left == 0


async def _with_pool(bench: Bench, *members: str | NewResource, max_per_key: int | None = None) -> None:
    """As `two_owners`, where each task of the handler "fetch" needs a member of a resource pool."""
    await bench.store.declare_pool("proxies", PoolRules())
    await bench.store.register([HandlerInfo(name="fetch", queue=WORK, resources="proxies")])
    added = [NewResource(name=one) if isinstance(one, str) else one for one in members]
    await bench.store.add_resources("proxies", added)
    await two_owners(bench, max_per_key=max_per_key)


__all__ = ["KeyedBatches", "KeyedRates", "KeyedResources", "MaxPerKey"]
