"""A claimed task, and the results that a handler returns for it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from pitboss.remote.errors import failure
from pitboss.remote.routes import Answer

DEFAULT_TIME_LIMIT = 300.0

_running: ContextVar["Task | None"] = ContextVar("running_task", default=None)


class Task(dict[str, Any]):
    """What the API says about a task, and what happens to its claim while it runs.

    `cancel_event` is set when an operator asks to cancel it, or when the claim is lost: both times the handler should
    stop. `claim_lost` tells the two apart.
    """

    def __init__(self, answer: dict[str, Any], worker_id: str, time_limit: float) -> None:
        super().__init__(answer)
        self.worker_id, self.time_limit = worker_id, time_limit
        self.cancel_event = threading.Event()
        self.claim_lost = False
        self.reporting = False  # its last report is under way
        self.ended_by: str | None = None  # the last report, once it was accepted: complete, fail or release
        self.renew_at = time.monotonic() + time_limit / 3
        self.started = time.monotonic()

    @property
    def id(self) -> str:
        return str(self["id"])

    @property
    def cancel_requested(self) -> bool:
        return self.cancel_event.is_set()

    @property
    def claim(self) -> dict[str, Any]:
        """What names this claim in a report."""
        token = self.get("claim_token")
        return {"worker_id": self.worker_id, **({} if token is None else {"claim_token": token})}

    def lose_claim(self) -> None:
        self.claim_lost = True
        self.cancel_event.set()


def tasks_in(answer: Answer, worker_id: str, time_limit: float | None) -> list[Task]:
    """The tasks that a claim got, with the time limit that the server has set."""
    rows = answer.get("tasks", [answer] if "id" in answer else [])
    return [Task(dict(row), worker_id, time_limit or _time_limit(row, answer.timestamp)) for row in rows]


def _time_limit(row: dict[str, Any], now: float | None) -> float:
    if isinstance(row.get("claim_timeout"), int | float):
        return float(row["claim_timeout"])
    try:
        ends = datetime.fromisoformat(row["claim_expires_at"]).timestamp()
        return max(ends - float(now or ""), 1.0)
    except (KeyError, TypeError, ValueError):  # a server that does not say it
        return DEFAULT_TIME_LIMIT


@contextmanager
def running(task: Task) -> Iterator[None]:
    """In this block, in this thread or asyncio task, `running_task()` is this task."""
    task.started = time.monotonic()
    token = _running.set(task)
    try:
        yield
    finally:
        _running.reset(token)


def running_task() -> Task | None:
    return _running.get()


def success_result(data: Any = None, message: str = "Successfully processed task") -> dict[str, Any]:
    """The standard result of a handler that succeeded."""
    return {"success": True, "data": data, "message": message, "metadata": _metadata("processed_at")}


def error_result(
    error: str | BaseException, error_type: str | None = None, retryable: bool | None = None
) -> dict[str, Any]:
    """The standard result of a handler that failed. An exception says by itself what type of error it is."""
    said: dict[str, Any] = failure(error) if isinstance(error, BaseException) else {"error": error}
    if error_type is not None:
        said["error_type"] = error_type
    if retryable is not None:
        said["retryable"] = retryable
    return {"success": False, **said, "metadata": _metadata("failed_at")}


def is_failure(result: Any) -> bool:
    return isinstance(result, dict) and "success" in result and not result["success"]


def completion(result: Any) -> dict[str, Any]:
    """The fields of a report with what a handler returned: a success, or a failure that it described itself."""
    if not is_failure(result):
        return {"success": True, "result": result}
    error = str(result.get("error") or "the handler returned success: false")
    said = {
        name: result[name]
        for name in ("error_type", "retryable", "traceback", "retry_after")
        if result.get(name) is not None
    }
    return {"success": False, "error": error, "result": result, **said}


def _metadata(when: str) -> dict[str, Any]:
    task = running_task()
    return {
        when: datetime.now(UTC).isoformat(),
        "worker_id": task.worker_id if task else None,
        "processing_time": round(time.monotonic() - task.started, 6) if task else None,
    }
