"""Where a task comes from, in words and as data: an event, a tick of a schedule, or a task that failed."""

from datetime import UTC, datetime
from typing import Any

from pitboss.model.duration import SECOND, Moment
from pitboss.model.meta import EventMark, FailureMark, TickMark, read_meta
from pitboss.model.task import Task


def origin_lines(task: Task) -> list[str]:
    """One sentence for each cause, the nearest first; none if a caller put the task. Ticks are in UTC."""
    meta = read_meta(task.meta)
    lines = [
        meta.failure and _of_failure(meta.failure),
        meta.tick and _of_tick(meta.tick),
        meta.event and _of_event(meta.event),
    ]
    return [line for line in lines if line]


def origin_document(task: Task) -> dict[str, Any] | None:
    """What `model.meta` says of it, with moments in RFC 3339; None if a caller put the task."""
    meta = read_meta(task.meta)
    found: dict[str, Any] = {}
    if meta.event is not None:
        found["event"] = {"id": meta.event.id, "name": meta.event.name, "key": meta.event.key}
    if meta.tick is not None:
        found["schedule"] = {
            "name": meta.tick.schedule,
            "scheduled_for": _utc(meta.tick.scheduled_for),
            "last_success": None if meta.tick.last_success is None else _utc(meta.tick.last_success),
        }
    if meta.failure is not None:
        kind = "dead_letter" if meta.failure.dead_letter else "fallback"
        found[kind] = {"task": meta.failure.id, "handler": meta.failure.handler, "error": _error(meta.failure)}
    return found or None


def _of_event(mark: EventMark) -> str:
    key = f" with key {mark.key}" if mark.key else ""
    return f"it handles event {mark.name} ({mark.id}){key}"


def _of_tick(mark: TickMark) -> str:
    return f"schedule {mark.schedule} put it for {_utc(mark.scheduled_for)}"


def _of_failure(mark: FailureMark) -> str:
    which = f"task {mark.id} ({mark.handler}), which failed: {_error(mark)}"
    return f"it is the dead letter of {which}" if mark.dead_letter else f"it is the fallback of {which}"


def _error(mark: FailureMark) -> str:
    first = mark.message.strip().partition("\n")[0]
    kind = mark.type or mark.category
    return f"{kind}: {first}" if kind and first else first or kind or mark.reason


def _utc(moment: Moment) -> str:
    text = datetime.fromtimestamp(moment / SECOND, UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "+00:00").replace("+00:00", "Z")
