"""Fencing: a settlement with a stale token is refused with the reason, and writes nothing."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from pitboss.model.settlement import APPLIED, STALE_CLAIM, STALE_SESSION, STALE_TASK, SettleAnswer
from pitboss.model.states import State
from pitboss.model.task import Claim, Token
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.outcomes import OUTCOMES, transition_for

# Each makes a claim and then a reason to refuse it; returns the claim as its writer still has it.
Stale = Callable[[Bench], Awaitable[Claim]]


def _with_token(claim: Claim, session: int, number: int) -> Claim:
    return msgspec.structs.replace(claim, token=Token(session, number))


async def _settled_as(bench: Bench, name: str) -> Claim:
    claim = await bench.started()
    assert await bench.write(claim, transition_for(name, claim, bench.now)) == APPLIED
    return claim


async def _claimed_again_by_another(bench: Bench) -> Claim:
    claim = await _settled_as(bench, "released")
    await bench.take(session=await bench.session("job"))
    return claim


async def _claimed_again_by_the_same(bench: Bench) -> Claim:
    claim = await _settled_as(bench, "released")
    await bench.take()
    return claim


async def _claimed_again_after_a_retry(bench: Bench) -> Claim:
    claim = await _settled_as(bench, "retried")
    bench.clock.advance(1)
    await bench.take()
    return claim


async def _of_another_live_session(bench: Bench) -> Claim:
    claim = await bench.started()
    other = await bench.session("job")
    return _with_token(claim, other.number, claim.token.claim)


async def _of_a_later_claim(bench: Bench) -> Claim:
    claim = await bench.started()
    return _with_token(claim, claim.token.session, claim.token.claim + 1)


async def _of_a_session_that_never_was(bench: Bench) -> Claim:
    return _with_token(await bench.started(), 987_654, 1)


async def _of_a_task_that_never_was(bench: Bench) -> Claim:
    return msgspec.structs.replace(await bench.started(), id=bench.ids())


async def _session_ended(bench: Bench) -> Claim:
    claim = await bench.started()
    await bench.end(bench.me)
    return claim


async def _session_expired(bench: Bench) -> Claim:
    claim = await bench.started()
    bench.clock.advance_to(bench.me.expires_at)
    return claim


async def _reclaimed(bench: Bench) -> Claim:
    claim = await _session_ended(bench)
    assert (await bench.reclaim()).lost == 1
    return claim


async def _reclaimed_and_claimed_by_another(bench: Bench) -> Claim:
    claim = await _reclaimed(bench)
    await bench.take(session=await bench.session("job"))
    return claim


async def _reclaimed_as_cancelled(bench: Bench) -> Claim:
    claim = await bench.started()
    await bench.cancel(claim.id)
    await bench.end(bench.me)
    assert (await bench.reclaim()).cancelled == 1
    return claim


async def _pruned(bench: Bench) -> Claim:
    claim = await _settled_as(bench, "completed")
    assert (await bench.prune()).changed == 1
    return claim


async def _never_claimed(bench: Bench) -> Claim:
    claim = await bench.started()
    task = await bench.add()
    return msgspec.structs.replace(claim, id=task.id, token=Token(bench.me.number, 0))


_STALE: dict[str, tuple[Stale, SettleAnswer]] = {
    "claimed again by another": (_claimed_again_by_another, STALE_CLAIM),
    "claimed again by the same": (_claimed_again_by_the_same, STALE_CLAIM),
    "claimed again after a retry": (_claimed_again_after_a_retry, STALE_CLAIM),
    "of another live session": (_of_another_live_session, STALE_CLAIM),
    "of a later claim": (_of_a_later_claim, STALE_CLAIM),
    "of a session that never was": (_of_a_session_that_never_was, STALE_SESSION),
    "of a task that never was": (_of_a_task_that_never_was, STALE_TASK),
    "session ended": (_session_ended, STALE_SESSION),
    "session expired": (_session_expired, STALE_SESSION),
    "reclaimed": (_reclaimed, STALE_SESSION),
    "reclaimed and claimed by another": (_reclaimed_and_claimed_by_another, STALE_SESSION),
    "reclaimed as cancelled": (_reclaimed_as_cancelled, STALE_SESSION),
    "pruned": (_pruned, STALE_TASK),
    "never claimed": (_never_claimed, STALE_CLAIM),
}


class Fencing:
    @pytest.mark.parametrize("why", _STALE)
    async def test_a_stale_token_is_refused(self, bench: Bench, why: str) -> None:
        """A refusal changes nothing, so one claim is refused every outcome in turn."""
        make_stale, answer = _STALE[why]
        claim = await make_stale(bench)
        tasks, runs = await bench.every_task(), await bench.history(claim)
        for name in OUTCOMES:
            transition = transition_for(name, claim, bench.now, follow_ups=(bench.new(),))
            assert await bench.write(claim, transition, worker="late") == answer, name
            assert await bench.every_task() == tasks, name
            assert await bench.history(claim) == runs, name

    @pytest.mark.parametrize("first", [name for name in OUTCOMES if name != "progress"])
    async def test_after_one_outcome_every_other_is_refused(self, bench: Bench, first: str) -> None:
        claim = await _settled_as(bench, first)
        tasks, runs = await bench.every_task(), await bench.history(claim)
        for name in OUTCOMES:
            if name != first:
                assert await bench.write(claim, transition_for(name, claim, bench.now)) == STALE_CLAIM
        assert await bench.every_task() == tasks
        assert await bench.history(claim) == runs

    async def test_an_operator_s_cancel_of_a_waiting_task_refuses_its_former_writer(self, bench: Bench) -> None:
        claim = await _settled_as(bench, "snoozed")
        await bench.cancel(claim.id, reason="enough")
        before = await bench.task(claim.id)
        assert await bench.complete(claim) == STALE_CLAIM
        await bench.became(before)

    async def test_an_operator_s_retry_refuses_the_writer_of_the_failure(self, bench: Bench) -> None:
        claim = await _settled_as(bench, "failed")
        await bench.retry(claim.id)
        before = await bench.task(claim.id)
        assert await bench.complete(claim) == STALE_CLAIM
        assert await bench.progress(claim, 10) == STALE_CLAIM
        await bench.became(before)
        assert (await bench.take()).token.claim == claim.token.claim + 1

    async def test_a_claim_holds_to_the_last_microsecond_of_its_session(self, bench: Bench) -> None:
        claim = await bench.started()
        bench.clock.advance_to(bench.me.expires_at - 1)
        assert await bench.complete(claim) == APPLIED

    async def test_a_cancel_that_is_only_asked_refuses_no_settlement(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.cancel(claim.id)
        assert await bench.progress(claim, 99) == APPLIED
        assert await bench.complete(claim, '"still"') == APPLIED
        assert (await bench.task(claim.id)).state is State.COMPLETED

    async def test_a_session_that_expired_stays_dead_before_any_reclaim(self, bench: Bench) -> None:
        claim = await bench.started()
        bench.clock.advance_to(bench.me.expires_at)
        assert not (await bench.renew(bench.me)).alive
        assert await bench.complete(claim) == STALE_SESSION
        assert (await bench.task(claim.id)).state is State.RUNNING
