"""Uses that were granted but not made yet: they can be moved to a later moment."""

from asyncio import gather

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.errors import StaleLease
from pitboss.model.resource import Shortage
from pitboss.testing.conformance.acquiring import gave_back, got, none
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import BLOCKED, POOL, UNLIMITED, done, limits, member, pool, served


class MovedUses:
    """A use that was granted but not made yet is moved, and counts from the later moment."""

    async def test_a_moved_use_is_not_one_more(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 60)]))
        first = await got(bench)
        bench.clock.advance(10)
        assert await bench.store.use("l1", instead=first.leased_at) == bench.now
        await bench.look()
        shown = await member(bench, "a")
        assert (shown.record.uses, shown.in_use, shown.last_used_at) == (1, 1, bench.now)

    async def test_windows_count_it_from_its_new_moment(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 60)]))
        first = await got(bench)
        bench.clock.advance(10)
        await bench.store.use("l1", instead=first.leased_at)
        assert (await none(bench)).until == bench.now + 60 * SECOND
        bench.clock.advance(60)
        await got(bench, "l2")

    async def test_the_gap_counts_from_its_new_moment(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(min_delay=5 * SECOND))
        first = await got(bench)
        bench.clock.advance(3)
        assert await bench.store.use("l1", instead=first.leased_at) == bench.now
        assert (await none(bench)).until == bench.now + 5 * SECOND

    async def test_it_moves_behind_those_that_came_since(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 60)]))
        first = await got(bench)
        bench.clock.advance(5)
        await got(bench, "l2")
        second = bench.now
        bench.clock.advance(5)
        assert await bench.store.use("l1", instead=first.leased_at) == bench.now
        assert (await none(bench)).until == second + 60 * SECOND
        bench.clock.advance(55)
        await got(bench, "l3")
        assert (await none(bench)).until == second + 65 * SECOND

    async def test_of_uses_at_one_moment_one_is_moved(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 60)]))
        first = await got(bench)
        assert (await got(bench, "l2")).leased_at == first.leased_at
        bench.clock.advance(5)
        assert await bench.store.use("l1", instead=first.leased_at) == bench.now
        assert (await none(bench)).until == first.leased_at + 60 * SECOND
        assert await bench.store.use("l2", instead=first.leased_at) == bench.now
        assert (await none(bench)).until == bench.now + 60 * SECOND
        assert (await member(bench, "a")).record.uses == 2

    async def test_it_waits_for_the_gap_after_those_that_came_since(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(min_delay=5 * SECOND))
        first = await got(bench)
        bench.clock.advance(5)
        await got(bench, "l2")
        bench.clock.advance(1)
        answer = await bench.store.use("l1", instead=first.leased_at)
        assert answer == Shortage(pool=POOL, why="all away", until=bench.now + 4 * SECOND)
        bench.clock.advance(4)
        assert await bench.store.use("l1", instead=first.leased_at) == bench.now

    async def test_it_does_not_disturb_a_member_that_cools(self, bench: Bench) -> None:
        await pool(bench, "a", limits=UNLIMITED, cooldown=30 * SECOND)
        first = await got(bench)
        await got(bench, "l2")
        await gave_back(bench, "l2", BLOCKED)
        answer = await bench.store.use("l1", instead=first.leased_at)
        assert isinstance(answer, Shortage)
        assert answer.until == bench.now + 30 * SECOND

    async def test_a_claim_moves_its_use(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 60)]))
        claim = await served(bench)
        assert claim.leased is not None
        bench.clock.advance(2)
        assert await bench.store.use(claim.token, claim.id, instead=claim.leased.leased_at) == bench.now
        assert (await none(bench)).until == bench.now + 60 * SECOND
        await done(bench, claim)
        with pytest.raises(StaleLease):
            await bench.store.use(claim.token, claim.id, instead=claim.leased.leased_at)

    async def test_what_is_not_known_is_one_more(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(3, 60)]))
        first = await got(bench)
        bench.clock.advance(1)
        assert await bench.store.use("l1", instead=first.leased_at - 1) == bench.now
        assert (await member(bench, "a")).record.uses == 2

    async def test_what_the_clock_calls_later_than_now_is_one_more(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(3, 60)]))
        first = await got(bench)
        assert await bench.store.use("l1", instead=first.leased_at + 1) == bench.now
        assert (await member(bench, "a")).record.uses == 2

    async def test_a_moved_use_keeps_older_ones_for_longer_windows(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 10), (4, 100)]))
        begun = bench.now
        held = []
        for number in range(3):
            held.append(await got(bench, f"l{number}"))
            bench.clock.advance(10)
        assert await bench.store.use("l2", instead=held[-1].leased_at) == bench.now
        await got(bench, "l3")
        assert (await none(bench)).until == begun + 100 * SECOND


class UsesAtOnce:
    """Calls at the same moment get the same answers as calls one after the other."""

    async def test_a_budget_is_shared_out_once(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(7, 60)]))
        for number in range(4):
            await got(bench, f"l{number}")
        answers = await gather(*(bench.store.use(f"l{number % 4}") for number in range(9)))
        granted = [one for one in answers if not isinstance(one, Shortage)]
        assert granted == [bench.now] * 3
        until = {one.until for one in answers if isinstance(one, Shortage)}
        assert until == {bench.now + 60 * SECOND}
        await bench.look()
        assert (await member(bench, "a")).record.uses == 7

    async def test_uses_and_moved_ones_of_several_members(self, bench: Bench) -> None:
        await pool(bench, "a", "b", limits=limits(windows=[(3, 60)]))
        first = []
        for number in range(4):
            first.append(await got(bench, f"l{number}"))
            bench.clock.advance(1)
        moves = [bench.store.use(one.lease or "", instead=one.leased_at) for one in first]
        more = [bench.store.use(one.lease or "") for one in first]
        answers = await gather(*moves, *more)
        assert answers[:4] == [bench.now] * 4
        answers = answers[4:]
        assert [one for one in answers if not isinstance(one, Shortage)] == [bench.now] * 2
        assert [one.until for one in answers if isinstance(one, Shortage)] == [bench.now + 60 * SECOND] * 2
        assert [(await member(bench, name)).record.uses for name in "ab"] == [3, 3]

    async def test_a_caller_that_holds_nothing_does_not_disturb_the_others(self, bench: Bench) -> None:
        await pool(bench, "a", "b", limits=UNLIMITED)
        claim = await served(bench)
        await got(bench, "l1")
        await got(bench, "over")
        await gave_back(bench, "over")
        use = bench.store.use
        asked = (use("l1"), use("over"), use(claim.token, claim.id), use(claim.token, "no task"), use("unknown"))
        first, over, of_task, no_task, unknown = await gather(*asked, return_exceptions=True)
        assert (first, of_task) == (bench.now, bench.now)
        assert [type(one) for one in (over, no_task, unknown)] == [StaleLease] * 3
