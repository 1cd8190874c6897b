"""What follows when a task fails for good: its fallback, and a task for the dead-letter handler of its queue.

`states.FAILURES` lists the ways to fail. Whichever verb writes the failure calls `failure_tasks` and puts the result in
the same act; the queue may be overfilled. The ids follow from the task and its claim, so that none is put twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from pitboss.model.canonical import Json, from_json, to_json
from pitboss.model.duration import SECOND, Moment
from pitboss.model.filter import Count
from pitboss.model.ids import TaskId, derived_id
from pitboss.model.meta import FailureMark, Meta, read_meta, with_meta
from pitboss.model.new_task import new_task
from pitboss.model.queue import HandlerInfo
from pitboss.model.states import State
from pitboss.model.task import NewTask, Task

EVERY_QUEUE = "*"
_LONGEST_MESSAGE = 2000


class Routes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of a handler's `about` that name what follows a failure.

    `fallback` is the handler that gets the same params. `dead_letters` are the queues whose failed tasks this handler
    gets ("*": all), in its parameter `parameter`; `dead_letters_of` the handlers whose failed tasks it gets.
    `alert_parameter` is the parameter of a function that gets alerts.
    If several sources of messages have one handler, each gets its own tasks, and the first one those of no source.
    """

    fallback: str | None = None
    dead_letters: tuple[str, ...] = ()
    dead_letters_of: tuple[str, ...] = ()
    source: str | None = None
    parameter: str = "dead"
    alert_parameter: str | None = None


@dataclass(frozen=True)
class DeadError:
    """The last error of a dead task."""

    category: str
    message: str
    type: str = ""
    traceback: str = ""
    fingerprint: str = ""


@dataclass(frozen=True)
class DeadTask:
    """A task that failed for good, as its queue's dead-letter handler gets it."""

    id: str
    handler: str
    queue: str
    params: dict[str, Any] = field(default_factory=dict)
    attempts: int = 0
    reason: str = ""
    error: DeadError | None = None
    created_at: datetime | None = None
    failed_at: datetime | None = None
    tags: list[str] = field(default_factory=list)


class FailureCount(msgspec.Struct, frozen=True, kw_only=True):
    """Failed tasks of one handler with one fingerprint (None: without an error). `first` and `last` are when they
    ended, of those that were counted; `newest` was put last."""

    fingerprint: str | None
    handler: str
    count: Count
    first: Moment
    last: Moment
    newest: TaskId


@lru_cache(maxsize=1024)
def routes(about: Json) -> Routes:
    return msgspec.json.decode(about, type=Routes)


def has_routes(about: Json) -> bool:
    """Whether a handler's `about` names a fallback, or queues or handlers whose dead letters it gets."""
    found = routes(about)
    return found.fallback is not None or bool(found.dead_letters) or bool(found.dead_letters_of)


def failed_for_good(task: Task) -> bool:
    """Whether the task has just failed, or expired, so that something may follow."""
    return task.state is State.FAILED or (task.state is State.CANCELLED and task.reason == "expired")


def needed_handlers(failed: Iterable[Task], abouts: Mapping[str, Json]) -> set[str]:
    """The handlers whose registration `failure_tasks` needs for these tasks. `abouts` are those with routes."""
    needed = set[str]()
    for task in failed:
        own = routes(abouts.get(task.handler, "{}"))
        if own.fallback is not None:
            needed |= {task.handler, own.fallback}
        needed |= {name for name, about in abouts.items() if _gets_dead_letters(about, task)}
    return needed


def failure_tasks(task: Task, handlers: Mapping[str, HandlerInfo]) -> list[NewTask]:
    """The tasks to put for a task that failed for good. `handlers` are those of `needed_handlers`, or all."""
    new = [_fallback(task, handlers), *_dead_letters(task, handlers.values())]
    return [one for one in new if one is not None]


def _fallback(task: Task, handlers: Mapping[str, HandlerInfo]) -> NewTask | None:
    own = handlers.get(task.handler)
    target = None if own is None else routes(own.about).fallback
    meta = read_meta(task.meta)
    chain = (*(meta.failure.chain if meta.failure else ()), task.handler)
    if target is None or target in chain or _is_dead_letter(meta):
        return None
    mark = Meta(failure=_mark(task, chain))
    known = handlers.get(target) or HandlerInfo(name=target)
    new = new_task(known, task.params, _id(task, "fallback", target), parent=task.id)
    return msgspec.structs.replace(
        new, priority=task.priority, tags=task.tags, order_key=None, meta=with_meta(task.meta, mark)
    )


def _dead_letters(task: Task, handlers: Iterable[HandlerInfo]) -> Sequence[NewTask]:
    if _is_dead_letter(read_meta(task.meta)):
        return ()
    mark = Meta(failure=msgspec.structs.replace(_mark(task, ()), dead_letter=True))
    found = []
    for handler in _of_one_source(task, sorted(handlers, key=lambda one: one.name)):
        if _gets_dead_letters(handler.about, task):
            own = routes(handler.about)
            dead = _dead(task) if own.source is None else {**_dead(task), "parent": task.parent}
            params = to_json({own.parameter: dead})
            new = new_task(handler, params, _id(task, "dead letter", handler.name), parent=task.id)
            found.append(msgspec.structs.replace(new, meta=with_meta(task.meta, mark)))
    return found


def _of_one_source(task: Task, handlers: list[HandlerInfo]) -> list[HandlerInfo]:
    """Without the sources of this task's handler that it did not come from."""
    sources = {
        name: one.name
        for one in reversed(handlers)
        if (name := routes(one.about).source) is not None and task.handler in routes(one.about).dead_letters_of
    }
    if len(sources) <= 1:
        return handlers
    message = read_meta(task.meta).message
    own = sources.get(message.source) if message is not None else None
    wrong = set(sources.values()) - {own or min(sources.values())}
    return [one for one in handlers if one.name not in wrong]


def _is_dead_letter(meta: Meta) -> bool:
    """A dead-letter handler that fails gets no dead letter of its own."""
    return meta.failure is not None and meta.failure.dead_letter


def _gets_dead_letters(about: Json, task: Task) -> bool:
    found = routes(about)
    return task.handler in found.dead_letters_of or not {task.queue, EVERY_QUEUE}.isdisjoint(found.dead_letters)


def _id(task: Task, *kind: str) -> TaskId:
    return derived_id(task.finished_at or 0, *kind, task.id, task.claim)


def _mark(task: Task, chain: tuple[str, ...]) -> FailureMark:
    error = task.error
    return FailureMark(
        id=task.id,
        handler=task.handler,
        attempts=task.attempts,
        category=error.category if error else "",
        message=error.message[:_LONGEST_MESSAGE] if error else "",
        type=error.type if error else "",
        reason=task.reason or "",
        chain=chain,
    )


def _dead(task: Task) -> dict[str, Any]:
    error = task.error
    return {
        "id": task.id,
        "handler": task.handler,
        "queue": task.queue,
        "params": from_json(task.params),
        "attempts": task.attempts,
        "reason": task.reason or "",
        "error": error
        and {
            "category": error.category,
            "message": error.message,
            "type": error.type,
            "traceback": error.traceback,
            "fingerprint": error.fingerprint,
        },
        "created_at": _date(task.created_at),
        "failed_at": _date(task.finished_at or 0),
        "tags": list(task.tags),
    }


def _date(moment: Moment) -> str:
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat()
