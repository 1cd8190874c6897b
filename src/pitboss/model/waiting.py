"""Why a task is where it is, in a sentence: the first thing that people ask about a task that does not run."""

from collections.abc import Sequence

from pitboss.model.duration import Moment, spoken
from pitboss.model.queue import Queue
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.task import Task


def alive(sessions: Sequence[Session], now: Moment) -> list[Session]:
    """The sessions that can run tasks now."""
    return [session for session in sessions if not session.ended and session.expires_at > now]


def why(
    task: Task,
    *,
    queue: Queue | None,
    sessions: Sequence[Session],
    now: Moment,
    batch: str | None = None,
    shortage: str | None = None,
) -> str:
    """What the task waits for, or what it does. `batch` says how its batch stands, `shortage` why its queue's resource
    pool gives nothing."""
    match task.state:
        case State.RUNNING:
            return _running(task, sessions, now)
        case State.HELD if task.reason == "batch":
            return f"it waits to be drawn from its batch, which is {batch or 'not running'}"
        case State.HELD:
            return f'it is held: no worker has told this store about a handler "{task.handler}"'
        case State.SCHEDULED:
            return _scheduled(task, now)
        case State.PENDING:
            return _pending(task, queue, alive(sessions, now), now, shortage)
    return f"it has ended: {task.reason}" if task.reason else f"it has ended: {task.state}"


def _running(task: Task, sessions: Sequence[Session], now: Moment) -> str:
    place = next((f" on {one.info.host}" for one in sessions if one.number == task.session), "")
    since = f" for {spoken(now - task.started_at)}" if task.started_at is not None else ""
    stopping = "; it was asked to stop" if task.cancel_asked else ""
    return f"it runs{since}{place}{stopping}"


def _scheduled(task: Task, now: Moment) -> str:
    if task.run_at is None:
        return "it is scheduled"
    due = f"due in {spoken(task.run_at - now)}" if task.run_at > now else "due now"
    if task.error is not None and task.attempts:
        return f"attempt {task.attempts} failed, and the next one is {due}"
    return f"it is {due}" + (f": {task.reason}" if task.reason else "")


def _pending(task: Task, queue: Queue | None, sessions: Sequence[Session], now: Moment, shortage: str | None) -> str:
    if queue is not None and queue.paused:
        who = f" by {queue.paused_by}" if queue.paused_by else ""
        since = f" since {spoken(now - queue.paused_at)}" if queue.paused_at is not None else ""
        return f'queue "{queue.name}" is paused{who}{since}'
    if not sessions:
        return "no manager is running on this store"
    if not any(task.handler in one.info.handlers or not one.info.handlers for one in sessions):
        return f'no running manager knows the handler "{task.handler}"'
    if shortage is not None:
        return f"it waits for a resource: {shortage}"
    if queue is not None and queue.rate:
        limits = ", ".join(f"{window.count} per {spoken(window.per)}" for window in queue.rate)
        return f'queue "{queue.name}" starts at most {limits}; it has its turn when a window opens'
    return "it is ready, and waits for a free worker that serves its queue"
