"""Slots keep their numbers, and the leader and operators decide which slot owns a key."""

import asyncio

import pytest

from pitboss.model.duration import SECOND, span
from pitboss.model.errors import NotLeader, Refused, SessionLost
from pitboss.model.partition import Partition
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.partitioned import (
    NODE,
    POOL,
    WORK,
    add,
    change,
    divide,
    give,
    given,
    new,
    row,
    seat,
    two_owners,
)
from pitboss.testing.conformance.waiting import SOON, silence

CROWD = 6


class WorkerSlots:
    async def test_the_first_node_has_the_numbers_of_its_places(self, bench: Bench) -> None:
        taken = await seat(bench, 0, 1, 2, queues=("b", "a"))
        assert taken == [
            PoolSlot(pool=POOL, number=n, node=NODE, place=n, session=bench.me.number, queues=("b", "a"), live=True)
            for n in range(3)
        ]
        assert await bench.store.slots() == taken

    async def test_any_places_have_their_numbers_if_they_are_free(self, bench: Bench) -> None:
        assert _numbers(await seat(bench, 7, 3)) == {3: 3, 7: 7}

    async def test_a_second_node_gets_the_lowest_free_numbers(self, bench: Bench) -> None:
        await seat(bench, 0, 1, 3)
        other = await bench.session("job")
        assert _numbers(await seat(bench, 0, 1, 5, session=other, node="other")) == {0: 2, 1: 4, 5: 5}
        assert [one.number for one in await bench.store.slots()] == [0, 1, 2, 3, 4, 5]

    async def test_pools_count_on_their_own(self, bench: Bench) -> None:
        await seat(bench, 0, 1, pool="y")
        await seat(bench, 0, pool="x")
        assert [one.name for one in await bench.store.slots()] == ["x/0", "y/0", "y/1"]

    async def test_taking_again_changes_nothing(self, bench: Bench) -> None:
        first = await seat(bench, 0, 1)
        assert await seat(bench, 1, 0, 1) == first
        # Under another name it keeps its numbers.
        assert _numbers(await seat(bench, 0, 1, node="renamed")) == _numbers(first)

    async def test_other_queues_of_the_pool_are_noted(self, bench: Bench) -> None:
        await seat(bench, 0, queues=("a",))
        await seat(bench, 0)
        assert [one.queues for one in await bench.store.slots()] == [None]

    async def test_places_that_are_not_wanted_any_more_are_given_up(self, bench: Bench) -> None:
        await seat(bench, 0, 1, 2, pool="x")
        await seat(bench, 0, 1, 2)
        assert _numbers(await seat(bench, 0, 2)) == {0: 0, 2: 2}
        other = await bench.session("job")
        assert _numbers(await seat(bench, 0, session=other, node="other")) == {0: 1}
        assert await seat(bench) == []
        names = [one.name for one in await bench.store.slots()]
        assert names == ["default/1", "x/0", "x/1", "x/2"]

    async def test_a_restart_gets_the_same_numbers(self, bench: Bench) -> None:
        before = await bench.session("job")
        other = await bench.session("job")
        await seat(bench, 0, 1, session=other, node="other")
        assert _numbers(await seat(bench, 0, 1, session=before)) == {0: 2, 1: 3}
        await bench.end(before)
        await seat(bench, session=other, node="other")
        after = await bench.session("job")
        taken = await seat(bench, 0, 1, 2, session=after)
        assert _numbers(taken) == {0: 2, 1: 3, 2: 0}
        assert {one.session for one in taken} == {after.number}

    async def test_numbers_are_kept_for_a_while_after_an_orderly_end(self, bench: Bench) -> None:
        before, other = await bench.session("job", ttl=span("10s")), await bench.session("job", ttl=span("1h"))
        (slot,) = await seat(bench, 0, session=before)
        bench.clock.advance(5)
        await bench.end(before)
        bench.clock.advance("9999999us")
        (shown,) = await bench.store.slots()
        assert (shown.name, shown.live, shown.session) == (slot.name, False, before.number)
        assert _numbers(await seat(bench, 0, session=other, node="other")) == {0: 1}
        bench.clock.advance("1us")
        assert [one.number for one in await bench.store.slots()] == [1]
        assert _numbers(await seat(bench, 0, 1, session=other, node="other")) == {0: 1, 1: 0}

    async def test_numbers_are_free_as_soon_as_a_session_expires(self, bench: Bench) -> None:
        before, other = await bench.session("job", ttl=span("10s")), await bench.session("job", ttl=span("1h"))
        await seat(bench, 0, session=before)
        bench.clock.advance("9999999us")
        assert [one.live for one in await bench.store.slots()] == [True]
        bench.clock.advance("1us")
        assert await bench.store.slots() == []
        assert _numbers(await seat(bench, 0, session=other, node="other")) == {0: 0}

    async def test_a_session_that_a_successor_proves_dead_keeps_its_numbers(self, bench: Bench) -> None:
        before = await bench.session("job", ttl=span("10s"))
        other = await bench.session("job", ttl=span("1h"))
        await seat(bench, 0, session=other, node="other")
        await seat(bench, 0, session=before)
        bench.clock.advance(4)
        await bench.end(before)
        after = await bench.session("job")
        assert _numbers(await seat(bench, 0, session=after)) == {0: 1}

    async def test_a_renewed_session_keeps_its_slots(self, bench: Bench) -> None:
        session = await bench.session("job", ttl=span("10s"))
        (slot,) = await seat(bench, 4, session=session)
        for _ in range(3):
            bench.clock.advance(9)
            await bench.renew(session)
        assert await bench.store.slots() == [slot]

    async def test_a_second_manager_of_a_node_gets_a_name_of_its_own(self, bench: Bench) -> None:
        one, two, three = [await bench.session("job", pid=pid) for pid in (11, 12, 13)]
        seats = [await seat(bench, 0, 1, session=session) for session in (one, two, three)]
        assert [slots[0].node for slots in seats] == [NODE, f"{NODE}~2", f"{NODE}~3"]
        assert [_numbers(slots) for slots in seats] == [{0: 0, 1: 1}, {0: 2, 1: 3}, {0: 4, 1: 5}]

    async def test_both_managers_of_a_node_get_their_numbers_back(self, bench: Bench) -> None:
        one, two = [await bench.session("job", pid=pid) for pid in (11, 12)]
        await seat(bench, 0, session=one)
        await seat(bench, 0, session=two)
        await bench.end(one)
        await bench.end(two)
        again, too = [await bench.session("job", pid=pid) for pid in (21, 22)]
        assert _numbers(await seat(bench, 0, session=again)) == {0: 0}
        assert _numbers(await seat(bench, 0, session=too)) == {0: 1}

    async def test_a_name_of_its_own_ends_when_no_slot_has_the_plain_one(self, bench: Bench) -> None:
        """Otherwise a restart of the second manager would not find its numbers."""
        first = await bench.session("job", pid=11, ttl=span("10s"))
        second = await bench.session("job", pid=12, ttl=span("1h"))
        await seat(bench, 0, session=first)
        (slot,) = await seat(bench, 0, session=second)
        await bench.end(first)
        assert await seat(bench, 0, session=second) == [slot]
        bench.clock.advance(10)
        (slot,) = await seat(bench, 0, session=second)
        assert (slot.node, slot.number) == (NODE, 1)

    async def test_a_manager_with_a_name_of_its_own_keeps_its_numbers_in_its_next_session(self, bench: Bench) -> None:
        first = await bench.session("job", pid=11, ttl=span("10s"))
        await seat(bench, 0, session=first)
        second, again = [await bench.session("job", pid=12, ttl=span("1h")) for _ in range(2)]
        await seat(bench, 0, session=second)
        bench.clock.advance(10)
        (slot,) = await seat(bench, 0, session=again)
        assert (slot.node, slot.number) == (NODE, 1)

    async def test_exact_numbers_are_those_of_the_places_in_whatever_order_managers_restart(self, bench: Bench) -> None:
        first, second = await bench.session("job"), await bench.session("job")
        for one, place in ((first, 0), (second, 1)):
            await bench.store.take_slots(one.number, POOL, NODE, [place], exact=True)
            await bench.end(one)
        for place in (1, 0):
            again = await bench.session("job")
            taken = await bench.store.take_slots(again.number, POOL, NODE, [place], exact=True)
            assert _numbers(taken) == {place: place}
        assert [(one.number, one.live) for one in await bench.store.slots()] == [(0, True), (1, True)]

    async def test_an_exact_number_that_a_living_session_has_is_refused(self, bench: Bench) -> None:
        taken = await seat(bench, 0, 1)
        other = await bench.session("job")
        with pytest.raises(Refused, match="slot 1 of pool"):
            await bench.store.take_slots(other.number, POOL, NODE, [1, 2], exact=True)
        assert await bench.store.slots() == taken
        await bench.end(bench.me)
        assert _numbers(await bench.store.take_slots(other.number, POOL, NODE, [1, 2], exact=True)) == {1: 1, 2: 2}

    async def test_another_session_of_the_same_process_takes_over(self, bench: Bench) -> None:
        old, renewed = [await bench.session("job", pid=11, boot_id="b") for _ in range(2)]
        await seat(bench, 0, 1, 2, session=old)
        taken = await seat(bench, 0, 1, session=renewed)
        assert (_numbers(taken), taken[0].node) == ({0: 0, 1: 1}, NODE)
        assert [one.session for one in await bench.store.slots()] == [renewed.number] * 2 + [old.number]

    async def test_a_process_with_the_same_id_after_a_boot_is_another(self, bench: Bench) -> None:
        old, other = [await bench.session("job", pid=11, boot_id=boot) for boot in "bc"]
        await seat(bench, 0, session=old)
        assert _numbers(await seat(bench, 0, session=other)) == {0: 1}

    async def test_managers_that_come_at_once_get_different_numbers(self, bench: Bench) -> None:
        stores = [bench.store, await bench.open_engine()]
        sessions = [await bench.session("job", pid=pid) for pid in range(1, CROWD + 1)]
        seats = await asyncio.gather(
            *(
                stores[n % 2].take_slots(session.number, POOL, NODE if n % 3 else "other", [0, 1])
                for n, session in enumerate(sessions)
            )
        )
        numbers = [slot.number for slots in seats for slot in slots]
        assert sorted(numbers) == list(range(2 * CROWD))
        assert [one.number for one in await bench.store.slots()] == sorted(numbers)

    async def test_a_session_that_is_not_alive_gets_no_slot(self, bench: Bench) -> None:
        ended, expired = await bench.session("job"), await bench.session("job", ttl=SECOND)
        await bench.end(ended)
        bench.clock.advance(1)
        for number in (ended.number, expired.number, 999):
            with pytest.raises(SessionLost):
                await bench.store.take_slots(number, POOL, NODE, [0])
        assert await bench.store.slots() == []

    async def test_an_end_after_the_expiry_brings_no_slot_back_that_was_forgotten(self, bench: Bench) -> None:
        before, other = await bench.session("job", ttl=span("10s")), await bench.session("job")
        await seat(bench, 0, 1, session=other, node="other")
        assert _numbers(await seat(bench, 0, session=before)) == {0: 2}
        await seat(bench, session=other, node="other")
        bench.clock.advance(10)
        between = await bench.session("job")
        assert _numbers(await seat(bench, 0, session=between)) == {0: 0}
        await bench.end(before)
        assert [one.number for one in await bench.store.slots()] == [0]
        await bench.end(between)
        after = await bench.session("job")
        assert _numbers(await seat(bench, 0, session=after)) == {0: 0}


class Assigning:
    async def test_only_the_leader_of_the_term_may_assign(self, bench: Bench) -> None:
        await two_owners(bench)
        old = (await bench.store.campaign(bench.me.number)).term
        await bench.store.resign(bench.me.number)
        other = await bench.session("job")
        term = (await bench.store.campaign(other.number)).term
        before = await bench.store.partitions(WORK)
        for wrong in (old, term + 1):
            with pytest.raises(NotLeader):
                await bench.store.assign(WORK, {"a": "default/1", "c": "default/0"}, term=wrong)
        assert await bench.store.partitions(WORK) == before
        assert await bench.store.assign(WORK, {"a": "default/1"}, term=term) == 1

    async def test_each_new_owner_has_the_next_epoch(self, bench: Bench) -> None:
        await divide(bench, mode="balanced")
        await add(bench, "a")
        assert (await row(bench, "a")).epoch == 0
        for slot, epoch in ((0, 1), (0, 1), (1, 2), (0, 3)):
            await give(bench, {"a": slot})
            found = await row(bench, "a")
            assert (found.owner, found.moving_to, found.epoch) == (f"default/{slot}", None, epoch)

    async def test_it_says_how_many_keys_have_another_owner(self, bench: Bench) -> None:
        await divide(bench, mode="balanced")
        assert await give(bench, {}) == 0
        assert await give(bench, {"a": 0, "b": 1}) == 2
        assert await give(bench, {"a": 0, "b": 0, "c": 0}) == 2

    async def test_an_unknown_key_gets_a_row(self, bench: Bench) -> None:
        await divide(bench, mode="static")
        assert await give(bench, {"new": 5}) == 1
        assert await bench.store.partitions(WORK) == [Partition(queue=WORK, key="new", owner="default/5", epoch=1)]

    @pytest.mark.parametrize("mode", ["balanced", "static"])
    async def test_a_move_waits_until_no_task_of_the_key_runs(self, bench: Bench, mode: str) -> None:
        await two_owners(bench, mode)
        for _ in range(3):
            await add(bench, "a")
        first, second = await given(bench, 0, free=2)
        assert await give(bench, {"a": 1}) == 0
        await bench.complete(first)
        assert await give(bench, {}) == 0
        found = await row(bench, "a")
        assert (found.owner, found.moving_to, found.epoch) == ("default/0", "default/1", 1)
        assert await given(bench, 0) == await given(bench, 1) == []
        await bench.complete(second)
        assert await given(bench, 0) == await given(bench, 1) == []
        assert await give(bench, {}) == 1
        found = await row(bench, "a")
        assert (found.owner, found.moving_to, found.epoch) == ("default/1", None, 2)
        assert len(await given(bench, 1)) == 1

    async def test_a_move_waits_for_lost_tasks_until_they_are_taken_back(self, bench: Bench) -> None:
        await two_owners(bench)
        other = await bench.session("job")
        await seat(bench, 0, session=other, node="other")
        await give(bench, {"c": 2})
        task = await add(bench, "c")
        assert len(await given(bench, 2, session=other)) == 1
        await bench.end(other)
        assert await give(bench, {"c": 1}) == 0
        await bench.reclaim()
        assert await give(bench, {}) == 1
        assert [claim.id for claim in await given(bench, 1)] == [task.id]

    async def test_a_move_that_has_not_arrived_can_go_elsewhere_or_back(self, bench: Bench) -> None:
        await two_owners(bench)
        await seat(bench, 0, 1, 2)
        await add(bench, "a")
        await add(bench, "a")
        await given(bench, 0)
        assert await give(bench, {"a": 1}) == await give(bench, {"a": 2}) == 0
        assert (await row(bench, "a")).moving_to == "default/2"
        await silence(bench.store)
        assert await give(bench, {"a": 0}) == 0
        found = await row(bench, "a")
        assert (found.owner, found.moving_to, found.epoch) == ("default/0", None, 1)
        assert await bench.store.wait([WORK], SOON), "its tasks may start again"
        assert len(await given(bench, 0)) == 1

    async def test_an_arrival_and_the_next_move_are_one_act(self, bench: Bench) -> None:
        await two_owners(bench)
        await add(bench, "a")
        (claim,) = await given(bench, 0)
        await give(bench, {"a": 1})
        await bench.complete(claim)
        assert await give(bench, {"a": 0, "b": 0}) == 2
        found = await row(bench, "a")
        assert (found.owner, found.moving_to, found.epoch) == ("default/0", None, 3)

    async def test_a_claim_and_a_move_at_once_give_the_key_to_one_slot(self, bench: Bench) -> None:
        await two_owners(bench)
        bench.watching = False
        stores = [bench.store, await bench.open_engine()]
        term = (await bench.store.campaign(bench.me.number)).term
        await bench.put(*(new(bench, "a") for _ in range(3 * CROWD)))
        for turn in range(CROWD):
            here, there = turn % 2, 1 - turn % 2
            slots = [Slot(free=1, number=n, queues=(WORK,)) for n in (here, there)]
            asks = [ClaimRequest(session=bench.me.number, slots=(slot,)) for slot in slots]
            first, _, second = await asyncio.gather(
                stores[0].claim(asks[0]),
                stores[1].assign(WORK, {"a": f"default/{there}"}, term=term),
                stores[0].claim(asks[1]),
            )
            assert not (first.claims and second.claims), "two slots have a task of the key"
            for claim in (*first.claims, *second.claims):
                await bench.complete(claim)
            await give(bench, {"a": there})
            assert (await row(bench, "a")).owner == f"default/{there}"

    async def test_with_affinity_keys_move_at_once(self, bench: Bench) -> None:
        await two_owners(bench, "affinity")
        await add(bench, "a")
        await given(bench, 0)
        assert await give(bench, {"a": 1}) == 1
        found = await row(bench, "a")
        assert (found.owner, found.moving_to, found.epoch) == ("default/1", None, 2)

    async def test_tasks_of_other_keys_and_queues_delay_no_move(self, bench: Bench) -> None:
        await divide(bench, WORK, "other", mode="static")
        await seat(bench, 0, 1)
        for queue in (WORK, "other"):
            await give(bench, {"a": 0, "b": 0}, queue)
        await add(bench, "b")
        await add(bench, "a", queue="other")
        assert len(await given(bench, 0, free=2, queues=(WORK, "other"))) == 2
        assert await give(bench, {"a": 1}) == 1
        assert await give(bench, {"b": 1}, "other") == 1

    async def test_new_owners_are_heard(self, bench: Bench) -> None:
        await two_owners(bench)
        await silence(bench.store)
        await give(bench, {"a": 1})
        assert await bench.store.wait([WORK], SOON)

    async def test_an_assignment_that_changes_nothing_rings_nothing(self, bench: Bench) -> None:
        await two_owners(bench)
        await silence(bench.store)
        assert await give(bench, {"a": 0, "b": 1}) == 0
        assert not await bench.store.wait(None, 0.02)


class ChangingPartitions:
    async def test_a_pin_is_noted_and_ends(self, bench: Bench) -> None:
        await two_owners(bench)
        pinned = await change(bench, "a", pinned="default/1")
        assert (pinned.pinned, pinned.owner, pinned.epoch) == ("default/1", "default/0", 1)
        assert await row(bench, "a") == pinned
        assert (await change(bench, "a", owner="default/1")).pinned == "default/1"
        assert (await change(bench, "a", pinned=None)).pinned is None

    async def test_a_move_and_a_pin_in_one_call(self, bench: Bench) -> None:
        await two_owners(bench)
        await add(bench, "a")
        moved = await change(bench, "a", owner="default/1", pinned="default/1")
        assert moved == Partition(
            queue=WORK, key="a", owner="default/1", pinned="default/1", epoch=2, counts={State.PENDING: 1}
        )
        assert await row(bench, "a") == moved
        assert len(await given(bench, 1)) == 1

    async def test_an_operator_s_move_waits_too(self, bench: Bench) -> None:
        await two_owners(bench)
        await add(bench, "a")
        (claim,) = await given(bench, 0)
        moved = await change(bench, "a", owner="default/1")
        assert (moved.owner, moved.moving_to) == ("default/0", "default/1")
        assert (await change(bench, "a", owner="default/0")).moving_to is None
        await change(bench, "a", owner="default/1")
        await bench.complete(claim)
        assert await give(bench, {}) == 1
        assert (await row(bench, "a")).owner == "default/1"

    async def test_an_unknown_key_can_be_given_away(self, bench: Bench) -> None:
        await two_owners(bench)
        made = await change(bench, "new", owner="default/0")
        assert made == Partition(queue=WORK, key="new", owner="default/0", epoch=1)
        await add(bench, "new")
        assert len(await given(bench, 0)) == 1

    async def test_a_change_is_heard(self, bench: Bench) -> None:
        await two_owners(bench)
        await silence(bench.store)
        await change(bench, "a", owner="default/1")
        assert await bench.store.wait([WORK], SOON)


def _numbers(slots: list[PoolSlot]) -> dict[int, int]:
    """The number of each place."""
    return {one.place: one.number for one in slots}


__all__ = ["Assigning", "ChangingPartitions", "WorkerSlots"]
