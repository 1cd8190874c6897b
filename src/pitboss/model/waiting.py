"""Why a task or a batch does not move, in a sentence. The callers read what these functions need from the store."""

from collections.abc import Mapping, Sequence

from pitboss.model.batch import OVER, Batch, BatchStatus
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.fleet import alive
from pitboss.model.queue import Queue
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task
from pitboss.model.text import counted

# A shorter rest between two uses of a resource is normal and not worth a message.
_WORTH_TELLING: Span = 2 * SECOND


def why_task_waits(
    task: Task,
    *,
    queue: Queue | None,
    sessions: Sequence[Session],
    now: Moment,
    batch: str | None = None,
    shortage: str | None = None,
) -> str:
    """What the task waits for, or what it does. `batch` is the status of its batch, `shortage` says why no member of
    its queue's resource pool is free."""
    match task.state:
        case State.RUNNING:
            return _running(task, sessions, now)
        case State.HELD if task.reason == "batch":
            return f"it waits for its turn in its batch, which is {batch or 'not running'}"
        case State.HELD:
            return f'it is held: no worker knows the handler "{task.handler}"'
        case State.SCHEDULED:
            return _scheduled(task, now)
        case State.PENDING:
            return _pending(task, queue, alive(sessions, now), now, shortage)
    return f"it has ended: {task.reason}" if task.reason else f"it has ended: {task.state}"


def why_batch_waits(
    batch: Batch,
    *,
    queues: Mapping[str, Queue],
    pools: Mapping[str, ResourcePoolView],
    sessions: Sequence[Session],
    now: Moment,
) -> str | None:
    """What the batch waits for; None if it has ended or makes progress."""
    running = batch.counts.get(State.RUNNING, 0)
    if batch.status in OVER:
        return None
    match batch.status:
        case BatchStatus.QUEUED:
            return f'for its turn in lane "{batch.lane}": place {batch.position}'
        case BatchStatus.PAUSED:
            return "for an operator to resume it"
        case BatchStatus.PAUSING | BatchStatus.CANCELLING:
            return f"for {counted(running, 'running item')} to end"
    return None if running else _stuck(batch, queues, pools, sessions, now)


def _running(task: Task, sessions: Sequence[Session], now: Moment) -> str:
    host = next((f" on {one.info.host}" for one in sessions if one.number == task.session), "")
    since = f" for {spoken(now - task.started_at)}" if task.started_at is not None else ""
    stopping = "; it was asked to stop" if task.cancel_asked else ""
    return f"it runs{since}{host}{stopping}"


def _scheduled(task: Task, now: Moment) -> str:
    if task.run_at is None:
        return "it is scheduled"
    due = f"due in {spoken(task.run_at - now)}" if task.run_at > now else "due now"
    if task.error is not None and task.attempts:
        return f"attempt {task.attempts} failed, and the next one is {due}"
    return f"it is {due}" + (f": {task.reason}" if task.reason else "")


def _pending(task: Task, queue: Queue | None, sessions: Sequence[Session], now: Moment, shortage: str | None) -> str:
    if queue is not None and queue.paused:
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        since = f" since {spoken(now - queue.paused_at)}" if queue.paused_at is not None else ""
        return f'queue "{queue.name}" is paused{by}{since}'
    if not sessions:
        return "no manager is running on this store"
    if not any(task.handler in one.info.handlers or not one.info.handlers for one in sessions):
        return f'no running manager knows the handler "{task.handler}"'
    if shortage is not None:
        return f"it waits for a resource: {shortage}"
    if queue is not None and queue.rate:
        limits = ", ".join(f"{window.count} per {spoken(window.per)}" for window in queue.rate)
        return f'queue "{queue.name}" starts at most {limits}; it starts when that limit allows'
    return "it is ready, and waits for a free worker that serves its queue"


def _stuck(
    batch: Batch,
    queues: Mapping[str, Queue],
    pools: Mapping[str, ResourcePoolView],
    sessions: Sequence[Session],
    now: Moment,
) -> str | None:
    if not alive(sessions, now):
        return "for a manager: none is running on this store"
    own = [queues[name] for name in batch.queues if name in queues]
    paused = [f'"{queue.name}"' for queue in own if queue.paused]
    if paused and len(paused) == len(own):
        return f"for the paused {'queue' if len(paused) == 1 else 'queues'} {', '.join(paused)}"
    short = [_shortage(pools.get(queue.resources or ""), now) for queue in own if queue.resources is not None]
    told = [text for text in dict.fromkeys(short) if text is not None]
    if told and len(short) == len(own) and None not in short:
        return "; ".join(told)
    waiting = batch.counts.get(State.PENDING, 0) + batch.counts.get(State.HELD, 0)
    scheduled = batch.counts.get(State.SCHEDULED, 0)
    return f"for {counted(scheduled, 'item')} due later" if scheduled and not waiting else None


def _shortage(pool: ResourcePoolView | None, now: Moment) -> str | None:
    if pool is None or 0 < pool.supply(now).wait < _WORTH_TELLING:
        return None
    return pool.shortage(now)
