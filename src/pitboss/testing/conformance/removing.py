"""Members that are removed: their holders, and what is remembered under their names."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.errors import MemberRemoved, StaleLease
from pitboss.model.resource import (
    MINUTE,
    NewResource,
    Record,
    Stage,
    Want,
)
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    FAULTY,
    POOL,
    UNLIMITED,
    add,
    asked,
    contested,
    done,
    failed,
    given,
    limits,
    member,
    members,
    pool,
    remove,
    served,
)


class RemovingMembers:
    async def test_a_removed_member_is_gone(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        assert await remove(bench, "a") == ["a"]
        assert [one.name for one in await members(bench)] == ["b"]
        assert await remove(bench, "a") == []

    async def test_the_claim_of_a_removed_member_goes_on_and_ends(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await remove(bench, "a")
        assert (await bench.progress(claim, 50)).applied
        assert (await done(bench, claim, FAULTY)).applied
        assert await members(bench) == []

    async def test_a_member_that_comes_back_under_its_name_is_another_one(self, bench: Bench) -> None:
        await pool(bench, "a")
        old = await served(bench)
        await remove(bench, "a")
        bench.clock.advance(1)
        await add(bench, "a")
        await served(bench)
        await failed(bench, old)
        shown = await member(bench, "a")
        assert (shown.in_use, shown.record.failed, shown.stage) == (1, 0, Stage.BUSY)

    async def test_uses_of_a_removed_member_count_for_the_next_one_of_its_name(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 600)]))
        first = bench.now
        await done(bench, await served(bench))
        bench.clock.advance(1)
        await done(bench, await served(bench))
        await remove(bench, "a")
        bench.clock.advance(1)
        await bench.reclaim()
        assert await add(bench, NewResource(name="a", weight=50)) == [True]
        shown = await member(bench, "a")
        assert (shown.available_at, shown.record.ok, shown.weight) == (first + 10 * MINUTE, 0, 50)
        assert (await contested(bench, 1)).claims == []
        bench.clock.advance_to(first + 10 * MINUTE)
        assert given((await asked(bench)).claims) == ["a"]
        assert (await member(bench, "a")).available_at == first + SECOND + 10 * MINUTE

    @pytest.mark.parametrize("delay_from", ["start", "end"])
    async def test_the_gap_after_a_removed_member_s_use_is_kept(self, bench: Bench, delay_from: str) -> None:
        await pool(bench, "a", limits=limits(min_delay=MINUTE, delay_from=delay_from))
        claim = await served(bench)
        bench.clock.advance(1)
        await done(bench, claim)
        await remove(bench, "a")
        await add(bench, "a")
        rests = 59 if delay_from == "start" else 60
        assert (await member(bench, "a")).available_at == bench.now + rests * SECOND

    async def test_a_removed_member_is_forgotten_when_no_limit_counts_its_uses(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 60)]))
        await done(bench, await served(bench))
        await remove(bench, "a")
        bench.clock.advance(60)
        await add(bench, "a")
        shown = await member(bench, "a")
        assert (shown.stage, shown.record) == (Stage.READY, Record(since=bench.now))

    async def test_removed_and_added_twice_a_use_counts_once(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 60)]))
        await done(bench, await served(bench))
        for _ in range(2):
            await remove(bench, "a")
            await add(bench, "a")
        await served(bench)
        assert (await contested(bench, 1)).claims == []

    @pytest.mark.parametrize("back", [False, True])
    async def test_a_use_of_a_removed_member_names_the_removal(self, bench: Bench, back: bool) -> None:
        await pool(bench, "a", limits=UNLIMITED)
        claim = await served(bench)
        await bench.store.acquire(POOL, Want(), MINUTE, lease="l1")
        await remove(bench, "a")
        if back:
            bench.clock.advance(1)
            await add(bench, "a")
        with pytest.raises(MemberRemoved, match=f"{POOL}/a was removed"):
            await bench.store.use(claim.token, claim.id)
        with pytest.raises(MemberRemoved, match=f"{POOL}/a was removed"):
            await bench.store.use("l1")
        await done(bench, claim)
        with pytest.raises(StaleLease, match="not held any more"):
            await bench.store.use(claim.token, claim.id)
