"""Who sets the rules of a pool: the code that declares it first, or replaces that, and above it an operator."""

from pitboss.model.duration import SECOND
from pitboss.model.resource import (
    MINUTE,
    Declaration,
    Limits,
    NewResource,
    OperatorLimits,
    PoolRules,
    ResourcePool,
    Stage,
)
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    POOL,
    QUEUE,
    UNLIMITED,
    contested,
    done,
    limits,
    member,
    pool,
    served,
)
from pitboss.testing.conformance.waiting import SOON, silence


class RulesOfPools:
    async def test_a_declaration_that_replaces_nothing_leaves_the_first_one(self, bench: Bench) -> None:
        first, other = PoolRules(limits=limits(windows=[(2, 5)])), PoolRules()
        assert await bench.store.declare_pool(POOL, first, by="m1", replace=False) is None
        at = bench.now
        bench.clock.advance(1)
        assert await bench.store.declare_pool(POOL, other, replace=False) == Declaration(rules=first, by="m1", at=at)
        assert (await _pool(bench)).rules == first

    async def test_a_declaration_says_what_it_replaced(self, bench: Bench) -> None:
        first, other = PoolRules(limits=limits(windows=[(2, 5)])), PoolRules()
        await bench.store.declare_pool(POOL, first, by="m1")
        at = bench.now
        bench.clock.advance(1)
        assert await bench.store.declare_pool(POOL, first, by="m2") == Declaration(rules=first, by="m1", at=at)
        assert await bench.store.declare_pool(POOL, other, by="m2") == Declaration(rules=first, by="m1", at=at)
        assert (await _pool(bench)).declared == Declaration(by="m2", at=bench.now)

    async def test_a_pool_that_is_only_created_is_not_declared(self, bench: Bench) -> None:
        rules = PoolRules(limits=limits(windows=[(2, 5)]))
        assert await bench.store.declare_pool(POOL, None) is None
        assert await bench.store.resource_pools() == [ResourcePool(name=POOL)]
        assert await bench.store.declare_pool(POOL, rules, replace=False) is None
        assert (await _pool(bench)).rules == rules
        assert (await bench.store.declare_pool(POOL, None) or Declaration()).rules == rules
        assert (await _pool(bench)).rules == rules

    async def test_members_that_came_first_get_the_first_declaration(self, bench: Bench) -> None:
        await bench.store.add_resources(POOL, [NewResource(name="a")])
        await pool(bench, limits=limits(windows=[(1, 60)]))
        await done(bench, await served(bench))
        assert (await member(bench, "a")).stage is Stage.AWAY

    async def test_an_operator_s_limits_win_over_every_declaration_until_they_are_reset(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(50, 3600), (5, 10)], min_delay=SECOND))
        assert await bench.store.limit_pool(POOL, {"per_hour": 20, "concurrency": 3}, by="ann@h")
        shown = await _pool(bench)
        assert shown.limited == OperatorLimits(values={"per_hour": 20, "concurrency": 3}, by="ann@h", at=bench.now)
        held = limits(windows=[(5, 10), (20, 3600)], min_delay=SECOND, concurrency=3)
        assert shown.rules.limits == held
        await bench.store.declare_pool(POOL, PoolRules(limits=limits(windows=[(70, 3600)])))
        assert (await _pool(bench)).rules.limits == limits(windows=[(20, 3600)], concurrency=3)
        assert await bench.store.limit_pool(POOL, {}, reset=True)
        shown = await _pool(bench)
        assert (shown.rules.limits, shown.limited) == (limits(windows=[(70, 3600)]), None)

    async def test_an_operator_adds_keys_or_begins_anew(self, bench: Bench) -> None:
        await pool(bench)
        await bench.store.limit_pool(POOL, {"per_hour": 20}, by="ann")
        await bench.store.limit_pool(POOL, {"per_minute": 2}, by="bob")
        limited = (await _pool(bench)).limited
        assert limited is not None
        assert (limited.values, limited.by) == ({"per_hour": 20, "per_minute": 2}, "bob")
        await bench.store.limit_pool(POOL, {"min_delay": SECOND}, reset=True)
        assert (await _pool(bench)).rules.limits == Limits(min_delay=SECOND)

    async def test_an_operator_s_limits_hold_for_members_at_once(self, bench: Bench) -> None:
        await pool(bench, "a", limits=UNLIMITED)
        await done(bench, await served(bench))
        used_at = bench.now
        await silence(bench.store)
        await bench.store.limit_pool(POOL, {"min_delay": 60 * SECOND})
        assert await bench.store.wait([QUEUE], SOON)
        assert ((await member(bench, "a")).available_at, (await contested(bench, 1)).claims) == (used_at + MINUTE, [])

    async def test_an_unknown_pool_is_not_limited(self, bench: Bench) -> None:
        assert not await bench.store.limit_pool("elsewhere", {"per_hour": 1})
        assert await bench.store.resource_pools() == []


async def _pool(bench: Bench) -> ResourcePool:
    (found,) = await bench.store.resource_pools()
    return found
