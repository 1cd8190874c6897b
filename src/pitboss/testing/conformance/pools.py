"""Pools and their members: declaring, adding, changing and removing them, and the rings for that."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.resource import (
    Declaration,
    Limits,
    NewResource,
    PoolRules,
    Record,
    Resource,
    ResourcePool,
    Stage,
    Strategy,
    Want,
)
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    POOL,
    QUEUE,
    UNLIMITED,
    add,
    asked,
    change,
    contested,
    done,
    failed,
    given,
    limits,
    line_up,
    member,
    members,
    pool,
    served,
)
from pitboss.testing.conformance.waiting import SOON, silence


class DeclaringPools:
    async def test_a_pool_comes_into_being_with_its_rules(self, bench: Bench) -> None:
        rules = PoolRules(limits=limits(windows=[(50, 3600), (6, 60)], jitter=5), strategy=Strategy.WEIGHTED)
        assert await bench.store.declare_pool("b", rules, by="m1") is None
        assert await bench.store.declare_pool("a", PoolRules()) is None
        assert await bench.store.resource_pools() == [
            ResourcePool(name="a", declared=Declaration(at=bench.now)),
            ResourcePool(name="b", rules=rules, declared=Declaration(rules=rules, by="m1", at=bench.now)),
        ]
        assert await bench.store.resources("a") == []

    async def test_a_pool_comes_into_being_with_its_first_member(self, bench: Bench) -> None:
        assert await bench.store.add_resources("keys", [NewResource(name="k")]) == [True]
        assert await bench.store.resource_pools() == [ResourcePool(name="keys", stages={Stage.READY: 1})]

    async def test_declaring_again_keeps_the_members_and_what_is_known_of_them(self, bench: Bench) -> None:
        await pool(bench, "a")
        await done(bench, await served(bench))
        before = await members(bench)
        await bench.store.declare_pool(POOL, PoolRules())
        assert await members(bench) == before

    async def test_the_same_rules_again_change_nothing(self, bench: Bench) -> None:
        some = limits(min_delay=2 * SECOND, jitter=SECOND, windows=[(5, 60)])
        await pool(bench, "a", limits=some)
        await done(bench, await served(bench))
        before = await members(bench)
        bench.clock.advance("100ms")
        await bench.store.declare_pool(POOL, PoolRules(limits=some))
        assert await members(bench) == before

    async def test_members_stand_by_tighter_rules_at_once(self, bench: Bench) -> None:
        await pool(bench, "a", limits=UNLIMITED)
        await served(bench)
        used_at = bench.now
        bench.clock.advance(1)
        await bench.store.declare_pool(POOL, PoolRules(limits=limits(min_delay=10 * SECOND)))
        await bench.look()
        assert (await member(bench, "a")).available_at == used_at + 10 * SECOND
        assert (await member(bench, "a")).stage is Stage.AWAY

    async def test_members_stand_by_looser_rules_at_once(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 60)]))
        await served(bench)
        assert (await member(bench, "a")).stage is Stage.AWAY
        await bench.store.declare_pool(POOL, PoolRules(limits=limits(windows=[(2, 60)])))
        await bench.look()
        assert (await member(bench, "a")).stage is Stage.READY
        assert given((await contested(bench, 2)).claims) == ["a"]

    async def test_a_wider_window_counts_the_uses_that_are_remembered(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 60)]))
        first = bench.now
        await served(bench)
        bench.clock.advance(1)
        await served(bench)
        await bench.store.declare_pool(POOL, PoolRules(limits=limits(windows=[(2, 600)])))
        assert (await member(bench, "a")).available_at == first + 600 * SECOND

    async def test_a_smaller_concurrency_lets_go_on_what_goes_on(self, bench: Bench) -> None:
        await pool(bench, "a", limits=Limits(concurrency=2))
        one, other = await served(bench), await served(bench)
        await bench.store.declare_pool(POOL, PoolRules(limits=Limits(concurrency=1)))
        await done(bench, one)
        assert (await member(bench, "a")).stage is Stage.BUSY
        await done(bench, other)
        assert (await member(bench, "a")).stage is Stage.READY

    async def test_a_pool_says_when_the_next_member_comes_back(self, bench: Bench) -> None:
        await pool(bench, "a", "b", limits=limits(windows=[(1, 60)]))
        first = bench.now
        await served(bench)
        bench.clock.advance(10)
        await served(bench)
        (shown,) = await bench.store.resource_pools()
        assert (shown.stages, shown.next_at) == ({Stage.AWAY: 2}, first + 60 * SECOND)
        bench.clock.advance(50)
        (shown,) = await bench.store.resource_pools()
        assert (shown.stages, shown.next_at) == ({Stage.READY: 1, Stage.AWAY: 1}, first + 70 * SECOND)
        assert shown.members == 2

    async def test_a_change_of_rules_is_heard(self, bench: Bench) -> None:
        await pool(bench, "a")
        await silence(bench.store)
        await bench.store.declare_pool(POOL, PoolRules(limits=UNLIMITED))
        assert await bench.store.wait([QUEUE], SOON)


class PoolMembers:
    async def test_a_member_is_stored_as_it_was_said(self, bench: Bench) -> None:
        new = NewResource(
            name="p1",
            fields='{"host":"10.0.0.1"}',
            secrets={"password": "sealed:é", "cookie": "sealed:2"},
            labels=("eu", "fast"),
            weight=50,
            limits=limits(windows=[(3, 60)], guard=50_000, delay_from="end"),
            valid_until=bench.now + SECOND,
        )
        await add(bench, new)
        (found,) = await members(bench)
        assert found == Resource(
            pool=POOL,
            name="p1",
            fields=new.fields,
            secrets=new.secrets,
            labels=new.labels,
            weight=50,
            limits=new.limits,
            valid_until=new.valid_until,
            added_at=bench.now,
            record=Record(since=bench.now),
        )
        assert found.id == f"{POOL}/p1"

    async def test_members_are_read_by_name(self, bench: Bench) -> None:
        await pool(bench, "c", "a", "b")
        assert [one.name for one in await members(bench)] == ["a", "b", "c"]
        assert [one.name for one in await bench.store.resources(POOL, ["c", "unknown", "a"])] == ["a", "c"]
        assert await bench.store.resources("elsewhere") == []

    async def test_a_member_that_is_there_is_changed_and_keeps_the_rest(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await failed(bench, await served(bench))
        await change(bench, "a", enabled=False, reason="broken")
        before = await member(bench, "a")
        bench.clock.advance(5)
        assert await add(bench, NewResource(name="c"), NewResource(name="a", labels=("eu",), weight=7)) == [True, False]
        after = await member(bench, "a")
        assert (after.labels, after.weight) == (("eu",), 7)
        assert (after.record, after.added_at, after.enabled) == (before.record, before.added_at, False)
        assert after.disabled_reason == "broken"

    async def test_a_member_that_is_added_again_in_use_stays_in_use(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await add(bench, NewResource(name="a", fields='{"n":2}'))
        assert ((await member(bench, "a")).in_use, (await member(bench, "a")).fields) == (1, '{"n":2}')
        await done(bench, claim)
        assert (await member(bench, "a")).in_use == 0

    async def test_of_equal_names_in_one_call_the_last_counts(self, bench: Bench) -> None:
        assert await add(bench, NewResource(name="a", weight=1), NewResource(name="a", weight=2)) == [True, True]
        assert [one.weight for one in await members(bench)] == [2]

    async def test_a_new_member_begins_with_the_lowest_turn(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.ROUND_ROBIN, limits=UNLIMITED)
        for _ in range(5):
            await served(bench)
        lowest = min(one.record.turn for one in await members(bench))
        await add(bench, "c")
        assert (await member(bench, "c")).record.turn == lowest > 0

    async def test_the_same_name_in_two_pools_is_two_members(self, bench: Bench) -> None:
        await pool(bench, "a")
        await bench.store.add_resources("other", [NewResource(name="a")])
        await served(bench)
        assert [one.in_use for one in await bench.store.resources("other")] == [0]

    async def test_new_members_are_heard(self, bench: Bench) -> None:
        await pool(bench)
        await line_up(bench, 1)
        await silence(bench.store)
        await add(bench, "a")
        assert await bench.store.wait([QUEUE], SOON)


class ChangingMembers:
    async def test_a_disabled_member_is_not_given(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        assert await change(bench, "a", enabled=False, reason="expired") == ["a"]
        assert given((await contested(bench, 2)).claims) == ["b"]
        shown = await member(bench, "a")
        assert (shown.enabled, shown.disabled_reason, shown.stage) == (False, "expired", Stage.OUT)

    async def test_an_enabled_member_is_back_without_its_reason(self, bench: Bench) -> None:
        await pool(bench, "a")
        await change(bench, "a", enabled=False, reason="expired")
        await change(bench, "a", enabled=True)
        shown = await member(bench, "a")
        assert (shown.enabled, shown.disabled_reason, shown.stage) == (True, None, Stage.READY)
        await served(bench)

    async def test_disabling_takes_nothing_from_its_holder(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await change(bench, "a", enabled=False)
        assert (await done(bench, claim)).applied
        shown = await member(bench, "a")
        assert (shown.in_use, shown.record.ok, shown.stage) == (0, 1, Stage.OUT)

    async def test_a_reset_forgets_faults_but_not_the_uses(self, bench: Bench) -> None:
        await pool(bench, "a", "b", limits=limits(windows=[(1, 60)]), max_failures=1)
        used_at = bench.now
        await failed(bench, await served(bench))
        assert (await member(bench, "a")).record.blacklistings == 1
        await change(bench, "a", reset=True)
        shown = await member(bench, "a")
        assert (shown.record.blacklistings, shown.record.blacklisted_until, shown.record.failures) == (0, 0, 0)
        assert (shown.record.uses, shown.record.failed) == (1, 1)
        assert shown.available_at == used_at + 60 * SECOND

    async def test_a_reset_member_may_be_used_at_once(self, bench: Bench) -> None:
        await pool(bench, "a", "b", max_failures=1)
        await failed(bench, await served(bench))
        await change(bench, "b", enabled=False)
        assert (await contested(bench, 1)).claims == []
        await change(bench, "a", reset=True)
        assert given((await asked(bench)).claims) == ["a"]

    async def test_what_is_not_named_in_a_change_stays(self, bench: Bench) -> None:
        await pool(bench, NewResource(name="a", labels=("eu",), weight=5, fields='{"n":1}', secrets={"s": "x"}))
        before = await member(bench, "a")
        await change(bench, "a")
        assert await member(bench, "a") == before
        await change(bench, "a", weight=9)
        shown = await member(bench, "a")
        assert (shown.weight, shown.labels, shown.fields, shown.secrets) == (9, ("eu",), '{"n":1}', {"s": "x"})

    async def test_settings_and_secrets_are_changed(self, bench: Bench) -> None:
        await pool(bench, "a")
        await change(bench, "a", labels=("us",), fields="[]", secrets={"k": "v"}, valid_until=bench.now + 9)
        shown = await member(bench, "a")
        assert (shown.labels, shown.fields, shown.secrets) == (("us",), "[]", {"k": "v"})
        assert shown.valid_until == bench.now + 9
        await change(bench, "a", valid_until=None)
        assert (await member(bench, "a")).valid_until is None

    async def test_limits_of_its_own_beat_the_pool_s_until_they_are_taken_away(self, bench: Bench) -> None:
        await pool(bench, "a")
        await change(bench, "a", limits=Limits(concurrency=2))
        assert given((await contested(bench, 3)).claims) == ["a", "a"]
        await change(bench, "a", limits=None)
        assert (await member(bench, "a")).stage is Stage.BUSY

    async def test_all_members_are_changed_without_names(self, bench: Bench) -> None:
        await pool(bench, "b", "a")
        assert await change(bench, weight=3) == ["a", "b"]
        assert [one.weight for one in await members(bench)] == [3, 3]

    async def test_only_members_that_there_are_are_answered(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        assert await change(bench, "unknown", "b", weight=3) == ["b"]
        assert await bench.store.change_resources("elsewhere", None, None) == []

    @pytest.mark.parametrize("changes", [{"enabled": True}, {"reset": True}, {"labels": ("eu",)}])
    async def test_a_change_of_members_is_heard(self, bench: Bench, changes: dict[str, object]) -> None:
        await pool(bench, "a")
        await change(bench, "a", enabled=False)
        await silence(bench.store)
        await change(bench, "a", **changes)
        assert await bench.store.wait([QUEUE], SOON)

    async def test_labels_that_are_changed_count_for_the_next_claim(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await change(bench, "b", labels=("eu",))
        assert given([await served(bench, want=Want(labels=("eu",)))]) == ["b"]
