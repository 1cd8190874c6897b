"""What is true of every task at every moment."""

import msgspec

from pitboss.model.states import MOVES, WAITING, State
from pitboss.model.task import Task

# One claim may make a scheduled task due, or draw a held item, and then take, hold or cancel it. From outside this
# looks like one move.
_SEEN_AS_ONE = {
    *((State.SCHEDULED, state) for state in (State.RUNNING, State.HELD, State.CANCELLED)),
    (State.HELD, State.RUNNING),
}
_FIXED = (
    "handler",
    "queue",
    "params",
    "created_at",
    "max_attempts",
    "timeout",
    "unique_key",
    "batch",
    "want",
    "order_key",
    "meta",
    "partition",
)


def assert_sound(task: Task, before: Task | None, *, revived: bool = False) -> None:
    """The task's fields agree with its state, and with what it was before."""
    _assert_consistent(task)
    if before is None:
        assert (None, task.state) in MOVES, f"a task was created as {task.state}"
        return
    move = (before.state, task.state)
    assert task.state is before.state or move in MOVES or move in _SEEN_AS_ONE, f"illegal move {move} of {task}"
    for field in (*_FIXED, "parent"):
        assert getattr(task, field) == getattr(before, field), f"{field} changed: {before} became {task}"
    if before.state not in WAITING:
        assert (task.priority, task.tags) == (before.priority, before.tags), f"changed: {before} became {task}"
    assert before.claim <= task.claim <= before.claim + 1, f"the claim number jumped: {before} became {task}"
    if not revived:
        for field in ("attempts", "losses", "crashes"):
            assert getattr(task, field) >= getattr(before, field), f"{field} fell: {before} became {task}"
    if task.state.finished and task.state is before.state:
        assert task == before, f"a finished task changed: {before} became {task}"


def _assert_consistent(task: Task) -> None:
    shown = msgspec.to_builtins(task)
    assert (task.finished_at is not None) == task.state.finished, f"finished_at does not fit the state: {shown}"
    if task.state is State.RUNNING:
        assert task.session is not None, f"running without a session: {shown}"
        assert task.started_at is not None, f"running without a start: {shown}"
        assert task.claim > 0, f"running without a claim: {shown}"
    if task.state is State.SCHEDULED:
        assert task.run_at is not None, f"scheduled without a time: {shown}"
    if task.state is State.HELD:
        assert task.reason, f"held without a reason: {shown}"
    assert not task.cancel_asked or task.state is State.RUNNING, f"asked to cancel, but not running: {shown}"
    assert task.result is None or task.state is State.COMPLETED, f"a result without completion: {shown}"
