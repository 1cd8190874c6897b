"""The JSON documents that the HTTP API has from the original one: tasks, claims, task types and remote workers."""

from typing import TYPE_CHECKING

import msgspec

from pitboss.model.duration import SECOND
from pitboss.model.policy import Policy
from pitboss.model.states import State
from pitboss.model.task import Claim, Task
from pitboss.operate.documents import Document, seconds_of, utc
from pitboss.operate.origin import origin_document

if TYPE_CHECKING:
    from pitboss.operate.remote_workers import RemoteWorker
    from pitboss.operate.task_types import TaskType

# The words of the original API for each state; `state` has ours.
STATUSES = {
    State.HELD: "pending",
    State.SCHEDULED: "pending",
    State.PENDING: "pending",
    State.RUNNING: "claimed",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "failed",
}


def remote_task_document(task: Task, policy: Policy) -> Document:
    """A task as the HTTP API shows it. Params and result stay as they are stored."""
    running = task.state is State.RUNNING
    claimed = running or task.state.finished
    return {
        "id": task.id,
        "type": task.handler,
        "status": STATUSES[task.state],
        "state": task.state.value,
        "params": msgspec.Raw(task.params.encode()),
        "result": None if task.result is None else msgspec.Raw(task.result.encode()),
        "error_message": None if task.error is None else task.error.message,
        "error": None if task.error is None else msgspec.to_builtins(task.error),
        "priority": task.priority,
        "progress": task.progress or 0,
        "message": task.note,
        "attempts": task.attempts + running,
        "max_attempts": task.max_attempts or policy.max_attempts,
        "lost_claims": task.losses,
        "claimed_by": task.worker if claimed else None,
        "claimed_at": utc(task.started_at) if claimed else None,
        "claim_expires_at": utc(task.claim_expires_at) if running else None,
        "completed_at": utc(task.finished_at),
        "created_at": utc(task.created_at),
        "run_at": utc(task.run_at),
        "queue": task.queue,
        "tags": list(task.tags),
        "batch": task.batch,
        "parent": task.parent,
        "reason": task.reason,
        "order_key": task.order_key,
        "origin": origin_document(task),
        "cancel_requested": task.cancel_asked,
    }


def claim_document(claim: Claim, lasts: float, policy: Policy) -> Document:
    """A task as the remote worker gets it that claimed it. `attempts` counts this one; `lasts` is in seconds."""
    return {
        "id": claim.id,
        "type": claim.handler,
        "params": msgspec.Raw(claim.params.encode()),
        "attempts": claim.attempt,
        "priority": claim.priority,
        "claim_token": str(claim.token),
        "claim_expires_at": utc(claim.claim_expires_at),
        "claim_timeout": lasts,
        "max_attempts": claim.max_attempts or policy.max_attempts,
        "created_at": utc(claim.created_at),
        "tags": list(claim.tags),
        "status": "claimed",
    }


def task_type_document(found: "TaskType") -> Document:
    info = found.info
    return {
        "id": info.number,
        "name": info.name,
        "version": found.about.version,
        "param_schema": msgspec.Raw(info.schema.encode()),
        "is_active": found.about.active,
        "remote": info.remote,
        "queue": info.queue,
        "max_attempts": found.policy.max_attempts,
        "timeout": found.claim_lasts / SECOND if info.remote else seconds_of(found.policy.timeout),
        "dedupe": found.about.dedupe,
        "description": found.about.description,
        "created_at": utc(info.created_at or None),
        "updated_at": utc(info.updated_at or None),
    }


def remote_worker_document(worker: "RemoteWorker") -> Document:
    return {
        "worker_id": worker.id,
        "name": worker.card.name or worker.id,
        "status": worker.status,
        "metadata": worker.card.metadata,
        "types": list(worker.card.types),
        "registered_at": utc(worker.registered_at),
        "last_seen": utc(worker.seen_at),
        "current_tasks": [task.id for task in worker.tasks],
    }
