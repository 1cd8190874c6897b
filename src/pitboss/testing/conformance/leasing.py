"""Tasks that hold a member while they run: one act takes both, and no limit is exceeded."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.outcome import Released
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Leased, Limits, NewResource, PoolRules, Shortage, Stage, Want
from pitboss.model.session import Slot
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    FETCH,
    POOL,
    QUEUE,
    UNLIMITED,
    asked,
    change,
    contested,
    done,
    given,
    limits,
    line_up,
    member,
    members,
    pool,
    served,
    wait_for_one,
)


class Leasing:
    async def test_a_claim_carries_its_member(self, bench: Bench) -> None:
        new = NewResource(
            name="a",
            fields='{"host":"h"}',
            secrets={"password": "sealed"},
            labels=("eu",),
            limits=Limits(guard=7),
            valid_until=bench.now + SECOND,
        )
        await pool(bench, new)
        claim = await served(bench)
        assert claim.leased == Leased(
            pool=POOL,
            name="a",
            fields=new.fields,
            secrets=new.secrets,
            labels=("eu",),
            leased_at=bench.now,
            valid_until=new.valid_until,
            guard=7,
        )
        assert (await bench.task(claim.id)).resource == f"{POOL}/a"

    async def test_a_member_that_is_given_is_in_use(self, bench: Bench) -> None:
        await pool(bench, "a")
        await served(bench)
        shown = await member(bench, "a")
        assert (shown.in_use, shown.stage, shown.last_used_at, shown.record.uses) == (1, Stage.BUSY, bench.now, 1)

    async def test_tasks_of_other_queues_hold_nothing(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await bench.started()
        assert (claim.leased, (await bench.task(claim.id)).resource) == (None, None)

    async def test_a_queue_shows_the_pool_that_it_is_bound_to(self, bench: Bench) -> None:
        await pool(bench, "a")
        await wait_for_one(bench)
        assert (await bench.queue(QUEUE)).resources == POOL

    async def test_of_several_pools_the_first_handler_by_name_binds_the_queue(self, bench: Bench) -> None:
        await pool(bench, "a")
        await bench.store.register([HandlerInfo(name="before", queue=QUEUE, resources="keys")])
        await wait_for_one(bench)
        assert (await bench.queue(QUEUE)).resources == "keys"

    async def test_a_queue_is_free_again_when_no_handler_needs_the_pool(self, bench: Bench) -> None:
        await pool(bench)
        await wait_for_one(bench)
        await bench.store.register([HandlerInfo(name=FETCH, queue=QUEUE)])
        assert (await bench.queue(QUEUE)).resources is None
        assert given((await asked(bench)).claims) == [None]

    async def test_a_handler_that_moves_to_another_queue_takes_the_pool_along(self, bench: Bench) -> None:
        await pool(bench, "a")
        await wait_for_one(bench)
        await bench.add(handler=FETCH, queue="elsewhere")
        await bench.store.register([HandlerInfo(name=FETCH, queue="elsewhere", resources=POOL)])
        assert [queue.resources for queue in await bench.store.queues()] == [POOL, None]

    async def test_without_a_member_nothing_is_given_and_nothing_changes(self, bench: Bench) -> None:
        await pool(bench, "a")
        await served(bench)
        task, before = await wait_for_one(bench), await members(bench)
        claimed = await asked(bench)
        assert claimed.claims == []
        await bench.became(task)
        assert await members(bench) == before

    async def test_no_more_tasks_than_members_are_given(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        tasks = await line_up(bench, 3)
        claims = (await asked(bench, 3)).claims
        assert [claim.id for claim in claims] == [task.id for task in tasks[:2]]
        assert given(claims) == ["a", "b"]

    async def test_tasks_are_given_by_priority_whatever_their_members(self, bench: Bench) -> None:
        await pool(bench, "a")
        await wait_for_one(bench, priority=5)
        first = await wait_for_one(bench, priority=-5)
        assert [claim.id for claim in (await asked(bench, 2)).claims] == [first.id]

    async def test_slots_are_served_in_their_order(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await line_up(bench, 3)
        claims = (await bench.ask(Slot(free=1, queues=(QUEUE,)), Slot(free=2, queues=(QUEUE,)))).claims
        assert [(claim.slot, name) for claim, name in zip(claims, given(claims), strict=True)] == [(0, "a"), (1, "b")]

    async def test_a_slot_takes_plain_tasks_where_no_member_is_left(self, bench: Bench) -> None:
        await pool(bench, "a")
        one, _ = await line_up(bench, 2)
        plain = await bench.add()
        assert [claim.id for claim in await bench.claim(5)] == [one.id, plain.id]

    async def test_two_queues_share_a_pool(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await bench.store.register([HandlerInfo(name="post", queue="posting", resources=POOL)])
        await line_up(bench, 2)
        await bench.add(handler="post", queue="posting", priority=-1)
        claims = await bench.claim(5)
        assert [claim.handler for claim in claims] == ["post", FETCH]
        assert given(claims) == ["a", "b"]

    async def test_two_pools_are_asked_in_one_call(self, bench: Bench) -> None:
        await pool(bench, "a")
        await bench.store.declare_pool("keys", PoolRules())
        await bench.store.add_resources("keys", [NewResource(name="k")])
        await bench.store.register([HandlerInfo(name="call", queue="calling", resources="keys")])
        await line_up(bench, 2)
        for _ in range(2):
            await bench.add(handler="call", queue="calling")
        claimed = await bench.ask(Slot(free=5))
        assert given(claimed.claims) == ["a", "k"]
        assert [one.pool for one in claimed.shortages] == ["keys", POOL]

    async def test_nothing_is_given_ahead(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c")
        await line_up(bench, 3)
        assert len((await bench.ask(Slot(free=1, ahead=2, queues=(QUEUE,)))).claims) == 1
        assert (await bench.ask(Slot(free=0, ahead=2, queues=(QUEUE,)))).claims == []

    async def test_plain_tasks_behind_are_still_given_ahead(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await line_up(bench, 2)
        plain = await bench.add()
        claims = (await bench.ask(Slot(free=1, ahead=2))).claims
        assert [claim.id for claim in claims][1:] == [plain.id]

    async def test_a_paused_queue_takes_no_member(self, bench: Bench) -> None:
        await pool(bench, "a")
        await line_up(bench, 1)
        await bench.change(QUEUE, paused=True)
        claimed = await bench.ask(Slot(free=1))
        assert (claimed.claims, claimed.shortages, claimed.next_due) == ([], (), None)
        assert (await member(bench, "a")).record.uses == 0

    async def test_an_expired_task_takes_no_member(self, bench: Bench) -> None:
        await pool(bench, "a")
        late = await wait_for_one(bench, expires_in=1)
        bench.clock.advance(1)
        claim = await served(bench)
        assert await bench.states(late, claim) == [State.CANCELLED, State.RUNNING]
        assert (await member(bench, "a")).record.uses == 1

    async def test_a_task_of_an_unknown_handler_takes_no_member(self, bench: Bench) -> None:
        await pool(bench, "a")
        await line_up(bench, 1)
        claimed = await bench.ask(Slot(free=1, queues=(QUEUE,)), handlers=["job"])
        assert (claimed.claims, (await member(bench, "a")).record.uses) == ([], 0)


class MemberLimits:
    async def test_a_member_without_limits_is_given_again_in_one_call(self, bench: Bench) -> None:
        await pool(bench, "a", limits=UNLIMITED)
        assert given((await contested(bench, 3)).claims) == ["a", "a", "a"]
        assert (await member(bench, "a")).in_use == 3

    async def test_so_many_at_a_time(self, bench: Bench) -> None:
        await pool(bench, "a", limits=Limits(concurrency=2))
        claims = (await contested(bench, 3)).claims
        assert given(claims) == ["a", "a"]
        await done(bench, claims[0])
        assert given((await asked(bench, 3)).claims) == ["a"]

    async def test_a_window_of_a_member_gives_no_more_than_its_count(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 10)]))
        assert given((await contested(bench, 3)).claims) == ["a", "a"]
        assert (await member(bench, "a")).available_at == bench.now + 10 * SECOND

    async def test_uses_of_one_call_count_beside_those_of_earlier_ones(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(3, 10)]))
        await served(bench)
        bench.clock.advance(20)
        assert given((await contested(bench, 6)).claims) == ["a"] * 3
        bench.clock.advance(10)
        assert given((await asked(bench, 6)).claims) == ["a"] * 3

    async def test_a_use_counts_for_exactly_its_window(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 10)]))
        await served(bench)
        await line_up(bench, 1)
        bench.clock.advance("9999999us")
        claimed = await asked(bench)
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 1)
        bench.clock.advance("1us")
        assert given((await asked(bench)).claims) == ["a"]

    async def test_the_window_of_a_member_slides(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(2, 10)]))
        await line_up(bench, 6)
        begin, uses = bench.now, []
        for _ in range(25):
            uses += [(bench.now - begin) // SECOND] * len((await asked(bench)).claims)
            bench.clock.advance(1)
        assert uses == [0, 1, 10, 11, 20, 21]

    async def test_every_window_holds(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 2), (3, 60)]))
        await line_up(bench, 5)
        begin, uses = bench.now, []
        for _ in range(64):
            uses += [(bench.now - begin) // SECOND] * len((await asked(bench)).claims)
            bench.clock.advance(1)
        assert uses == [0, 2, 4, 60, 62]

    async def test_members_have_windows_of_their_own(self, bench: Bench) -> None:
        await pool(
            bench, "a", NewResource(name="b", limits=limits(windows=[(3, 60)])), limits=limits(windows=[(1, 60)])
        )
        assert sorted(map(str, given((await contested(bench, 6)).claims))) == ["a", "b", "b", "b"]

    async def test_the_gap_counts_from_the_start_of_a_use(self, bench: Bench) -> None:
        await pool(bench, "a", limits=Limits(min_delay=5 * SECOND, use_within=0))
        claim = await served(bench)
        begun = bench.now
        bench.clock.advance(2)
        await done(bench, claim)
        assert (await member(bench, "a")).available_at == begun + 5 * SECOND
        await line_up(bench, 1)
        assert (await asked(bench)).next_due == begun + 5 * SECOND
        bench.clock.advance(3)
        assert given((await asked(bench)).claims) == ["a"]

    async def test_the_gap_counts_from_the_end_of_a_use_if_told_so(self, bench: Bench) -> None:
        await pool(bench, "a", limits=Limits(min_delay=5 * SECOND, delay_from="end"))
        claim = await served(bench)
        bench.clock.advance(2)
        await done(bench, claim)
        assert (await member(bench, "a")).available_at == bench.now + 5 * SECOND
        await line_up(bench, 1)
        assert (await asked(bench)).claims == []
        bench.clock.advance(5)
        assert given((await asked(bench)).claims) == ["a"]

    async def test_jitter_only_makes_a_gap_longer_and_another_one_each_time(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(min_delay=SECOND, jitter=SECOND))
        gaps = []
        for _ in range(6):
            await served(bench)
            gaps.append((await member(bench, "a")).available_at - bench.now)
            bench.clock.advance_to((await member(bench, "a")).available_at)
        assert all(SECOND <= gap <= 2 * SECOND for gap in gaps)
        assert len(set(gaps)) > 3

    @pytest.mark.parametrize("options", [{"windows": [(1, 5)]}, {"min_delay": 5 * SECOND}])
    async def test_the_guard_makes_windows_and_gaps_longer(self, bench: Bench, options: dict[str, object]) -> None:
        await pool(bench, "a", limits=limits(guard=50_000, **options))
        await served(bench)
        assert (await member(bench, "a")).available_at == bench.now + 5_050_000

    async def test_a_use_counts_though_its_task_never_started(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 60)], concurrency=1))
        claim = await served(bench)
        await bench.report(claim, Released())
        assert (await asked(bench)).claims == []
        assert ((await member(bench, "a")).in_use, (await member(bench, "a")).record.uses) == (0, 1)

    async def test_the_queue_s_own_rate_holds_too(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c")
        await bench.change(QUEUE, rate=rate("1/s"))
        claimed = await contested(bench, 3)
        assert given(claimed.claims) == ["a"]
        assert claimed.next_due == bench.now + SECOND
        assert sum(one.record.uses for one in await members(bench)) == 1

    async def test_tasks_that_no_member_fits_take_none_of_the_rate(self, bench: Bench) -> None:
        await pool(bench, "a")
        await bench.change(QUEUE, rate=rate("1/s"))
        for _ in range(30):
            await wait_for_one(bench, want=Want(labels=("eu",)), priority=-1)
        fits = await wait_for_one(bench)
        await bench.add(priority=1)
        assert [claim.id for claim in await bench.claim(1)] == [fits.id]

    async def test_a_task_without_a_member_is_no_start_of_its_queue(self, bench: Bench) -> None:
        await pool(bench)
        await bench.change(QUEUE, rate=rate("1/s"))
        await line_up(bench, 1)
        await asked(bench)
        await bench.store.add_resources(POOL, [NewResource(name="a")])
        assert given((await asked(bench)).claims) == ["a"]


class Shortages:
    async def test_a_pool_without_members_says_so(self, bench: Bench) -> None:
        await pool(bench)
        claimed = await contested(bench, 1)
        assert (claimed.shortages, claimed.next_due) == ((Shortage(pool=POOL, why="no members"),), None)

    async def test_a_pool_that_was_not_declared_has_no_members(self, bench: Bench) -> None:
        await bench.store.register([HandlerInfo(name=FETCH, queue=QUEUE, resources="nowhere")])
        assert (await contested(bench, 1)).shortages == (Shortage(pool="nowhere", why="no members"),)

    async def test_members_that_are_all_disabled(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await change(bench, enabled=False)
        claimed = await contested(bench, 1)
        assert (claimed.shortages, claimed.next_due) == ((Shortage(pool=POOL, why="all disabled"),), None)

    async def test_members_that_are_all_busy(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await change(bench, "b", enabled=False)
        await served(bench)
        claimed = await contested(bench, 1)
        assert (claimed.shortages, claimed.next_due) == ((Shortage(pool=POOL, why="all busy"),), None)

    async def test_members_that_are_away_say_until_when(self, bench: Bench) -> None:
        await pool(bench, "a", "b", limits=limits(windows=[(1, 60)]))
        until = bench.now + 60 * SECOND
        await served(bench)
        bench.clock.advance(7)
        await served(bench)
        claimed = await contested(bench, 1)
        assert claimed.shortages == (Shortage(pool=POOL, why="all away", until=until),)
        assert claimed.next_due == until

    async def test_members_of_which_none_fits(self, bench: Bench) -> None:
        await pool(bench, "a")
        await wait_for_one(bench, want=Want(labels=("eu",)))
        claimed = await asked(bench)
        assert (claimed.shortages, claimed.next_due) == ((Shortage(pool=POOL, why="none fits"),), None)

    async def test_a_call_that_gave_some_says_why_it_gave_no_more(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 60)]))
        claimed = await contested(bench, 2)
        assert given(claimed.claims) == ["a"]
        assert claimed.shortages == (Shortage(pool=POOL, why="all away", until=bench.now + 60 * SECOND),)
        assert claimed.next_due == bench.now + 60 * SECOND

    async def test_a_claim_that_got_everything_has_no_shortage(self, bench: Bench) -> None:
        await pool(bench, "a")
        await line_up(bench, 2)
        assert (await asked(bench, 1)).shortages == ()

    async def test_a_pool_that_no_task_waits_for_has_no_shortage(self, bench: Bench) -> None:
        await pool(bench)
        assert (await asked(bench)).shortages == ()

    async def test_an_earlier_task_is_due_before_a_member_comes_back(self, bench: Bench) -> None:
        await pool(bench, "a", limits=limits(windows=[(1, 60)]))
        await served(bench)
        await line_up(bench, 1)
        await wait_for_one(bench, delay=5 * SECOND)
        assert (await asked(bench)).next_due == bench.now + 5 * SECOND
