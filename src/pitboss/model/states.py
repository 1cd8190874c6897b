"""The states of a task and the legal moves between them; `docs/states.md` shows exactly this table."""

from enum import StrEnum


class State(StrEnum):
    """The state of a task, by the same word in code, SQL, HTTP, CLI and dashboard."""

    HELD = "held"
    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        return self in FINISHED

    @property
    def waiting(self) -> bool:
        return self in WAITING


FINISHED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
WAITING = frozenset({State.HELD, State.SCHEDULED, State.PENDING})

# (from, to) -> the causes of this move. None is "does not exist yet".
MOVES: dict[tuple[State | None, State], tuple[str, ...]] = {
    (None, State.HELD): ("put",),
    (None, State.SCHEDULED): ("put",),
    (None, State.PENDING): ("put",),
    (State.HELD, State.PENDING): ("released", "drawn", "next in order"),
    (State.HELD, State.SCHEDULED): ("released", "drawn", "next in order"),
    (State.HELD, State.CANCELLED): ("cancel",),
    (State.SCHEDULED, State.PENDING): ("due",),
    (State.SCHEDULED, State.CANCELLED): ("cancel",),
    (State.SCHEDULED, State.HELD): ("batch paused",),
    (State.PENDING, State.HELD): ("handler unknown", "batch paused"),
    (State.PENDING, State.RUNNING): ("claim",),
    (State.PENDING, State.CANCELLED): ("cancel", "expired"),
    (State.RUNNING, State.RUNNING): ("progress", "cancel asked"),
    (State.RUNNING, State.COMPLETED): ("settle",),
    (State.RUNNING, State.FAILED): ("settle", "lost"),
    (State.RUNNING, State.CANCELLED): ("settle", "lost"),
    (State.RUNNING, State.SCHEDULED): ("settle",),
    (State.RUNNING, State.PENDING): ("settle", "lost"),
    (State.RUNNING, State.HELD): ("batch paused",),
    (State.FAILED, State.PENDING): ("retry",),
    (State.FAILED, State.HELD): ("retry",),
    (State.CANCELLED, State.PENDING): ("retry",),
    (State.CANCELLED, State.HELD): ("retry",),
}

# Every way in which a task fails for good, and the verb that writes it. Each also puts the task's fallback and the task
# of its queue's dead-letter handler (`model.failure`), in the same act. An expired task is cancelled, and counts too.
FAILURES: dict[str, str] = {
    "last attempt": "settle",
    "not retryable": "settle",
    "timed out": "settle",
    "expires before its next attempt": "settle",
    "crashed too often": "settle",
    "result cannot be stored": "settle",
    "claims ran out": "reclaim",
    "expired": "claim",
}


def may_move(source: State | None, target: State) -> bool:
    return (source, target) in MOVES
