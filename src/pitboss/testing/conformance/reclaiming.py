"""Reclaiming: tasks of dead sessions run again, and it costs no attempt."""

import pytest

from pitboss.model.outcome import Failed
from pitboss.model.session import Reclaimed
from pitboss.model.states import State
from pitboss.model.task import Attempt, Claim
from pitboss.testing.conformance.bench import BROKEN, Bench


class Reclaiming:
    @pytest.mark.parametrize("fate", ["ended", "expired"])
    async def test_the_tasks_of_a_dead_session_are_pending_again(self, bench: Bench, fate: str) -> None:
        claim = await bench.started()
        before = await bench.task(claim.id)
        if fate == "ended":
            await bench.end(bench.me)
        bench.clock.advance_to(bench.me.expires_at)
        assert await bench.reclaim() == Reclaimed(lost=1)
        await bench.became(before, state=State.PENDING, outcome="lost", losses=1, session=None, started_at=None)
        assert await bench.history(claim) == [
            Attempt(
                claim=1,
                attempt=1,
                outcome="lost",
                started_at=claim.claimed_at,
                ended_at=bench.now,
                session=bench.me.number,
            )
        ]

    async def test_a_microsecond_before_the_end_nothing_is_lost(self, bench: Bench) -> None:
        claim = await bench.started()
        bench.clock.advance_to(bench.me.expires_at - 1)
        assert await bench.reclaim() == Reclaimed()
        assert (await bench.task(claim.id)).state is State.RUNNING

    async def test_an_ended_session_s_tasks_are_reclaimable_at_once(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.end(bench.me)
        assert await bench.reclaim() == Reclaimed(lost=1)
        assert (await bench.task(claim.id)).state is State.PENDING

    async def test_repeating_finds_nothing_more(self, bench: Bench) -> None:
        await bench.started()
        await bench.end(bench.me)
        await bench.reclaim()
        assert await bench.reclaim() == Reclaimed()

    async def test_live_sessions_keep_theirs(self, bench: Bench) -> None:
        other = await bench.session("job")
        await bench.put(bench.new(), bench.new())
        mine = await bench.take()
        theirs = await bench.take(session=other)
        await bench.end(other)
        assert (await bench.reclaim()).lost == 1
        assert await bench.states(mine, theirs) == [State.RUNNING, State.PENDING]

    async def test_losses_cost_no_attempt_however_many(self, bench: Bench) -> None:
        task = await bench.add(max_attempts=2)
        for losses in range(5):
            session = await bench.session("job")
            claim = await bench.take(session=session)
            assert (claim.attempt, claim.losses, claim.crashes, claim.token.claim) == (1, losses, 0, losses + 1)
            await bench.end(session)
            await bench.reclaim()
        task = await bench.task(task.id)
        assert (task.attempts, task.losses, task.crashes, task.state) == (0, 5, 0, State.PENDING)
        assert [run.outcome for run in await bench.history(task)] == ["lost"] * 5

    async def test_a_loss_keeps_the_last_error_and_the_attempts(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Failed(BROKEN))
        bench.clock.advance(5)
        again = await bench.take()
        await bench.end(bench.me)
        await bench.reclaim()
        task = await bench.task(again.id)
        assert (task.error, task.attempts, task.losses) == (BROKEN, 1, 1)
        runs = await bench.history(task)
        assert [(run.claim, run.attempt, run.outcome) for run in runs] == [(1, 1, "failed"), (2, 2, "lost")]

    async def test_a_lost_task_whose_cancel_was_asked_is_cancelled(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.cancel(claim.id, reason="stop it")
        before = await bench.task(claim.id)
        await bench.end(bench.me)
        assert await bench.reclaim() == Reclaimed(cancelled=1)
        await bench.became(
            before,
            state=State.CANCELLED,
            outcome="lost",
            attempts=1,
            losses=1,
            session=None,
            finished_at=bench.now,
            cancel_asked=False,
        )
        (run,) = await bench.history(claim)
        assert (run.claim, run.attempt, run.outcome, run.ended_at) == (1, 1, "lost", bench.now)

    async def test_a_lost_task_past_its_expiry_is_cancelled_at_its_next_claim(self, bench: Bench) -> None:
        claim = await bench.started(expires_in=1_000)
        bench.clock.advance("2ms")
        await bench.end(bench.me)
        await bench.reclaim()
        assert (await bench.task(claim.id)).state is State.PENDING
        assert await bench.claim(session=await bench.session("job")) == []
        task = await bench.task(claim.id)
        assert (task.state, task.reason) == (State.CANCELLED, "expired")

    async def test_a_limit_is_continued_by_a_repeat(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(7)))
        await bench.claim(7)
        await bench.end(bench.me)
        assert await _reclaim_all(bench, limit=3) == 7
        assert (await bench.queue()).counts == {State.PENDING: 7}

    async def test_lost_tasks_keep_their_place(self, bench: Bench) -> None:
        first = await bench.started()
        await bench.add()
        await bench.end(bench.me)
        await bench.reclaim()
        again: Claim = await bench.take(session=await bench.session("job"))
        assert again.id == first.id

    async def test_an_empty_store_has_nothing_to_reclaim(self, bench: Bench) -> None:
        assert await bench.reclaim() == Reclaimed()


async def _reclaim_all(bench: Bench, limit: int) -> int:
    lost, calls = 0, 0
    while True:
        reclaimed = await bench.reclaim(limit)
        lost, calls = lost + reclaimed.lost, calls + 1
        assert calls < 20, "reclaim never stops saying that there is more"
        if not reclaimed.more:
            return lost
