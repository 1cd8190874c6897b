"""The rules of settling, over all states of a task, a session and a batch."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.batch import BatchStatus
from pitboss.model.outcome import Transition
from pitboss.model.policy import MAX_CRASHES
from pitboss.model.resource import Report, ResourceOutcome
from pitboss.model.settlement import (
    APPLIED,
    RAN_OUT,
    STALE_CLAIM,
    STALE_SESSION,
    STALE_TASK,
    STALE_TIME,
    ClaimEnd,
    Progress,
    Settlement,
    effect,
    lost,
)
from pitboss.model.states import FINISHED, WAITING, State, may_move
from pitboss.model.task import Task, TaskError, Token

NOW, LASTS = 1_000_000, 50
ERROR = TaskError(category="net", message="reset", fingerprint="f")
tasks = st.builds(
    Task,
    id=st.just("t"),
    handler=st.just("job"),
    queue=st.just("q"),
    params=st.just("{}"),
    state=st.sampled_from(State),
    attempts=st.integers(0, 2),
    losses=st.integers(0, 2),
    outcome=st.sampled_from([None, "completed", "failed"]),
    reason=st.sampled_from([None, "asked"]),
    error=st.sampled_from([None, ERROR]),
    session=st.sampled_from([None, 1, 2]),
    claim=st.integers(1, 2),
    started_at=st.sampled_from([None, 5]),
    run_at=st.sampled_from([None, 3]),
    cancel_asked=st.booleans(),
    resource=st.sampled_from([None, "p/m"]),
    tried=st.sampled_from([(), ("other",)]),
    rotations=st.integers(0, 1),
    crashes=st.integers(0, 3),
    worker=st.sampled_from([None, "w1"]),
    progress=st.sampled_from([None, 20]),
    note=st.sampled_from([None, "begun"]),
    claim_expires_at=st.sampled_from([None, NOW, NOW + 1]),
).map(lambda task: msgspec.structs.replace(task, claim_lasts=None if task.claim_expires_at is None else LASTS))
transitions = st.builds(
    Transition,
    state=st.sampled_from([state for state in State if state is not State.HELD]),
    outcome=st.sampled_from(["completed", "failed"]),
    delay=st.sampled_from([None, 0, 10]),
    error=st.sampled_from([None, ERROR]),
    reason=st.sampled_from([None, "why"]),
    charged=st.booleans(),
    lost=st.booleans(),
    crashed=st.booleans(),
    rotated=st.booleans(),
    recorded=st.booleans(),
    progress=st.sampled_from([None, 40]),
    note=st.sampled_from([None, "half"]),
)
settlements = st.builds(
    Settlement,
    id=st.just("t"),
    token=st.builds(Token, st.sampled_from([1, 2]), st.integers(1, 2)),
    transition=transitions,
    ran=st.sampled_from([None, 7]),
    report=st.sampled_from([None, *(Report(outcome=outcome) for outcome in ResourceOutcome)]),
)
batches = st.sampled_from([None, *BatchStatus])


def _claimed(task: Task, settlement: Settlement) -> Task:
    """The task, running under the claim of the settlement, whose time is not over."""
    until = None if task.claim_expires_at is None else NOW + 1
    token = settlement.token
    return msgspec.structs.replace(
        task, state=State.RUNNING, session=token.session, claim=token.claim, claim_expires_at=until
    )


@given(st.none() | tasks, settlements, st.booleans(), batches)
def test_only_a_live_claim_writes_and_only_under_its_token(
    task: Task | None, settlement: Settlement, alive: bool, batch: BatchStatus | None
) -> None:
    """A claim with a time limit of its own lives by that, any other as long as its session."""
    answer, change = effect(task, settlement, alive=alive, batch=batch, now=NOW)
    ours = task is not None and (task.session, task.claim) == (settlement.token.session, settlement.token.claim)
    running = task is not None and task.state is State.RUNNING
    until = task.claim_expires_at if task is not None and ours and running else None
    lasts = alive if until is None else until > NOW
    assert (change is not None) == (ours and running and lasts)
    repeated = ours and task is not None and not running and task.outcome == settlement.transition.outcome
    assert answer.applied == (change is not None or repeated)
    if not answer.applied:
        stale = STALE_TIME if until is not None else STALE_CLAIM if alive else STALE_SESSION
        assert answer == (STALE_TASK if task is None else stale)


@given(tasks, settlements, batches)
def test_an_end_is_a_legal_move_and_repeating_it_writes_nothing(
    task: Task, settlement: Settlement, batch: BatchStatus | None
) -> None:
    task = _claimed(task, settlement)
    _, change = effect(task, settlement, alive=True, batch=batch, now=NOW)
    if settlement.transition.state is State.RUNNING:
        assert isinstance(change, Progress)
        return
    assert isinstance(change, ClaimEnd)
    after = change.applied_to(task)
    assert may_move(State.RUNNING, after.state)
    assert not after.cancel_asked
    assert effect(after, settlement, alive=False, batch=batch, now=NOW) == (APPLIED, None)
    if after.state in WAITING:
        assert not task.cancel_asked
        assert (after.state is State.HELD) == (batch not in (None, BatchStatus.RUNNING))
        assert (change.run is not None) == settlement.transition.recorded
        assert after.attempts - task.attempts == settlement.transition.charged
        assert (after.started_at, after.finished_at) == (None, None)
    else:
        assert change.run is None, "the run that finishes a task stands in the task"
        assert (after.attempts, after.finished_at) == (task.attempts + 1, NOW)


@given(tasks, settlements)
def test_a_report_extends_the_time_limit_and_without_a_percentage_nothing_else(
    task: Task, settlement: Settlement
) -> None:
    task = _claimed(task, settlement)
    transition = msgspec.structs.replace(settlement.transition, state=State.RUNNING)
    settlement = msgspec.structs.replace(settlement, transition=transition)
    _, change = effect(task, settlement, alive=True, batch=None, now=NOW)
    assert isinstance(change, Progress)
    after = change.applied_to(task)
    assert after.claim_expires_at == (None if task.claim_expires_at is None else NOW + LASTS)
    silent = transition.progress is None
    said = (task.progress, task.note) if silent else (transition.progress, transition.note)
    assert (after.progress, after.note) == said
    changed = {name for name in Task.__struct_fields__ if getattr(after, name) != getattr(task, name)}
    assert changed <= {"progress", "note", "claim_expires_at"}


@given(tasks, settlements, batches)
def test_a_lost_claim_costs_no_attempt_and_its_token_is_stale(
    task: Task, settlement: Settlement, batch: BatchStatus | None
) -> None:
    """A time limit that ran out is a crash; the third one, of whatever kind, makes the task failed."""
    task = msgspec.structs.replace(task, state=State.RUNNING, session=settlement.token.session)
    end = lost(task, batch=batch, now=NOW)
    after = end.applied_to(task)
    ran_out = task.claim_expires_at is not None
    poisoned = ran_out and not task.cancel_asked and task.crashes >= MAX_CRASHES - 1
    assert (after.losses, after.session, after.outcome) == (task.losses + 1, None, "lost")
    assert after.crashes == task.crashes + ran_out
    assert (after.state in FINISHED) == (task.cancel_asked or poisoned)
    assert (after.state is State.FAILED) == poisoned
    assert after.attempts == task.attempts + (task.cancel_asked or poisoned)
    assert (after.error, after.result, after.worker) == (RAN_OUT if poisoned else task.error, task.result, task.worker)
    assert (end.run is None) == (after.state in FINISHED)
    assert end.run is None or end.run.worker == task.worker
    assert may_move(State.RUNNING, after.state)
    assert effect(after, settlement, alive=True, batch=batch, now=NOW) == (STALE_CLAIM, None)
