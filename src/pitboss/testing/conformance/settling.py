"""Settling: what each outcome writes, in one act; a repeat writes nothing."""

import pytest

from pitboss.model.outcome import Cancelled, Completed, Crashed, Failed, Released, Retry, Snooze, TimedOut, decide
from pitboss.model.policy import Policy, Rule
from pitboss.model.settlement import APPLIED, STALE_CLAIM, STALE_TASK, Settlement
from pitboss.model.states import State
from pitboss.model.task import Attempt, TaskError, Token, Unique
from pitboss.testing.conformance.bench import BROKEN, STEADY, Bench
from pitboss.testing.conformance.outcomes import FINAL, ONCE, OUTCOMES, transition_for


class Settling:
    async def test_completed(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        bench.clock.advance(3)
        assert await bench.report(claim, Completed('{"n":1}'), worker="w1") == APPLIED
        after = await bench.became(
            before,
            state=State.COMPLETED,
            outcome="completed",
            attempts=1,
            result='{"n":1}',
            worker="w1",
            finished_at=bench.now,
        )
        assert after.value() == {"n": 1}
        run = Attempt(
            claim=1,
            attempt=1,
            outcome="completed",
            started_at=claim.claimed_at,
            ended_at=bench.now,
            session=bench.me.number,
            worker="w1",
        )
        assert await bench.history(claim) == [run]
        assert await bench.claim() == []

    async def test_completed_without_a_result(self, bench: Bench) -> None:
        claim = await bench.started()
        assert await bench.complete(claim) == APPLIED
        task = await bench.task(claim.id)
        assert (task.result, task.value(), task.worker) == (None, None, None)

    async def test_the_time_that_it_ran_is_the_worker_s_and_not_the_claim_s(self, bench: Bench) -> None:
        claim = await bench.started()
        bench.clock.advance(10)
        await bench.report(claim, Completed(), ran=2_000_000)
        (run,) = await bench.history(claim)
        assert (run.started_at, run.ended_at) == (bench.now - 2_000_000, bench.now)
        assert (await bench.task(claim.id)).started_at == bench.now - 2_000_000

    async def test_failed_with_attempts_left_is_scheduled_again(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        bench.clock.advance(1)
        assert await bench.report(claim, Failed(BROKEN), worker="w") == APPLIED
        await bench.became(
            before,
            state=State.SCHEDULED,
            outcome="failed",
            attempts=1,
            error=BROKEN,
            run_at=bench.now + 5_000_000,
            worker="w",
            started_at=None,
        )
        (run,) = await bench.history(claim)
        assert (run.attempt, run.outcome, run.error, run.worker) == (1, "failed", BROKEN, "w")
        assert (await bench.ask()).next_due == bench.now + 5_000_000

    async def test_each_attempt_is_numbered_until_they_are_used_up(self, bench: Bench) -> None:
        claim = await bench.started(max_attempts=3)
        for attempt in (1, 2, 3):
            assert (claim.attempt, claim.token.claim) == (attempt, attempt)
            await bench.report(claim, Failed(BROKEN))
            if attempt < 3:
                bench.clock.advance("1m")
                claim = await bench.take()
        task = await bench.task(claim.id)
        assert (task.state, task.reason, task.attempts) == (State.FAILED, "attempts used up", 3)
        assert (task.error, task.finished_at, task.outcome) == (BROKEN, bench.now, "failed")
        runs = await bench.history(claim)
        assert [(run.claim, run.attempt, run.outcome, run.error) for run in runs] == [
            (number, number, "failed", BROKEN) for number in (1, 2, 3)
        ]
        assert (await bench.queue()).counts == {State.FAILED: 1}

    async def test_failed_for_good_by_a_rule(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Failed(BROKEN), Policy(rules={"net": Rule(retry=False)}))
        task = await bench.task(claim.id)
        assert (task.state, task.reason, task.attempts) == (State.FAILED, "not retryable", 1)

    async def test_retry_without_delay_is_pending_at_once(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        await bench.report(claim, Retry(after=0))
        error = TaskError(category="retry", message="the handler asked to be tried again")
        await bench.became(before, state=State.PENDING, outcome="retried", attempts=1, error=error, started_at=None)
        assert (await bench.take()).attempt == 2

    async def test_retry_after_its_own_delay(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Retry(after=77))
        task = await bench.task(claim.id)
        assert (task.state, task.run_at, task.attempts) == (State.SCHEDULED, bench.now + 77, 1)

    async def test_snooze_costs_no_attempt(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        await bench.report(claim, Snooze(60_000_000, "no budget"))
        await bench.became(
            before,
            state=State.SCHEDULED,
            outcome="snoozed",
            reason="no budget",
            run_at=bench.now + 60_000_000,
            started_at=None,
        )
        (run,) = await bench.history(claim)
        assert (run.claim, run.attempt, run.outcome) == (1, 1, "snoozed")
        bench.clock.advance(60)
        again = await bench.take(session=await bench.session("job"))
        assert (again.attempt, again.token.claim) == (1, 2)

    async def test_cancelled_by_the_handler(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        await bench.report(claim, Cancelled("not wanted any more"))
        await bench.became(
            before,
            state=State.CANCELLED,
            outcome="cancelled",
            reason="not wanted any more",
            attempts=1,
            finished_at=bench.now,
        )

    @pytest.mark.parametrize("started", [True, False])
    async def test_released_costs_nothing_and_is_recorded_only_if_it_had_started(
        self, bench: Bench, started: bool
    ) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        assert await bench.report(claim, Released(started)) == APPLIED
        await bench.became(before, state=State.PENDING, outcome="released", started_at=None)
        assert [run.outcome for run in await bench.history(claim)] == ["released"] * started

    async def test_a_release_keeps_the_task_s_place_in_the_queue(self, bench: Bench) -> None:
        first = await bench.started()
        await bench.add()
        await bench.report(first, Released())
        assert (await bench.take()).id == first.id

    async def test_a_crash_in_company_is_a_loss(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        await bench.report(claim, Crashed(alone=False))
        await bench.became(before, state=State.PENDING, outcome="lost", losses=1, started_at=None)
        again = await bench.take()
        assert (again.losses, again.crashes, again.alone, again.attempt) == (1, 0, True, 1)

    async def test_the_third_crash_alone_is_poison(self, bench: Bench) -> None:
        await bench.add()
        for crashes in (0, 1):
            claim = await bench.take()
            assert (claim.crashes, claim.losses) == (crashes, crashes)
            await bench.report(claim, Crashed(alone=True))
            assert (await bench.task(claim.id)).state is State.PENDING
        claim = await bench.take()
        await bench.report(claim, Crashed(alone=True, error=BROKEN))
        task = await bench.task(claim.id)
        assert (task.state, task.outcome, task.attempts) == (State.FAILED, "crashed", 1)
        assert (task.losses, task.crashes) == (3, 3)
        assert task.reason is not None
        assert task.reason.startswith("poison")
        assert task.error is not None
        assert task.error.category == "poison"
        assert [run.outcome for run in await bench.history(claim)] == ["crashed"] * 3

    async def test_timed_out(self, bench: Bench) -> None:
        error = TaskError(category="timeout", message="it took longer than 5s")
        claim = await bench.started()
        await bench.report(claim, TimedOut(error))
        task = await bench.task(claim.id)
        assert (task.state, task.outcome, task.error, task.attempts) == (State.SCHEDULED, "timed_out", error, 1)

    async def test_the_last_error_stays_until_an_outcome_replaces_it(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Retry(after=0, error=BROKEN))
        claim = await bench.take()
        await bench.report(claim, Released())
        assert (await bench.task(claim.id)).error == BROKEN
        await bench.complete(await bench.take())
        assert (await bench.task(claim.id)).error is None

    async def test_progress_leaves_the_claim_as_it_is(self, bench: Bench) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        assert await bench.progress(claim, 30, "a third") == APPLIED
        await bench.became(before, progress=30, note="a third")
        assert await bench.progress(claim, 60) == APPLIED
        await bench.became(before, progress=60, note=None)
        assert await bench.history(claim) == []
        assert await bench.complete(claim) == APPLIED

    async def test_answers_come_in_the_order_asked_and_a_refusal_touches_no_other(self, bench: Bench) -> None:
        claims = [await bench.started() for _ in range(3)]
        done = [decide(claim, Completed(f'"{n}"'), STEADY, bench.now, 0.5) for n, claim in enumerate(claims)]
        answers = await bench.settle(
            Settlement(id=claims[2].id, token=claims[2].token, transition=done[2]),
            Settlement(id=bench.ids(), token=claims[1].token, transition=done[1]),
            Settlement(id=claims[1].id, token=Token(bench.me.number, 9), transition=done[1]),
            Settlement(id=claims[0].id, token=claims[0].token, transition=done[0]),
        )
        assert answers == [APPLIED, STALE_TASK, STALE_CLAIM, APPLIED]
        assert await bench.states(*claims) == [State.COMPLETED, State.RUNNING, State.COMPLETED]
        assert [(await bench.task(claims[n].id)).value() for n in (0, 2)] == ["0", "2"]

    async def test_two_words_about_one_claim_in_one_call_take_effect_in_order(self, bench: Bench) -> None:
        claim = await bench.started()
        both = [transition_for(name, claim, bench.now) for name in ("progress", "completed", "failed")]
        answers = await bench.settle(*(Settlement(id=claim.id, token=claim.token, transition=one) for one in both))
        assert answers == [APPLIED, APPLIED, STALE_CLAIM]
        task = await bench.task(claim.id)
        assert (task.state, task.progress, task.attempts) == (State.COMPLETED, 50, 1)

    @pytest.mark.parametrize("name", ONCE)
    async def test_a_repeated_settlement_is_applied_and_writes_nothing(self, bench: Bench, name: str) -> None:
        claim = await bench.started()
        transition = transition_for(name, claim, bench.now, follow_ups=(bench.new(),))
        assert await bench.write(claim, transition) == APPLIED
        tasks, runs = await bench.every_task(), await bench.history(claim)
        bench.clock.advance(1)
        assert await bench.write(claim, transition) == APPLIED
        assert await bench.every_task() == tasks
        assert await bench.history(claim) == runs

    async def test_a_repeat_in_the_same_call_is_applied_too(self, bench: Bench) -> None:
        claim = await bench.started()
        one = Settlement(id=claim.id, token=claim.token, transition=transition_for("retried", claim, bench.now))
        assert await bench.settle(one, one) == [APPLIED, APPLIED]
        assert (await bench.task(claim.id)).attempts == 1
        assert len(await bench.history(claim)) == 1

    async def test_a_repeat_is_applied_even_after_the_session_is_over(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.complete(claim)
        await bench.end(bench.me)
        assert await bench.complete(claim) == APPLIED

    @pytest.mark.parametrize("name", FINAL)
    async def test_follow_ups_are_put_with_the_end_of_their_task(self, bench: Bench, name: str) -> None:
        claim = await bench.started()
        ready = bench.new(parent=claim.id, queue="next")
        later, strange = bench.new(delay=5), bench.new(handler="stranger")
        transition = transition_for(name, claim, bench.now, follow_ups=(ready, later, strange))
        assert await bench.write(claim, transition) == APPLIED
        assert await bench.states(ready, later, strange) == [State.PENDING, State.SCHEDULED, State.HELD]
        assert (await bench.task(ready.id)).parent == claim.id
        assert (await bench.queue("next")).counts == {State.PENDING: 1}

    async def test_follow_ups_may_overfill_a_queue(self, bench: Bench) -> None:
        await bench.change("small", capacity=1)
        await bench.add(queue="small")
        claim = await bench.started()
        follow_ups = [bench.new(queue="small") for _ in range(2)]
        assert await bench.complete(claim, None, *follow_ups) == APPLIED
        assert (await bench.queue("small")).counts == {State.PENDING: 3}

    async def test_a_follow_up_meets_the_holder_of_its_unique_key(self, bench: Bench) -> None:
        holder = await bench.add(queue="other", unique=Unique("k"))
        claim = await bench.started()
        shadow = bench.new(unique=Unique("k"))
        assert await bench.complete(claim, None, shadow) == APPLIED
        assert await bench.store.get([shadow.id, holder.id]) == [None, holder]

    async def test_a_follow_up_may_take_the_key_that_its_task_has_just_freed(self, bench: Bench) -> None:
        claim = await bench.started(unique=Unique("k"))
        heir = bench.new(unique=Unique("k"))
        await bench.complete(claim, None, heir)
        assert (await bench.task(heir.id)).unique_key == "k"
        assert not (await bench.put(bench.new(unique=Unique("k"))))[0].created

    async def test_follow_ups_with_one_key_among_them_meet_each_other(self, bench: Bench) -> None:
        claim = await bench.started()
        pair = [bench.new(unique=Unique("k")), bench.new(unique=Unique("k"))]
        await bench.complete(claim, None, *pair)
        found = await bench.store.get([task.id for task in pair])
        assert [task is not None for task in found] == [True, False]

    async def test_only_the_last_hundred_runs_are_told(self, bench: Bench) -> None:
        claim = await bench.started()
        bench.watching = False
        for _ in range(103):
            await bench.report(claim, Released(started=True))
            claim = await bench.take()
        runs = await bench.history(claim)
        assert [run.claim for run in runs] == list(range(4, 104))
        await bench.complete(claim)
        runs = await bench.history(claim)
        assert (len(runs), runs[0].claim, runs[-1].claim, runs[-1].outcome) == (100, 5, 104, "completed")

    @pytest.mark.parametrize("name", OUTCOMES)
    async def test_every_outcome_of_many_claims_at_once(self, bench: Bench, name: str) -> None:
        claims = [await bench.started(queue=f"q{number}") for number in range(3)]
        answers = await bench.settle(
            *(
                Settlement(id=claim.id, token=claim.token, transition=transition_for(name, claim, bench.now))
                for claim in claims
            )
        )
        assert answers == [APPLIED] * 3
        assert len({(task.state, task.attempts, task.outcome) for task in await bench.every_task()}) == 1
