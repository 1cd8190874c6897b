"""Uses that last: from the grant until their holder ends them, or until the last moment at which they can be made."""

from typing import Any

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.outcome import Completed
from pitboss.model.resource import Limits, PoolRules, Shortage, Stage, UseEnd
from pitboss.model.task import Token
from pitboss.testing.conformance.acquiring import got, none
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    LIMITED,
    OK,
    POOL,
    QUEUE,
    asked,
    change,
    limits,
    line_up,
    member,
    pool,
    served,
)
from pitboss.testing.conformance.waiting import SOON, silence

OPEN = 10 * SECOND
HOUR = 3600 * SECOND


def lasting(**options: Any) -> Limits:
    """Limits under which a use is open for ten seconds."""
    return limits(**{"use_within": OPEN} | options)


async def ended(bench: Bench, lease: str, at: int, when: int | None = None) -> None:
    await bench.store.end_use(lease, None, UseEnd(at, when))
    await bench.look()


class OpenUses:
    @pytest.mark.parametrize(
        ("options", "open_for"),
        [
            ({"windows": [(1, 60)]}, OPEN),
            ({"min_delay": SECOND}, OPEN),
            ({"jitter": SECOND}, OPEN),
            ({"windows": [(1, 60)], "use_within": SECOND}, SECOND),
            ({"windows": [(1, 60)], "use_within": 0}, 0),
            ({"windows": [(1, 60)], "guard": SECOND}, 0),
            ({"min_delay": SECOND, "delay_from": "end"}, 0),
            ({}, 0),
        ],
    )
    async def test_a_use_is_open_if_limits_look_back_at_it(
        self, bench: Bench, options: dict[str, Any], open_for: int
    ) -> None:
        await pool(bench, "a", limits=lasting(**options))
        leased = await got(bench)
        assert (leased.leased_at, leased.open_for, leased.use_at) == (bench.now, open_for, bench.now + open_for)
        assert leased.shared
        assert (await member(bench, "a")).last_used_at == bench.now + open_for

    async def test_until_it_ends_it_counts_from_the_last_moment_at_which_it_can_be_made(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        began = bench.now
        await got(bench)
        assert (await none(bench)).until == began + 70 * SECOND
        bench.clock.advance(69)
        await none(bench)
        bench.clock.advance(1)
        await got(bench, "l2")

    async def test_a_lease_that_is_released_ends_it(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)], min_delay=SECOND))
        leased = await got(bench)
        bench.clock.advance(2)
        assert await bench.store.release("l1", OK, UseEnd(leased.use_at))
        await bench.look()
        shown = await member(bench, "a")
        assert (shown.last_used_at, shown.available_at) == (bench.now, bench.now + 60 * SECOND)

    async def test_a_settlement_ends_it(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)], concurrency=1))
        claim = await served(bench)
        assert claim.leased is not None
        assert not claim.leased.shared
        bench.clock.advance(2)
        over = bench.now
        for _ in range(2):
            # A settlement whose answer was lost is repeated.
            await bench.report(claim, Completed(), report=OK, use_end=UseEnd(claim.leased.use_at))
            shown = await member(bench, "a")
            assert (shown.last_used_at, shown.available_at) == (over, over + 60 * SECOND)
            bench.clock.advance(1)

    async def test_settlements_of_one_call_each_end_theirs(self, bench: Bench) -> None:
        await pool(bench, "a", "b", limits=lasting(windows=[(3, 60)]))
        await line_up(bench, 6)
        claims = (await asked(bench, 6)).claims
        assert len(claims) == 6
        bench.clock.advance(1)
        over = bench.now
        for claim in claims:
            assert claim.leased is not None
            await bench.report(claim, Completed(), report=OK, use_end=UseEnd(claim.leased.use_at))
        assert {one.available_at for one in await bench.store.resources(POOL)} == {over + 60 * SECOND}

    async def test_the_gap_counts_from_its_end(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(min_delay=5 * SECOND))
        leased = await got(bench)
        assert (await none(bench)).until == bench.now + 15 * SECOND
        bench.clock.advance(2)
        await ended(bench, "l1", leased.use_at)
        assert (await none(bench)).until == bench.now + 5 * SECOND

    async def test_an_end_that_is_told_late_counts_from_when_it_was(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        leased = await got(bench)
        bench.clock.advance(5)
        await ended(bench, "l1", leased.use_at, leased.leased_at + SECOND)
        assert (await member(bench, "a")).available_at == leased.leased_at + 61 * SECOND

    @pytest.mark.parametrize("after", [3, 30])
    async def test_an_end_is_never_later_than_now_or_than_it_can_be(self, bench: Bench, after: int) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        leased = await got(bench)
        bench.clock.advance(after)
        await ended(bench, "l1", leased.use_at, bench.now + HOUR)
        assert (await member(bench, "a")).last_used_at == leased.leased_at + min(after, 10) * SECOND

    async def test_a_lost_holder_leaves_it_at_its_last_moment(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        await served(bench)
        began = bench.now
        bench.clock.advance(1)
        await bench.end(bench.me)
        await bench.reclaim()
        shown = await member(bench, "a")
        assert (shown.in_use, shown.available_at) == (0, began + 70 * SECOND)

    async def test_a_refused_settlement_ends_nothing(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        claim = await served(bench)
        assert claim.leased is not None
        await bench.end(bench.me)
        answer = await bench.report(claim, Completed(), report=OK, use_end=UseEnd(claim.leased.use_at))
        assert not answer.applied
        assert (await member(bench, "a")).last_used_at == claim.leased.use_at


class EndingUses:
    async def test_a_further_use_ends_the_one_before(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(2, 60)]))
        leased = await got(bench)
        bench.clock.advance(2)
        first = bench.now
        second = await bench.store.use("l1", ends=UseEnd(leased.use_at))
        assert second == first
        bench.clock.advance(3)
        await ended(bench, "l1", second + OPEN)
        shown = await member(bench, "a")
        assert (shown.record.uses, shown.last_used_at, shown.available_at) == (2, bench.now, first + 60 * SECOND)

    async def test_it_ends_even_if_the_limits_refuse_another(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        leased = await got(bench)
        bench.clock.advance(2)
        answer = await bench.store.use("l1", ends=UseEnd(leased.use_at))
        assert answer == Shortage(pool=POOL, why="all away", until=bench.now + 60 * SECOND)
        over = bench.now
        bench.clock.advance(2)
        assert await bench.store.use("l1", ends=UseEnd(leased.use_at)) == Shortage(
            pool=POOL, why="all away", until=over + 60 * SECOND
        )

    async def test_a_claim_ends_it_too(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        claim = await served(bench)
        assert claim.leased is not None
        bench.clock.advance(1)
        await bench.store.end_use(claim.token, claim.id, UseEnd(claim.leased.use_at))
        assert (await member(bench, "a")).available_at == bench.now + 60 * SECOND

    async def test_what_is_not_remembered_or_not_held_changes_nothing(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(2, 60)]))
        leased = await got(bench)
        before = await member(bench, "a")
        for holder, at in (("l1", leased.use_at + 1), ("l1", leased.leased_at), ("gone", leased.use_at)):
            await ended(bench, holder, at)
        await bench.store.end_use(Token(bench.me.number, 1), "no task", UseEnd(leased.use_at))
        assert await member(bench, "a") == before

    async def test_uses_of_one_moment_end_one_by_one(self, bench: Bench) -> None:
        """An end that is told twice does not end the use of another holder."""
        await pool(bench, "a", limits=lasting(windows=[(2, 60)]))
        one, other = await got(bench, "l1"), await got(bench, "l2")
        assert one.use_at != other.use_at
        bench.clock.advance(1)
        for _ in range(2):
            await ended(bench, "l1", one.use_at)
        assert (await member(bench, "a")).last_used_at == other.use_at
        first = bench.now
        bench.clock.advance(3)
        await ended(bench, "l2", other.use_at)
        shown = await member(bench, "a")
        assert (shown.last_used_at, shown.available_at) == (bench.now, first + 60 * SECOND)

    @pytest.mark.parametrize("backwards", [False, True])
    async def test_many_end_in_any_order(self, bench: Bench, backwards: bool) -> None:
        await pool(bench, "a", limits=lasting(windows=[(20, 60), (30, 600)]))
        held = []
        for number in range(20):
            held.append(await got(bench, f"l{number}"))
            bench.clock.advance("100ms")
        ends: dict[int, int] = {}
        for place in sorted(range(20), reverse=backwards):
            bench.clock.advance("10ms")
            ends[place] = bench.now
            await bench.store.end_use(f"l{place}", None, UseEnd(held[place].use_at))
        assert (await member(bench, "a")).available_at == min(ends.values()) + 60 * SECOND
        bench.clock.advance_to(min(ends.values()) + 60 * SECOND)
        await got(bench, "next")
        assert (await none(bench)).until == sorted(ends.values())[1] + 60 * SECOND

    async def test_a_member_that_may_be_used_earlier_is_heard(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        leased = await got(bench)
        await line_up(bench, 1)
        await silence(bench.store)
        await ended(bench, "l1", leased.use_at)
        assert await bench.store.wait([QUEUE], SOON)

    async def test_a_further_use_that_lets_others_in_is_heard(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        leased = await got(bench)
        await line_up(bench, 1)
        await silence(bench.store)
        assert isinstance(await bench.store.use("l1", ends=UseEnd(leased.use_at)), Shortage)
        assert await bench.store.wait([QUEUE], SOON)

    async def test_a_use_that_moves_stays_open(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        leased = await got(bench)
        bench.clock.advance(4)
        moved = await bench.store.use("l1", instead=leased.use_at)
        assert moved == bench.now
        assert (await none(bench)).until == bench.now + 70 * SECOND
        await ended(bench, "l1", leased.use_at)
        assert (await none(bench)).until == bench.now + 70 * SECOND
        bench.clock.advance(1)
        await ended(bench, "l1", moved + OPEN)
        shown = await member(bench, "a")
        assert (shown.record.uses, shown.available_at) == (1, bench.now + 60 * SECOND)

    async def test_a_use_that_was_never_made_within_its_time_moves_too(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)], min_delay=SECOND))
        leased = await got(bench)
        bench.clock.advance(30)
        assert await bench.store.use("l1", instead=leased.use_at) == bench.now
        shown = await member(bench, "a")
        assert (shown.record.uses, shown.available_at) == (1, bench.now + 70 * SECOND)


class ChangedWhileOpen:
    """A change of the limits while uses are open: none of them is forgotten."""

    async def test_a_guard_lets_open_uses_end(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(2, 60)]))
        leased = await got(bench)
        await _limited(bench, windows=[(2, 60)], guard=SECOND)
        bench.clock.advance(1)
        await got(bench, "l2")
        second = bench.now
        assert (await none(bench)).until == second + 61 * SECOND
        bench.clock.advance(1)
        await ended(bench, "l1", leased.use_at)
        assert (await none(bench)).until == second + 61 * SECOND
        bench.clock.advance(60)
        await got(bench, "l3")
        assert (await none(bench)).until == second + 62 * SECOND

    async def test_open_uses_count_among_those_that_are_open_for_less(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(2, 3)]))
        first = await got(bench)
        await _limited(bench, windows=[(2, 3)], use_within=0)
        bench.clock.advance(1)
        await got(bench, "l2")
        # The first may still be made until its last moment: in any three seconds there is room for one more.
        assert (await none(bench)).until == bench.now + 3 * SECOND
        bench.clock.advance(3)
        await got(bench, "l3")
        assert (await none(bench)).until == bench.now + 3 * SECOND
        bench.clock.advance_to(first.use_at)
        await got(bench, "l4")
        assert (await none(bench)).until == first.use_at + 3 * SECOND

    async def test_a_gap_that_is_new_counts_from_an_open_use(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(5, 60)]))
        leased = await got(bench)
        await _limited(bench, windows=[(5, 60)], min_delay=5 * SECOND, use_within=OPEN)
        assert (await none(bench)).until == leased.use_at + 5 * SECOND
        await ended(bench, "l1", leased.use_at)
        assert (await none(bench)).until == bench.now + 5 * SECOND

    async def test_a_window_that_is_new_does_not_keep_the_gap_from_ending(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(min_delay=5 * SECOND))
        leased = await got(bench)
        await _limited(bench, windows=[(9, 60)], min_delay=5 * SECOND, use_within=OPEN)
        bench.clock.advance(1)
        await ended(bench, "l1", leased.use_at)
        assert (await member(bench, "a")).available_at == bench.now + 5 * SECOND

    async def test_a_refusal_outlasts_the_end(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 1)]), cooldown=HOUR)
        one = await got(bench)
        await change(bench, "a", limits=lasting(windows=[(2, 1)]))
        other = await got(bench, "l2")
        await bench.store.release("l1", LIMITED, UseEnd(one.use_at))
        await bench.store.release("l2", OK, UseEnd(other.use_at))
        shown = await member(bench, "a")
        assert (shown.available_at, shown.stage) == (bench.now + HOUR, Stage.AWAY)


class LateUses:
    async def test_uses_that_came_late_are_counted(self, bench: Bench) -> None:
        await pool(bench, "a", limits=lasting(windows=[(1, 60)]))
        before = await member(bench, "a")
        await change(bench, "a", late=2)
        await change(bench, "a", late=1, reset=True)
        after = await member(bench, "a")
        assert (before.record.late, after.record.late, after.available_at) == (0, 3, before.available_at)


async def _limited(bench: Bench, **options: Any) -> None:
    await bench.store.declare_pool(POOL, PoolRules(limits=limits(**options)))
    await bench.look()
