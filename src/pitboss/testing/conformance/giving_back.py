"""The end of a claim gives its member back, once, whatever ends it; a stale writer changes nothing."""

import pytest

from pitboss.model.filter import EVERYTHING
from pitboss.model.outcome import Cancelled, Completed, Released, TimedOut, decide
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Limits, NewResource, PoolRules, Report, Stage
from pitboss.model.settlement import APPLIED, Settlement
from pitboss.model.states import State
from pitboss.testing.conformance.bench import BROKEN, STEADY, Bench
from pitboss.testing.conformance.outcomes import ONCE, transition_for
from pitboss.testing.conformance.scarcity import (
    BLOCKED,
    FAULTY,
    FETCH,
    LIMITED,
    NOT_MINE,
    OK,
    POOL,
    QUEUE,
    asked,
    contested,
    done,
    given,
    handed_on,
    line_up,
    member,
    members,
    pool,
    served,
)
from pitboss.testing.conformance.waiting import SOON, silence


class GivingBack:
    @pytest.mark.parametrize("name", ONCE)
    async def test_whatever_ends_a_claim_gives_its_member_back(self, bench: Bench, name: str) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        assert await bench.write(claim, transition_for(name, claim, bench.now)) == APPLIED
        shown = await member(bench, "a")
        assert (shown.in_use, shown.stage) == (0, Stage.READY)
        await bench.cancel(claim.id)
        assert given([await served(bench)]) == ["a"]

    async def test_the_member_is_shown_after_the_end(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await done(bench, claim)
        assert (await bench.task(claim.id)).resource == f"{POOL}/a"

    async def test_progress_keeps_the_member(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        before = await members(bench)
        await bench.progress(claim, 50)
        assert await members(bench) == before

    async def test_a_settlement_that_names_its_member_and_queue_comes_to_the_same(self, bench: Bench) -> None:
        await pool(bench, "a", "b")
        one, other = (await contested(bench, 2)).claims
        hints = {"queue": QUEUE, "resource": f"{POOL}/a"}
        transition = decide(one, Completed(), STEADY, bench.now, 0.5)
        await bench.write(one, transition, report=OK, **hints)
        await done(bench, other)
        first, second = await members(bench)
        assert (first.record, first.in_use) == (second.record, 0)

    async def test_many_members_are_given_back_in_one_call(self, bench: Bench) -> None:
        await pool(bench, "a", "b", "c")
        claims = (await contested(bench, 3)).claims
        reports = [OK, FAULTY, None]
        answers = await bench.settle(
            *(
                Settlement(
                    id=claim.id,
                    token=claim.token,
                    transition=decide(claim, Completed(), STEADY, bench.now, 0.5),
                    report=report,
                )
                for claim, report in zip(claims, reports, strict=True)
            )
        )
        assert answers == [APPLIED] * 3
        assert [(one.in_use, one.record.ok, one.record.failures) for one in await members(bench)] == [
            (0, 1, 0),
            (0, 0, 1),
            (0, 0, 0),
        ]

    @pytest.mark.parametrize(
        ("first", "second", "failures"), [(OK, FAULTY, 1), (FAULTY, OK, 0), (OK, NOT_MINE, 0), (OK, LIMITED, 0)]
    )
    async def test_claims_of_one_call_give_back_in_the_order_of_the_list(
        self, bench: Bench, first: Report, second: Report, failures: int
    ) -> None:
        """Also where a claim has its say several times, so that an engine may write its end after that of others."""
        await pool(bench, "a", limits=Limits(concurrency=2))
        one, other = (await contested(bench, 2)).claims
        said = [(one, "progress", None), (one, "completed", first), (other, "completed", second)]
        answers = await bench.settle(
            *(
                Settlement(
                    id=claim.id,
                    token=claim.token,
                    transition=transition_for(name, claim, bench.now),
                    resource=f"{POOL}/a",
                    report=report,
                )
                for claim, name, report in said
            )
        )
        assert answers == [APPLIED] * 3
        shown = await member(bench, "a")
        assert (shown.in_use, shown.record.last_outcome, shown.record.failures) == (0, second.outcome, failures)

    async def test_what_a_dead_session_held_is_given_back_without_a_report(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        before = (await member(bench, "a")).record
        await bench.end(bench.me)
        assert (await member(bench, "a")).in_use == 1
        await bench.reclaim()
        shown = await member(bench, "a")
        assert (shown.in_use, shown.stage, shown.record.last_outcome) == (0, Stage.READY, None)
        assert (shown.record.uses, shown.record.failures) == (before.uses, 0)
        assert (await bench.task(claim.id)).tried == ()

    async def test_a_lost_task_that_was_asked_to_cancel_gives_its_member_back(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await bench.cancel(claim.id)
        await bench.end(bench.me)
        await bench.reclaim()
        assert await bench.states(claim) == [State.CANCELLED]
        assert (await member(bench, "a")).in_use == 0

    async def test_asking_to_cancel_takes_nothing_from_a_running_task(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await bench.cancel(claim.id)
        assert (await member(bench, "a")).in_use == 1
        await bench.report(claim, Cancelled("asked"))
        assert (await member(bench, "a")).in_use == 0

    async def test_cancelling_a_waiting_task_gives_nothing_back(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        waiting = (await line_up(bench, 1))[0]
        await bench.cancel(waiting.id)
        assert (await member(bench, "a")).in_use == 1
        await done(bench, claim)

    async def test_a_task_that_ran_before_gives_nothing_back_while_it_waits(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await bench.report(claim, TimedOut(BROKEN), report=FAULTY)
        other = await served(bench)
        await bench.cancel(claim.id)
        assert (await member(bench, "a")).in_use == 1
        await bench.prune(EVERYTHING)
        assert (await member(bench, "a")).in_use == 1
        await done(bench, other)

    @pytest.mark.parametrize("report", [OK, LIMITED, BLOCKED, FAULTY, None])
    async def test_a_repeated_settlement_changes_nothing_at_the_member(
        self, bench: Bench, report: Report | None
    ) -> None:
        await pool(bench, "a", "b", max_failures=2)
        claim = await served(bench)
        await handed_on(bench, claim, report)
        before, task = await members(bench), await bench.task(claim.id)
        bench.clock.advance(1)
        assert await handed_on(bench, claim, report) == APPLIED
        assert [one.record for one in await members(bench)] == [one.record for one in before]
        assert [one.in_use for one in await members(bench)] == [0, 0]
        await bench.became(task)

    async def test_a_repeat_does_not_take_the_member_from_the_next_one(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await done(bench, claim)
        await served(bench)
        assert await done(bench, claim) == APPLIED
        assert (await member(bench, "a")).in_use == 1

    async def test_a_stale_writer_changes_nothing_at_its_member(self, bench: Bench) -> None:
        await pool(bench, "a")
        zombie = await served(bench)
        await bench.end(bench.me)
        await bench.reclaim()
        heir = await bench.session(FETCH)
        claim = await bench.take(QUEUE, session=heir)
        before = await members(bench)
        assert not (await done(bench, zombie, BLOCKED)).applied
        assert await members(bench) == before
        assert before[0].in_use == 1
        assert (await bench.task(claim.id)).tried == ()

    async def test_a_dead_writer_changes_nothing_before_the_sweep_either(self, bench: Bench) -> None:
        await pool(bench, "a")
        zombie = await served(bench)
        await bench.end(bench.me)
        before = await members(bench)
        assert not (await done(bench, zombie, FAULTY)).applied
        assert await members(bench) == before

    async def test_a_member_that_is_given_back_is_heard_by_all_queues_of_its_pool(self, bench: Bench) -> None:
        await pool(bench, "a")
        await bench.store.register([HandlerInfo(name="post", queue="posting", resources=POOL)])
        claim = await served(bench)
        await bench.add(handler="post", queue="posting")
        await silence(bench.store)
        await done(bench, claim)
        assert await bench.store.wait(["posting"], SOON)

    async def test_a_member_that_a_sweep_gave_back_is_heard(self, bench: Bench) -> None:
        await pool(bench, "a")
        await bench.store.register([HandlerInfo(name="post", queue="posting", resources=POOL)])
        await served(bench)
        await bench.add(handler="post", queue="posting")
        await bench.end(bench.me)
        await silence(bench.store)
        await bench.reclaim()
        assert await bench.store.wait(["posting"], SOON)

    async def test_a_task_that_lost_its_queue_s_pool_still_gives_its_member_back(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await bench.store.register([HandlerInfo(name=FETCH, queue=QUEUE)])
        await done(bench, claim)
        assert (await member(bench, "a")).in_use == 0

    async def test_a_task_that_runs_again_without_a_pool_holds_nothing(self, bench: Bench) -> None:
        await pool(bench, "a")
        claim = await served(bench)
        await bench.report(claim, Released())
        await bench.store.register([HandlerInfo(name=FETCH, queue=QUEUE)])
        (again,) = (await asked(bench)).claims
        assert again.leased is None
        await done(bench, again)
        shown = await member(bench, "a")
        assert (shown.in_use, shown.record.ok) == (0, 0)

    async def test_members_of_other_pools_stay_as_they_are(self, bench: Bench) -> None:
        await pool(bench, "a")
        await bench.store.declare_pool("keys", PoolRules())
        await bench.store.add_resources("keys", [NewResource(name="a")])
        before = await bench.store.resources("keys")
        await done(bench, await served(bench), FAULTY)
        assert await bench.store.resources("keys") == before
