"""Claims in queues with partitions: which slot gets which task."""

import pytest

from pitboss.model.duration import SECOND, span
from pitboss.model.errors import SessionLost
from pitboss.model.outcome import Released, Snooze
from pitboss.model.partition import LOOK
from pitboss.model.session import Order, Slot
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
    params,
    row,
    seat,
    two_owners,
)

MODES = ("affinity", *EXCLUSIVE)


class KeyedClaims:
    @pytest.mark.parametrize("mode", EXCLUSIVE)
    async def test_a_slot_gets_tasks_of_its_own_keys(self, bench: Bench, mode: str) -> None:
        await two_owners(bench, mode)
        a, b, c, d = [await add(bench, key) for key in "abab"]
        assert ids(await given(bench, 0, free=9)) == [a.id, c.id]
        assert ids(await given(bench, 1, free=9)) == [b.id, d.id]

    async def test_with_affinity_it_gets_its_own_first_and_then_the_oldest_of_others(self, bench: Bench) -> None:
        await two_owners(bench, "affinity")
        b1, a, b2, c = [await add(bench, key) for key in "babc"]
        urgent = await add(bench, "b", priority=-1)
        assert ids(await given(bench, 0)) == [a.id]
        assert ids(await given(bench, 0, free=9)) == [urgent.id, b1.id, b2.id, c.id]

    @pytest.mark.parametrize("mode", MODES)
    async def test_own_tasks_come_by_priority_then_age(self, bench: Bench, mode: str) -> None:
        await two_owners(bench, mode)
        await give(bench, {"z": 0})
        a, z, none = await add(bench, "a", priority=1), await add(bench, "z"), await add(bench, None, priority=1)
        first, last = await add(bench, "a", priority=-1), await add(bench, "z", priority=9)
        assert ids(await given(bench, 0, free=5)) == [first.id, z.id, a.id, none.id, last.id]

    @pytest.mark.parametrize("mode", MODES)
    async def test_several_slots_of_one_request_each_get_their_own(self, bench: Bench, mode: str) -> None:
        await two_owners(bench, mode)
        tasks = [await add(bench, key) for key in "bbaa"]
        slots = [Slot(free=1, number=n, queues=(WORK,)) for n in (0, 1)]
        claims = (await bench.ask(*slots)).claims
        assert [(claim.slot, claim.id) for claim in claims] == [(0, tasks[2].id), (1, tasks[0].id)]

    async def test_slots_of_several_sessions_share_a_queue(self, bench: Bench) -> None:
        await two_owners(bench)
        other = await bench.session("job")
        (slot,) = await seat(bench, 0, session=other, node="other")
        await give(bench, {"c": slot.number})
        a, _, c = [await add(bench, key) for key in "abc"]
        assert ids(await given(bench, slot.number, free=9, session=other)) == [c.id]
        assert ids(await given(bench, 0, free=9)) == [a.id]

    async def test_a_slot_s_queues_are_served_in_one_order(self, bench: Bench) -> None:
        await divide(bench, WORK, "too", mode="static")
        await seat(bench, 0)
        await give(bench, {"a": 0})
        await give(bench, {"b": 0}, "too")
        await add(bench, "a", queue="too")
        tasks = [
            await add(bench, "b", queue="too", priority=2),
            await add(bench, "a", priority=1),
            await add(bench, "a", queue="plain"),
            await add(bench, "a", queue="plain", priority=3),
        ]
        wanted = ids(sorted(tasks, key=lambda task: task.priority))
        assert ids(await given(bench, 0, free=9, queues=("too", "plain", WORK))) == wanted

    async def test_a_slot_of_all_queues_is_served_too(self, bench: Bench) -> None:
        await two_owners(bench)
        plain, _, own = await bench.add(), await add(bench, "b"), await add(bench, "a")
        assert ids(await given(bench, 0, free=9, queues=None)) == [plain.id, own.id]

    @pytest.mark.parametrize("on_missing", ["hold", "reassign", "steal"])
    async def test_tasks_of_a_key_without_an_owner_wait_unless_any_slot_may_take_them(
        self, bench: Bench, on_missing: str
    ) -> None:
        await two_owners(bench, on_missing=on_missing)
        task = await add(bench, "c")
        found = ids(await given(bench, 0))
        assert found == ([task.id] if on_missing == "steal" else [])

    async def test_tasks_of_a_key_without_an_owner_wait_where_the_work_is_balanced(self, bench: Bench) -> None:
        await two_owners(bench, "balanced")
        await add(bench, "c")
        assert await given(bench, 0) == []

    async def test_any_slot_takes_the_tasks_of_a_slot_that_no_worker_has(self, bench: Bench) -> None:
        await two_owners(bench, on_missing="steal")
        other = await bench.session("job", ttl=span("10s"))
        await seat(bench, 2, session=other, node="other")
        await give(bench, {"c": 2, "d": 9})
        c, d, a = await add(bench, "c", priority=-1), await add(bench, "d"), await add(bench, "a")
        assert ids(await given(bench, 0)) == [a.id]
        assert ids(await given(bench, 1)) == [d.id]
        assert await given(bench, 1) == []
        bench.clock.advance(10)
        assert ids(await given(bench, 1)) == [c.id]

    async def test_tasks_of_a_slot_that_is_kept_are_not_taken(self, bench: Bench) -> None:
        await two_owners(bench, on_missing="steal")
        other = await bench.session("job", ttl=span("10s"))
        await seat(bench, 2, session=other, node="other")
        await give(bench, {"c": 2})
        await add(bench, "c")
        await bench.end(other)
        bench.clock.advance(9)
        assert await given(bench, 0) == []
        bench.clock.advance(1)
        assert len(await given(bench, 0)) == 1

    @pytest.mark.parametrize("mode", EXCLUSIVE)
    @pytest.mark.parametrize(
        "what", ["no number", "a free number", "of another session", "of another pool", "given up"]
    )
    async def test_a_slot_that_is_not_its_session_s_gets_only_tasks_without_a_key(
        self, bench: Bench, mode: str, what: str
    ) -> None:
        await two_owners(bench, mode)
        other = await bench.session("job")
        await seat(bench, 5, session=other, node="other")
        await give(bench, {"c": 5, "d": 9})
        for key in "abcd":
            await add(bench, key)
        none = await add(bench, None)
        if what == "given up":
            await seat(bench, 0)
        slot = {
            "no number": Slot(free=9),
            "a free number": Slot(free=9, number=9),
            "of another session": Slot(free=9, number=5),
            "of another pool": Slot(free=9, number=0, pool="other"),
            "given up": Slot(free=9, number=1),
        }[what]
        claimed = await bench.ask(slot)
        assert (ids(claimed.claims), claimed.partitioned) == ([none.id], True)

    async def test_with_affinity_a_slot_without_a_number_gets_tasks_without_a_key_first(self, bench: Bench) -> None:
        await two_owners(bench, "affinity")
        tasks = [await add(bench, key) for key in "bac"]
        none = await add(bench, None)
        assert ids(await given(bench, None, free=9)) == [none.id, *ids(tasks)]

    async def test_a_restarted_manager_gets_the_tasks_of_its_slots(self, bench: Bench) -> None:
        await divide(bench, mode="static")
        before = await bench.session("job", ttl=span("10s"))
        await seat(bench, 0, session=before)
        await give(bench, {"a": 0})
        task = await add(bench, "a")
        await given(bench, 0, session=before)
        await bench.end(before)
        await bench.reclaim()
        after = await bench.session("job")
        assert await given(bench, 0, session=after) == []
        await seat(bench, 0, session=after)
        assert ids(await given(bench, 0, session=after)) == [task.id]
        assert (await row(bench, "a")).epoch == 1

    async def test_a_session_that_is_not_alive_gets_nothing(self, bench: Bench) -> None:
        await two_owners(bench)
        await add(bench, "a")
        await bench.end(bench.me)
        with pytest.raises(SessionLost):
            await asked(bench, 0)

    async def test_keys_with_one_name_in_two_queues_have_owners_of_their_own(self, bench: Bench) -> None:
        await divide(bench, WORK, "too", mode="static")
        await seat(bench, 0, 1)
        await give(bench, {"a": 0})
        await give(bench, {"a": 1}, "too")
        one, other = await add(bench, "a"), await add(bench, "a", queue="too")
        assert ids(await given(bench, 0, free=9, queues=None)) == [one.id]
        assert ids(await given(bench, 1, free=9, queues=None)) == [other.id]

    async def test_a_task_that_waits_again_goes_to_the_owner(self, bench: Bench) -> None:
        await two_owners(bench)
        await add(bench, "a")
        (claim,) = await given(bench, 0)
        await bench.report(claim, Released())
        assert await given(bench, 1) == []
        (claim,) = await given(bench, 0)
        await bench.report(claim, Snooze(5 * SECOND))
        assert (await asked(bench, 1)).next_due == bench.now + 5 * SECOND
        bench.clock.advance(5)
        assert await given(bench, 1) == []
        assert len(await given(bench, 0)) == 1

    async def test_nothing_is_claimed_ahead(self, bench: Bench) -> None:
        await two_owners(bench, "affinity")
        for _ in range(3):
            await add(bench, "a")
        assert len(await given(bench, 0, free=1, ahead=5)) == 1
        assert await given(bench, 0, free=0, ahead=5) == []
        plain = [await bench.add(queue="plain") for _ in range(3)]
        claims = await given(bench, 0, free=1, ahead=2, queues=(WORK, "plain"))
        assert ids(claims)[1:] == ids(plain)[:2]

    async def test_a_paused_queue_gives_no_slot_anything(self, bench: Bench) -> None:
        await two_owners(bench)
        await add(bench, "a")
        await bench.change(WORK, paused=True)
        assert (await asked(bench, 0)).claims == []
        await bench.change(WORK, paused=False)
        assert len(await given(bench, 0)) == 1

    async def test_a_claim_says_whether_slots_need_numbers(self, bench: Bench) -> None:
        await two_owners(bench)
        await bench.add(queue="plain")
        assert (await asked(bench, None)).partitioned
        assert (await asked(bench, None, queues=None)).partitioned
        assert not (await asked(bench, None, queues=("plain",))).partitioned
        assert not (await asked(bench, None, queues=("unknown",))).partitioned

    async def test_a_slot_of_some_handlers_passes_others_by(self, bench: Bench) -> None:
        await two_owners(bench, "affinity")
        await bench.register("other")
        await add(bench, "a", handler="other")
        helped, own = await add(bench, "b"), await add(bench, "a")
        assert ids(await given(bench, 0, free=9, handlers=("job",))) == [own.id, helped.id]

    async def test_claims_with_a_time_limit_are_found_again_by_their_key(self, bench: Bench) -> None:
        await two_owners(bench)
        for _ in range(3):
            await add(bench, "a")
        first = await given(bench, 0, free=2, lasts=10 * SECOND, repeat="r", worker="w")
        assert [claim.claim_expires_at for claim in first] == [bench.now + 10 * SECOND] * 2
        await give(bench, {"a": 1})
        again = await given(bench, 0, free=2, lasts=10 * SECOND, repeat="r", worker="w")
        assert ids(again) == ids(first)
        assert await given(bench, 0, free=2, lasts=10 * SECOND, repeat="s") == []

    async def test_expired_and_unknown_tasks_are_put_aside_on_the_way(self, bench: Bench) -> None:
        await two_owners(bench)
        expired, stranger = await add(bench, "a", expires_in=SECOND), await add(bench, "a")
        await bench.register("gone")
        unknown, task = await add(bench, "a", handler="gone"), await add(bench, "a", priority=1)
        await bench.cancel(stranger.id)
        bench.clock.advance(1)
        claims = (await bench.ask(Slot(free=1, number=0, queues=(WORK,)), handlers=["job"])).claims
        assert ids(claims) == [task.id]
        assert await bench.states(expired, unknown) == [State.CANCELLED, State.HELD]

    async def test_another_order_holds_among_the_tasks_that_the_slot_may_take(self, bench: Bench) -> None:
        await two_owners(bench)
        tasks = [await add(bench, key) for key in "abab"]
        order = Order("id", descending=True)
        assert ids(await given(bench, 0, free=9, order=order)) == [tasks[2].id, tasks[0].id]
        assert await given(bench, None, free=9, order=order) == []

    async def test_with_affinity_another_order_holds_for_all_tasks(self, bench: Bench) -> None:
        await two_owners(bench, "affinity")
        tasks = [await add(bench, key) for key in "abc"]
        assert ids(await given(bench, 0, free=9, order=Order("id", descending=True))) == ids(tasks)[::-1]

    async def test_tasks_without_a_key_go_to_any_slot(self, bench: Bench) -> None:
        await two_owners(bench)
        tasks = [await add(bench, None) for _ in range(3)]
        assert ids(await given(bench, 0)) == [tasks[0].id]
        assert ids(await given(bench, 1)) == [tasks[1].id]
        assert ids(await given(bench, None)) == [tasks[2].id]

    @pytest.mark.parametrize("key", ["é漢'\"\\", "%", " ", "a/b", "null"])
    async def test_any_text_is_a_key(self, bench: Bench, key: str) -> None:
        await two_owners(bench)
        await give(bench, {key: 0})
        task = await add(bench, key)
        assert await given(bench, 1) == []
        assert ids(await given(bench, 0)) == [task.id]


class LongLines:
    """Behind more tasks of other keys than a claim looks at."""

    async def test_own_tasks_behind_those_of_others_come_key_by_key(self, bench: Bench) -> None:
        await behind(bench, "static", LOOK - 1)
        near, y, x, late, urgent = [
            new(bench, key, priority=priority) for key, priority in (("y", 1), ("y", 3), ("x", 3), ("x", 4), ("y", 2))
        ]
        await bench.put(near, y, x, late, urgent)
        claims = await given(bench, 0, free=9)
        assert ids(claims) == ids([near, x, late, urgent, y])

    async def test_keys_come_in_the_order_of_code_points(self, bench: Bench) -> None:
        await behind(bench, "static", LOOK)
        keys = ["é", "z", "Z", "10", "9", "a b", "a", "漢"]
        await give(bench, dict.fromkeys(keys, 0))
        await bench.put(*(new(bench, key, priority=1) for key in keys))
        claims = await given(bench, 0, free=9)
        assert [claim.params for claim in claims] == [params(key) for key in sorted(keys)]

    async def test_it_takes_no_more_of_them_than_it_has_room_for(self, bench: Bench) -> None:
        await behind(bench, "balanced", LOOK)
        y, x = new(bench, "y", priority=1), new(bench, "x", priority=2)
        await bench.put(y, x)
        assert ids(await given(bench, 0)) == [x.id]
        assert ids(await given(bench, 0)) == [y.id]
        assert await given(bench, 0) == []

    async def test_own_tasks_behind_come_before_those_of_others(self, bench: Bench) -> None:
        await behind(bench, "affinity", LOOK)
        own = new(bench, "x", priority=1)
        await bench.put(own)
        claims = await given(bench, 0, free=2)
        assert (claims[0].id, claims[1].params) == (own.id, params("b"))

    async def test_a_slot_without_a_number_gets_no_tasks_of_keys_without_an_owner(self, bench: Bench) -> None:
        await behind(bench, "static", LOOK)
        await bench.put(new(bench, "c", priority=1))
        assert await given(bench, None, free=9) == await given(bench, 7, free=9) == []

    async def test_queues_come_one_after_the_other(self, bench: Bench) -> None:
        await behind(bench, "static", LOOK)
        await divide(bench, WORK, "a", mode="static")
        await give(bench, {"z": 0}, "a")
        await bench.put(*(new(bench, "b", queue="a") for _ in range(LOOK)))
        x, z = new(bench, "x", priority=1), new(bench, "z", queue="a", priority=2)
        await bench.put(x, z)
        assert ids(await given(bench, 0, free=9, queues=(WORK, "a"))) == [z.id, x.id]

    async def test_a_queue_without_partitions_is_looked_at_to_its_end(self, bench: Bench) -> None:
        await behind(bench, "static", 1)
        await bench.register("other")
        await bench.put(*(bench.new(queue="plain", handler="other") for _ in range(LOOK)))
        task = bench.new(queue="plain", priority=1)
        await bench.put(task)
        claims = await given(bench, 0, free=9, queues=(WORK, "plain"), handlers=("job",))
        assert ids(claims) == [task.id]

    async def test_help_ends_where_the_look_ends(self, bench: Bench) -> None:
        await behind(bench, "affinity", LOOK + 1, max_per_key=1)
        task = new(bench, "c", priority=1)
        await bench.put(task)
        (first,) = await given(bench, 1)
        assert await given(bench, 0, free=9) == []
        await bench.complete(first)
        assert [claim.params for claim in await given(bench, 0, free=9)] == [params("b")]
        assert ids(await given(bench, 0, free=9)) == [task.id]


__all__ = ["KeyedClaims", "LongLines"]
