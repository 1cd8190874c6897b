"""The JSON documents of `--json`. Moments are RFC 3339 in UTC, spans are seconds, params and results are values."""

from typing import Any

import msgspec

from pitboss.cli.words import utc
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.queue import Queue
from pitboss.model.session import Session
from pitboss.model.snapshot import CurrentTask, PoolFigures, WorkerFigures, read
from pitboss.model.task import Attempt, Task

_MOMENTS = ("created_at", "run_at", "expires_at", "started_at", "finished_at", "ended_at", "paused_at", "opened_at")


def task_document(task: Task) -> dict[str, Any]:
    """A task as the store has it."""
    found = _timed(msgspec.to_builtins(task))
    found["timeout"] = None if task.timeout is None else task.timeout / SECOND
    found["params"] = from_json(task.params)
    found["result"] = None if task.result is None else from_json(task.result)
    return found


def attempt_document(attempt: Attempt) -> dict[str, Any]:
    return _timed(msgspec.to_builtins(attempt))


def queue_document(queue: Queue) -> dict[str, Any]:
    found = _timed(msgspec.to_builtins(queue))
    found["rate"] = [{"count": window.count, "seconds": window.per / SECOND} for window in queue.rate]
    return found


def session_document(session: Session, *, alive: bool) -> dict[str, Any]:
    """A manager: its session and what it last told of its workers."""
    info = session.info
    told = read(session.snapshot)
    return {
        "session": session.number,
        "kind": info.kind,
        "host": info.host,
        "pid": info.pid,
        "alive": alive,
        "opened_at": utc(session.opened_at),
        "expires_at": utc(session.expires_at),
        "handlers": list(info.handlers),
        "app": told.target if told else None,
        "queues": list(told.queues) if told and told.queues is not None else None,
        "concurrency": told.concurrency if told else None,
        "release": told.version if told else None,
        "draining": told.draining if told else False,
        "term": told.term or None if told else None,
        "logs": told.logs or None if told else None,
        "pools": [pool_document(pool) for pool in told.pools] if told else [],
        "workers": [worker_document(worker) for worker in told.workers] if told else [],
    }


def pool_document(pool: PoolFigures) -> dict[str, Any]:
    return dict(msgspec.to_builtins(pool))


def worker_document(worker: WorkerFigures) -> dict[str, Any]:
    """A worker; what it never had is null."""
    found = dict(msgspec.to_builtins(worker))
    found["pid"] = worker.pid or None
    found["started_at"], found["active_at"] = utc(worker.started_at or None), utc(worker.active_at or None)
    found["mean"] = worker.mean / SECOND if worker.processed else None
    found["tasks"] = [_current(task) for task in worker.tasks]
    return found


def _current(task: CurrentTask) -> dict[str, Any]:
    return {"id": task.id, "handler": task.handler, "since": utc(task.since or None)}


def _timed(values: Any) -> dict[str, Any]:
    return {key: utc(value) if key in _MOMENTS else value for key, value in values.items()}
