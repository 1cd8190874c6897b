"""Which member a task gets: the pool's strategy, labels, members that it has tried, and keys that are bound."""

from typing import Literal

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.resource import MINUTE, Limits, NewResource, PoolRules, Report, Strategy, Want
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.scarcity import (
    FAULTY,
    LIMITED,
    NOT_MINE,
    OK,
    POOL,
    UNLIMITED,
    add,
    asked,
    change,
    contested,
    done,
    failed,
    given,
    handed_on,
    limits,
    pool,
    remove,
    served,
    wait_for_one,
)

EU = Want(labels=("eu",))
ANN = Want(key="ann")


async def _turns(bench: Bench, count: int) -> str:
    """The members that successive tasks get, a second apart; each gives its member back."""
    names = ""
    for _ in range(count):
        claim = await served(bench)
        names += "".join(map(str, given([claim])))
        bench.clock.advance(1)
        await done(bench, claim)
    return names


class Strategies:
    async def test_the_least_recently_used_comes_first(self, bench: Bench) -> None:
        await pool(bench, "c", "a", "b")
        assert await _turns(bench, 5) == "abcab"

    async def test_a_new_member_was_used_least_recently(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await _turns(bench, 2)
        await add(bench, "c")
        assert await _turns(bench, 3) == "cab"

    async def test_members_take_turns(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", strategy=Strategy.ROUND_ROBIN, limits=UNLIMITED)
        assert given((await contested(bench, 7)).claims) == list("abcabca")

    async def test_turns_are_not_made_up_for(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.ROUND_ROBIN)
        await _turns(bench, 6)
        await add(bench, "c")
        assert sorted(await _turns(bench, 3)) == ["a", "b", "c"]

    async def test_weights_share_out_the_uses(self, bench: Bench) -> None:
        heavy = NewResource(name="a", weight=200)
        await pool(bench, heavy, "b", strategy=Strategy.WEIGHTED, limits=UNLIMITED)
        names = given((await contested(bench, 9)).claims)
        assert (names.count("a"), names.count("b")) == (6, 3)

    async def test_uses_that_limits_prevented_are_not_made_up_for(self, bench: Bench) -> None:
        heavy, rarely = NewResource(name="a", weight=300), limits(windows=[(1, 1)])
        await pool(bench, heavy, "b", strategy=Strategy.WEIGHTED, limits=rarely)
        for _ in range(30):
            for claim in (await contested(bench, 2)).claims:
                await done(bench, claim)
            bench.clock.advance(1)
        await bench.store.declare_pool(POOL, PoolRules(strategy=Strategy.WEIGHTED, limits=UNLIMITED))
        names = given((await contested(bench, 40)).claims)
        assert 6 <= names.count("b") <= 12

    @pytest.mark.parametrize("strategy", [Strategy.ROUND_ROBIN, Strategy.WEIGHTED])
    async def test_members_that_come_back_leave_uses_to_others(self, bench: Bench, strategy: Strategy) -> None:
        await pool(bench, "a", "b", "c", strategy=strategy, limits=UNLIMITED)
        await change(bench, "a", "b", enabled=False)
        assert given((await contested(bench, 20)).claims) == ["c"] * 20
        await change(bench, enabled=True)
        names = given((await contested(bench, 9)).claims)
        assert [names.count(name) for name in "abc"] in ([3, 3, 3], [4, 3, 2], [4, 4, 1])
        assert {*given((await contested(bench, 3)).claims)} == {"a", "b", "c"}

    async def test_the_least_loaded_comes_first(self, bench: Bench) -> None:
        wide = NewResource(name="b", limits=Limits(concurrency=4))
        await pool(bench, "a", wide, strategy=Strategy.LEAST_LOADED, limits=Limits(concurrency=2))
        assert given((await contested(bench, 6)).claims) == ["a", "b", "b", "a", "b", "b"]

    async def test_a_member_that_was_given_back_is_less_loaded(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.LEAST_LOADED, limits=Limits(concurrency=3))
        claims = (await contested(bench, 4)).claims
        assert given(claims) == ["a", "b", "a", "b"]
        await done(bench, claims[1])
        await done(bench, claims[3])
        assert given((await contested(bench, 2)).claims) == ["b", "b"]

    @pytest.mark.parametrize("strategy", list(Strategy))
    async def test_members_that_are_away_busy_or_out_are_passed_by(self, bench: Bench, strategy: Strategy) -> None:
        await pool(bench, "a", "b", "c", "d", strategy=strategy)
        await handed_on(bench, await served(bench), LIMITED)
        await bench.cancel((await bench.every_task())[0].id)
        await served(bench)
        await change(bench, "c", enabled=False)
        assert given([await served(bench)]) == ["d"]


class Labels:
    async def test_a_task_gets_a_member_with_all_its_labels(self, bench: Bench) -> None:
        some, all_ = NewResource(name="b", labels=("eu",)), NewResource(name="c", labels=("eu", "fast", "new"))
        await pool(bench, "a", some, all_)
        assert given([await served(bench, want=Want(labels=("fast", "eu")))]) == ["c"]
        assert given([await served(bench, want=EU)]) == ["b"]

    async def test_tasks_that_no_member_fits_are_passed_by(self, bench: Bench) -> None:
        await pool(bench, "a")
        picky = await wait_for_one(bench, want=EU, priority=-1)
        claim = await served(bench)
        assert await bench.states(picky, claim) == [State.PENDING, State.RUNNING]

    async def test_a_task_waits_for_its_label_to_come_back(self, bench: Bench) -> None:
        eu = NewResource(name="b", labels=("eu",))
        await pool(bench, "a", eu)
        claim = await served(bench, want=EU)
        await wait_for_one(bench, want=EU)
        assert (await asked(bench)).claims == []
        await done(bench, claim)
        assert given((await asked(bench)).claims) == ["b"]

    async def test_the_want_of_a_task_is_shown(self, bench: Bench) -> None:
        want = Want(labels=("eu", "fast"), key="é")
        task = await wait_for_one(bench, want=want)
        assert task.want == want
        assert (await bench.add()).want is None


class Rotation:
    async def test_a_task_that_is_handed_on_gets_another_member(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        claim = await served(bench)
        await handed_on(bench, claim, FAULTY)
        task = await bench.task(claim.id)
        assert (task.state, task.tried, task.rotations, task.attempts) == (State.PENDING, ("a",), 1, 0)
        (again,) = (await asked(bench)).claims
        assert (given([again]), again.attempt, again.rotations) == (["b"], 1, 1)

    async def test_a_task_does_not_get_a_member_that_failed_it(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.ROUND_ROBIN)
        await handed_on(bench, await served(bench), FAULTY)
        other = await served(bench, priority=-1)
        assert given([other]) == ["b"]
        claimed = await asked(bench)
        assert (claimed.claims, [one.why for one in claimed.shortages]) == ([], ["none fits"])
        await done(bench, other)
        assert given((await asked(bench)).claims) == ["b"]

    async def test_others_get_the_member_that_failed_a_task(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.ROUND_ROBIN)
        await handed_on(bench, await served(bench), FAULTY)
        assert given([await served(bench, priority=-1)]) == ["b"]
        assert given([await served(bench)]) == ["a"]

    async def test_one_member_is_always_left(self, bench: Bench) -> None:
        await pool(bench, "a")
        await handed_on(bench, await served(bench), FAULTY)
        (again,) = (await asked(bench)).claims
        assert given([again]) == ["a"]
        assert (await bench.task(again.id)).tried == ("a",)

    async def test_of_members_that_all_failed_the_first_one_is_tried_again(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c")
        await wait_for_one(bench)
        names = []
        for _ in range(4):
            (claim,) = (await asked(bench)).claims
            names += given([claim])
            await handed_on(bench, claim, FAULTY)
            bench.clock.advance(1)
        assert names == ["a", "b", "c", "a"]

    async def test_only_members_with_its_labels_count_as_left(self, bench: Bench) -> None:
        await pool(bench, NewResource(name="a", labels=("eu",)), "b", "c")
        await handed_on(bench, await served(bench, want=EU), FAULTY)
        assert given((await asked(bench)).claims) == ["a"]

    async def test_disabled_members_do_not_count_as_left(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), FAULTY)
        await change(bench, "b", enabled=False)
        assert given((await asked(bench)).claims) == ["a"]

    async def test_whatever_a_task_fails_of_it_gets_another_member(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.ROUND_ROBIN)
        claim = await served(bench)
        await handed_on(bench, claim, NOT_MINE)
        assert (await bench.task(claim.id)).tried == ("a",)
        await done(bench, await served(bench, priority=-1))
        assert given((await asked(bench)).claims) == ["b"]

    @pytest.mark.parametrize("report", [None, OK, LIMITED])
    async def test_a_member_that_did_not_fail_is_not_avoided(self, bench: Bench, report: Report | None) -> None:
        await pool(bench, "a", "b")
        claim = await served(bench)
        await handed_on(bench, claim, report)
        assert (await bench.task(claim.id)).tried == ()

    @pytest.mark.parametrize("report", [LIMITED, FAULTY])
    async def test_a_task_does_not_wait_for_members_that_are_sent_away(self, bench: Bench, report: Report) -> None:
        """If only the member that failed it is in service, it gets that one again."""
        await pool(bench, "a", "b", max_failures=1)
        first = await wait_for_one(bench)
        other = await wait_for_one(bench)
        held = {claim.id: claim for claim in (await asked(bench, 2)).claims}
        await handed_on(bench, held[other.id], report)
        await handed_on(bench, held[first.id], NOT_MINE)
        bench.clock.advance(1)
        (again,) = (await asked(bench)).claims
        assert (again.id, given([again])) == (first.id, ["a"])

    async def test_what_was_tried_is_forgotten_when_the_task_completes(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), FAULTY)
        (again,) = (await asked(bench)).claims
        await done(bench, again)
        task = await bench.task(again.id)
        assert (task.tried, task.rotations, task.resource) == ((), 0, "proxies/b")

    async def test_a_failed_task_shows_what_it_tried_until_it_is_retried(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await handed_on(bench, await served(bench), NOT_MINE)
        (again,) = (await asked(bench)).claims
        await failed(bench, again)
        assert (await bench.task(again.id)).tried == ("a", "b")
        assert (await bench.task(again.id)).rotations == 1
        await bench.retry(again.id)
        assert ((await bench.task(again.id)).tried, (await bench.task(again.id)).rotations) == ((), 0)


class StickyKeys:
    async def test_a_key_keeps_its_member(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", strategy=Strategy.STICKY)
        names = []
        for _ in range(3):
            claim = await served(bench, want=ANN)
            names += given([claim])
            bench.clock.advance(1)
            await done(bench, claim)
        assert names == ["a", "a", "a"]
        assert await _turns(bench, 2) == "bc"

    async def test_a_key_binds_whatever_the_strategy(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        await done(bench, await served(bench, want=ANN))
        bench.clock.advance(1)
        assert given([await served(bench, want=ANN)]) == ["a"]

    async def test_other_keys_get_other_members(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY)
        assert given([await served(bench, want=ANN), await served(bench, want=Want(key="bob"))]) == ["a", "b"]

    async def test_a_key_waits_for_its_member_while_others_pass(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY)
        first = await served(bench, want=ANN)
        waits = await wait_for_one(bench, want=ANN, priority=-1)
        assert given([await served(bench)]) == ["b"]
        await done(bench, first)
        (claim,) = (await asked(bench)).claims
        assert (claim.id, given([claim])) == (waits.id, ["a"])

    async def test_the_member_of_a_key_can_be_read(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY, bound_for=60 * SECOND)
        assert await bench.store.bound(POOL, "ann") is None
        assert await bench.store.bound("nowhere", "ann") is None
        await served(bench, want=ANN)
        assert (await bench.store.bound(POOL, "ann"), await bench.store.bound(POOL, "bob")) == ("a", None)
        bench.clock.advance(59)
        assert await bench.store.bound(POOL, "ann") == "a"
        bench.clock.advance(1)
        assert await bench.store.bound(POOL, "ann") is None

    async def test_a_key_that_waits_is_told_until_when(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY, limits=limits(windows=[(1, 60)]))
        await served(bench, want=ANN)
        await wait_for_one(bench, want=ANN)
        claimed = await asked(bench)
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 60 * SECOND)
        bench.clock.advance(60)
        assert given((await asked(bench)).claims) == ["a"]

    async def test_a_key_is_bound_to_another_member_if_told_so(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY, away="rebind")
        first = await served(bench, want=ANN)
        second = await served(bench, want=ANN)
        assert given([first, second]) == ["a", "b"]
        await done(bench, first)
        await done(bench, second)
        bench.clock.advance(1)
        assert given([await served(bench, want=ANN)]) == ["b"]

    async def test_a_key_is_not_bound_to_a_member_that_failed_its_task(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c", strategy=Strategy.STICKY, away="rebind")
        await wait_for_one(bench, want=ANN)
        names = []
        for _ in range(3):
            (claim,) = (await asked(bench)).claims
            names += given([claim])
            await handed_on(bench, claim, LIMITED)
        assert names == ["a", "b", "c"]

    async def test_a_key_keeps_its_member_whatever_its_task_has_tried(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY)
        await handed_on(bench, await served(bench, want=ANN), FAULTY)
        assert given((await asked(bench)).claims) == ["a"]

    async def test_a_binding_ends_some_time_after_its_last_use(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY, bound_for=10 * MINUTE)
        await done(bench, await served(bench, want=ANN))
        bench.clock.advance("9m")
        await done(bench, await served(bench, want=ANN))
        bench.clock.advance("9m")
        claim = await served(bench, want=ANN)
        assert given([claim]) == ["a"]
        await done(bench, claim)
        bench.clock.advance("11m")
        assert given([await served(bench, want=ANN)]) == ["b"]

    @pytest.mark.parametrize(("away", "member"), [("wait", "a"), ("rebind", "b")])
    async def test_a_key_waits_for_a_disabled_member_unless_it_is_bound_anew(
        self, bench: Bench, away: Literal["wait", "rebind"], member: str
    ) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY, away=away)
        await done(bench, await served(bench, want=ANN))
        await change(bench, "a", enabled=False)
        waits = await wait_for_one(bench, want=ANN)
        claims = (await asked(bench)).claims
        if away == "wait":
            assert claims == []
            await change(bench, "a", enabled=True)
            claims = (await asked(bench)).claims
        assert ([claim.id for claim in claims], given(claims)) == ([waits.id], [member])

    @pytest.mark.parametrize("fate", ["removed", "relabelled"])
    async def test_a_key_whose_member_is_gone_is_bound_anew(self, bench: Bench, fate: str) -> None:
        eu = [NewResource(name=name, labels=("eu",)) for name in ("a", "b")]
        want = Want(labels=("eu",), key="ann")
        await pool(bench, *eu, strategy=Strategy.STICKY)
        await done(bench, await served(bench, want=want))
        bench.clock.advance(1)
        if fate == "removed":
            await remove(bench, "a")
        else:
            await change(bench, "a", labels=())
        await done(bench, await served(bench, want=want))
        bench.clock.advance(1)
        await add(bench, *eu)
        assert given([await served(bench, want=want)]) == ["b"]

    async def test_a_task_that_was_not_given_binds_nothing(self, bench: Bench) -> None:
        await pool(bench, "a", "b", strategy=Strategy.STICKY)
        _, second = (await contested(bench, 2)).claims
        await wait_for_one(bench, want=ANN)
        assert (await asked(bench)).claims == []
        await done(bench, second)
        assert given((await asked(bench)).claims) == ["b"]
