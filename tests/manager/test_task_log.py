"""What the manager's log says about attempts that failed, and how little of it a storm writes."""

from typing import Any

from pitboss.manager.task_log import BURST, PER_SECOND, TaskLog
from pitboss.model.duration import SECOND
from pitboss.model.outcome import Transition
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, TaskError, Token

ERROR = TaskError(category="error", type="OSError", message="no route\nmore")
AGAIN = Transition(state=State.SCHEDULED, outcome="failed", error=ERROR, delay=2 * SECOND, charged=True)
FAILED = Transition(state=State.FAILED, outcome="failed", error=ERROR, reason="attempts used up", charged=True)
TASK = "01900000-0000-7000-8000-0123456789ab"


class Written:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []
        self.time = 100.0
        self.tasks = TaskLog(lambda: self.time)
        self.tasks.log = self

    def note(self, change: Transition, handler: str = "fetch", batch: str | None = None) -> None:
        token = Token(1, 1)
        claim = Claim(id=TASK, token=token, handler=handler, queue="q", params="{}", attempt=3, batch=batch)
        self.tasks.note(claim, Settlement(id=TASK, token=token, transition=change, worker="default-1", ran=5))

    def info(self, event: str, **facts: Any) -> None:
        self.lines.append(("info", event, facts))

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append(("warning", event, facts))

    def error(self, event: str, **facts: Any) -> None:
        self.lines.append(("error", event, facts))


def test_failed_for_good_is_an_error_and_tried_again_a_warning() -> None:
    log = Written()
    log.note(AGAIN)
    log.note(FAILED, batch="b")
    known = {"task_id": TASK, "handler": "fetch", "attempt": 3, "queue": "q", "worker": "default-1"}
    assert log.lines == [
        ("warning", "task failed and is tried again", {**known, "error": "OSError: no route", "again": "in 2s"}),
        ("error", "task failed", {**known, "batch": "b", "error": "OSError: no route", "reason": "attempts used up"}),
    ]


def test_what_is_no_failure_of_the_task_has_no_line() -> None:
    log = Written()
    for change in (
        Transition(state=State.COMPLETED, outcome="completed", charged=True),
        Transition(state=State.CANCELLED, outcome="cancelled", charged=True),
        Transition(state=State.PENDING, outcome="released"),
        Transition(state=State.SCHEDULED, outcome="snoozed", delay=SECOND),
        # The end of the worker has one line for all tasks that were lost with it.
        Transition(state=State.PENDING, outcome="lost", error=ERROR, lost=True),
    ):
        log.note(change)
    log.tasks.log = None
    log.note(FAILED)
    log.tasks.flush()
    assert log.lines == []


def test_a_storm_of_failures_writes_few_lines_and_says_how_many_it_left_out() -> None:
    log = Written()
    for _ in range(9_999):
        log.note(FAILED)
    log.note(FAILED, handler="send")
    assert len(log.lines) == BURST
    log.tasks.flush()
    level, event, facts = log.lines[-1]
    assert level == "error"
    assert event.startswith(f"{10_000 - BURST:,} more tasks failed; pitboss dead list")
    assert facts == {"most": [f"{9_999 - BURST:,} × fetch OSError", "1 × send OSError"]}
    # Warnings have a budget of their own, and a storm that goes on keeps to a few lines a second.
    log.note(AGAIN)
    for _ in range(60):
        log.time += 1
        for _ in range(1_000):
            log.note(FAILED)
        log.tasks.flush()
    assert len(log.lines) <= BURST + 2 + 60 * (PER_SECOND + 1)
    assert sum(level == "warning" for level, _, _ in log.lines) == 1
    log.tasks.flush()
    assert len(log.lines) == BURST + 2 + 60 * (PER_SECOND + 1)
