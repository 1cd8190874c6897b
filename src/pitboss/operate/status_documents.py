"""The JSON documents of the status of a store, and of the forecasts of its queues."""

import msgspec

from pitboss.model.duration import SECOND
from pitboss.model.fleet import alive
from pitboss.model.queue import Queue
from pitboss.model.queue_forecast import Pinch, QueueForecast, spoken_clear, spoken_forecast
from pitboss.model.verdict import Verdict
from pitboss.operate.documents import (
    Document,
    batch_document,
    manager_document,
    queue_document,
    schedule_figures_document,
    seconds_of,
    stages_document,
    utc,
)
from pitboss.operate.status import Status


def status_document(status: Status) -> Document:
    living = [one for one in alive(status.sessions, status.now) if one.info.kind == "manager"]
    return {
        **verdict_document(status.verdict),
        "queues": [queue_page_document(queue, status.forecasts.get(queue.name)) for queue in status.queues],
        "managers": [
            manager_document(one, living=one in living) for one in status.sessions if one.info.kind == "manager"
        ],
        "batches": [batch_document(one) for one in status.batches],
        "resources": [stages_document(pool) for pool in status.resource_pools],
        "schedules": None if status.schedules is None else schedule_figures_document(status.schedules),
    }


def verdict_document(verdict: Verdict) -> Document:
    return {
        "health": verdict.health,
        "cause": verdict.cause,
        "sentence": verdict.sentence,
        "why": verdict.why,
        "since": utc(verdict.since),
        "until": utc(verdict.until),
        "until_note": verdict.until_note,
        "next_try": utc(verdict.next_try),
        "next": verdict.next,
        "actions": [msgspec.to_builtins(one) for one in verdict.actions],
        "also": list(verdict.also),
    }


def queue_page_document(queue: Queue, forecast: QueueForecast | None) -> Document:
    """A queue with its forecast, if there is one."""
    return queue_document(queue) | ({} if forecast is None else {"forecast": forecast_document(forecast)})


def forecast_document(found: QueueForecast) -> Document:
    """Rates are tasks per second. `in` and `out` are tasks per minute of the last hour, oldest first."""
    clears = found.clears
    return {
        "trend": found.trend,
        "text": spoken_forecast(found, lambda moment: f"{(utc(moment) or '')[11:16]} UTC"),
        "backlog": found.backlog,
        "oldest_wait": seconds_of(found.waited),
        "in_rate": round(found.inflow, 4),
        "out_rate": round(found.outflow, 4),
        "at_work": found.at_work,
        "bursts": {"number": found.bursts, "tasks": found.rushed},
        "clears": None
        if clears is None
        else {
            "earliest": clears.earliest / SECOND,
            "latest": seconds_of(clears.latest),
            "likely": seconds_of(found.likely),
            "text": spoken_clear(found),
        },
        "since": utc(found.since),
        "until": utc(found.until),
        "limited_by": _pinch_document(found.pinch),
        "in": list(found.came),
        "out": list(found.went),
    }


def _pinch_document(pinch: Pinch) -> Document | None:
    if not pinch.cause:
        return None
    return {"cause": pinch.cause, "text": pinch.said, "kind": pinch.kind, "name": pinch.name}
