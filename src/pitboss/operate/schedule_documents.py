"""The JSON documents of schedules and events."""

from typing import TYPE_CHECKING

from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.event import Event
from pitboss.model.schedule import ScheduleSpec
from pitboss.operate.documents import Document, seconds_of, utc

if TYPE_CHECKING:
    from pitboss.client.events import EventWithTasks
    from pitboss.operate.events import Subscribed
    from pitboss.operate.schedules import ScheduleReading, Tick


def schedule_document(reading: "ScheduleReading") -> Document:
    """`changed` has the fields that an operator set, with what is declared for them."""
    one = reading.schedule
    declared = _spec(one.declared)
    return {
        "name": one.name,
        "when": reading.when,
        **_spec(one.spec),
        "next_at": utc(one.next_at),
        "overdue": reading.overdue,
        "paused": one.paused,
        "paused_by": one.paused_by,
        "paused_at": utc(one.paused_at),
        "paused_reason": one.paused_reason,
        "app": one.app,
        "changed": {name: declared[name] for name in sorted(one.changes)},
        "changed_by": one.changed_by,
        "last_tick": utc(one.last_tick),
        "last_task": one.last_task,
        "last_state": reading.last_state,
        "last_success": utc(one.last_success),
        "fired": one.fired,
        "skipped": one.skipped,
        "missed": one.missed,
        "created_at": utc(one.created_at),
        "updated_at": utc(one.updated_at),
    }


def tick_document(tick: "Tick") -> Document:
    return {"at": utc(tick.at), "schedule": tick.schedule}


def event_document(event: Event) -> Document:
    """An event; `tasks` are the ids of its tasks, in the order of `handlers`."""
    return {
        "id": event.id,
        "name": event.name,
        "data": from_json(event.data),
        "key": event.key,
        "by": event.by,
        "published_at": utc(event.published_at),
        "handlers": list(event.handlers),
        "tasks": list(event.task_ids()),
    }


def event_page_document(page: "EventWithTasks") -> Document:
    """An event with the states of its tasks; None: the task was deleted."""
    tasks = [
        {"handler": handler, "id": task_id, "state": None if task is None else task.state.value}
        for handler, task_id, task in zip(page.event.handlers, page.event.task_ids(), page.tasks, strict=True)
    ]
    return {**event_document(page.event), "tasks": tasks}


def subscription_document(one: "Subscribed") -> Document:
    wanted = one.subscription
    return {
        "handler": wanted.handler,
        "pattern": wanted.pattern,
        "queue": wanted.queue,
        "priority": wanted.priority,
        "ordered": wanted.ordered,
        "app": one.app,
    }


def _spec(spec: ScheduleSpec) -> Document:
    return {
        "handler": spec.handler,
        "cron": spec.cron,
        "every": seconds_of(spec.every),
        "at": utc(spec.at),
        "tz": spec.tz,
        "params": from_json(spec.params),
        "queue": spec.queue,
        "priority": spec.priority,
        "max_attempts": spec.max_attempts,
        "timeout": seconds_of(spec.timeout),
        "overlap": spec.overlap.value,
        "catchup": spec.catchup.value,
        "jitter": spec.jitter / SECOND,
    }
