"""`decide` makes a legal move for every outcome and every policy, within the limits."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.outcome import (
    Cancelled,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Released,
    Retry,
    Snooze,
    TimedOut,
    decide,
    progressed,
)
from pitboss.model.policy import MAX_CRASHES, Backoff, Policy, Rule
from pitboss.model.states import MOVES, State
from pitboss.model.task import Claim, NewTask, TaskError, Token

NOW = 1_800_000_000_000_000
FOLLOW_UP = NewTask(id="01900000-0000-7000-8000-000000000000", handler="next")

categories = st.sampled_from(["net", "timeout", "bug"])
errors = st.builds(TaskError, category=categories, message=st.just("m"), retryable=st.booleans())
spans = st.integers(0, 7200 * SECOND)
backoffs = st.builds(
    lambda base, more, factor, jitter: Backoff(base=base, cap=base + more, factor=factor, jitter=jitter),
    spans,
    spans,
    st.floats(1, 1e9),
    st.floats(0, 1),
)
rules = st.builds(
    Rule,
    retry=st.none() | st.booleans(),
    max_attempts=st.none() | st.integers(1, 9),
    backoff=st.none() | backoffs,
)
policies = st.builds(
    Policy,
    max_attempts=st.integers(1, 9),
    backoff=backoffs,
    rules=st.dictionaries(categories, rules),
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Completed, st.none() | st.just('"r"'), st.sampled_from([(), (FOLLOW_UP,)])),
    st.builds(Failed, errors, st.sampled_from([(), (FOLLOW_UP,)])),
    st.builds(Retry, after=st.none() | spans, error=st.none() | errors),
    st.builds(Snooze, spans, st.sampled_from(["", "later"])),
    st.builds(Cancelled, st.sampled_from(["", "enough"])),
    st.builds(Released, st.booleans(), spans, st.sampled_from(["", "no key"])),
    st.builds(Crashed, st.booleans(), st.none() | errors),
    st.builds(TimedOut, errors),
)
claims = st.builds(
    Claim,
    id=st.just(FOLLOW_UP.id),
    token=st.just(Token(1, 1)),
    handler=st.just("job"),
    queue=st.just("default"),
    params=st.just("{}"),
    attempt=st.integers(1, 500),
    max_attempts=st.none() | st.integers(1, 9),
    losses=st.integers(0, 9),
    crashes=st.integers(0, MAX_CRASHES - 1),
    expires_at=st.none() | st.integers(NOW, NOW + 7200 * SECOND),
)
lucks = st.floats(0, 1, exclude_max=True)


@given(claims, outcomes, policies, lucks)
def test_every_decision_is_a_legal_move_with_sound_fields(
    claim: Claim, outcome: Outcome, policy: Policy, luck: float
) -> None:
    move = decide(claim, outcome, policy, NOW, luck)
    assert (State.RUNNING, move.state) in MOVES
    assert move.state is not State.RUNNING
    assert (move.state is State.SCHEDULED) == (move.delay is not None and move.delay > 0)
    assert move.state.finished or not move.follow_ups
    assert move.result is None or move.state is State.COMPLETED
    assert move.lost or not move.crashed
    assert move.recorded or isinstance(outcome, Released)


@given(claims, errors, policies, lucks, st.sampled_from([Failed, TimedOut]))
def test_a_failure_is_tried_again_exactly_while_attempts_are_left(
    claim: Claim, error: TaskError, policy: Policy, luck: float, kind: type
) -> None:
    rule = policy.rules.get(error.category, Rule())
    limit = claim.max_attempts or policy.max_attempts
    limit = min(limit, rule.max_attempts or limit)
    wanted = error.retryable if rule.retry is None else rule.retry
    move = decide(claim, kind(error), policy, NOW, luck)
    assert move.charged
    assert move.error == error
    delay = (rule.backoff or policy.backoff).delay(claim.attempt, luck)
    if not wanted:
        assert move.reason == "not retryable"
    elif claim.attempt >= limit:
        assert move.reason == "attempts used up"
    elif claim.expires_at is not None and NOW + delay >= claim.expires_at:
        assert move.reason == "expires before its next attempt"
    else:
        assert (move.reason, move.delay) == (None, delay)
    assert (move.state is State.FAILED) == (move.reason is not None)


@given(claims, st.integers(1, 7200 * SECOND), policies, lucks)
def test_a_delay_of_the_handler_s_own_choice_is_kept(claim: Claim, after: int, policy: Policy, luck: float) -> None:
    move = decide(claim, Retry(after=after), policy, NOW, luck)
    assert move.state is State.FAILED or move.delay == after


@given(claims, policies, lucks, spans, st.booleans())
def test_what_the_handler_did_not_cause_costs_no_attempt(
    claim: Claim, policy: Policy, luck: float, delay: int, flag: bool
) -> None:
    for outcome in (Snooze(delay), Released(flag), Crashed(alone=False)):
        move = decide(claim, outcome, policy, NOW, luck)
        assert move.state.waiting
        assert not move.charged


@given(claims, policies, st.none() | errors)
def test_the_last_crash_alone_is_poison_whatever_the_policy(
    claim: Claim, policy: Policy, error: TaskError | None
) -> None:
    move = decide(claim, Crashed(alone=True, error=error), policy, NOW, 0.5)
    last = claim.crashes + 1 == MAX_CRASHES
    assert (move.state is State.FAILED) == last
    assert move.crashed
    if last:
        assert move.error is not None
        assert (move.error.category, move.error.retryable) == ("poison", False)


@given(claims, policies)
def test_a_task_that_kills_workers_blames_no_other_task_and_lost_hosts_blame_none(claim: Claim, policy: Policy) -> None:
    claim = msgspec.structs.replace(claim, losses=100)
    assert decide(claim, Crashed(alone=False), policy, NOW, 0.5).state is State.PENDING


def test_progress_leaves_the_task_running() -> None:
    move = progressed(40, "note")
    assert (move.state, move.progress, move.note, move.recorded) == (State.RUNNING, 40, "note", False)


@given(backoffs, st.integers(0, 10_000), lucks)
def test_a_delay_stays_within_its_jitter_and_its_cap(backoff: Backoff, failed: int, luck: float) -> None:
    delay = backoff.delay(failed, luck)
    assert 0 <= delay <= backoff.cap * (1 + backoff.jitter) + 1
    assert delay >= backoff.base * (1 - backoff.jitter) - 1


@given(backoffs, st.integers(1, 100))
def test_without_luck_delays_never_shrink(backoff: Backoff, failed: int) -> None:
    steady = msgspec.structs.replace(backoff, jitter=0.0)
    assert steady.delay(failed, 0.5) <= steady.delay(failed + 1, 0.5) <= backoff.cap
