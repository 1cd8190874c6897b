"""The rules of settling, over all states of a task, a session and a batch."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.batch import BatchStatus
from pitboss.model.outcome import Transition
from pitboss.model.resource import Report, ResourceOutcome
from pitboss.model.settlement import (
    APPLIED,
    STALE_CLAIM,
    STALE_SESSION,
    STALE_TASK,
    ClaimEnd,
    Progress,
    Settlement,
    effect,
    lost,
)
from pitboss.model.states import FINISHED, WAITING, State, may_move
from pitboss.model.task import Task, TaskError, Token

NOW = 1_000_000
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
)
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


@given(st.none() | tasks, settlements, st.booleans(), batches)
def test_only_a_live_session_writes_and_only_under_the_running_claim(
    task: Task | None, settlement: Settlement, alive: bool, batch: BatchStatus | None
) -> None:
    answer, change = effect(task, settlement, alive=alive, batch=batch, now=NOW)
    ours = task is not None and (task.session, task.claim) == (settlement.token.session, settlement.token.claim)
    running = task is not None and task.state is State.RUNNING
    assert (change is not None) == (ours and running and alive)
    repeated = ours and task is not None and not running and task.outcome == settlement.transition.outcome
    assert answer.applied == (change is not None or repeated)
    if not answer.applied:
        assert answer == (STALE_TASK if task is None else STALE_CLAIM if alive else STALE_SESSION)


@given(tasks, settlements, batches)
def test_an_end_is_a_legal_move_and_repeating_it_writes_nothing(
    task: Task, settlement: Settlement, batch: BatchStatus | None
) -> None:
    task = msgspec.structs.replace(
        task, state=State.RUNNING, session=settlement.token.session, claim=settlement.token.claim
    )
    _, change = effect(task, settlement, alive=True, batch=batch, now=NOW)
    if settlement.transition.state is State.RUNNING:
        assert change == Progress(None, None)
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


@given(tasks, settlements, batches)
def test_a_task_of_a_dead_session_is_lost_without_an_attempt_and_its_token_is_stale(
    task: Task, settlement: Settlement, batch: BatchStatus | None
) -> None:
    task = msgspec.structs.replace(task, state=State.RUNNING, session=settlement.token.session)
    end = lost(task, batch=batch, now=NOW)
    after = end.applied_to(task)
    assert (after.losses, after.session, after.outcome) == (task.losses + 1, None, "lost")
    assert (after.state in FINISHED) == task.cancel_asked
    assert after.attempts == task.attempts + task.cancel_asked
    assert (after.error, after.result, after.worker) == (task.error, task.result, task.worker)
    assert effect(after, settlement, alive=True, batch=batch, now=NOW) == (STALE_CLAIM, None)
