"""Queues with partitions: which slot has which keys, what waits by key, and how even the work is."""

from typing import Any

from pitboss.engines.capabilities import capabilities
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.workers import pages_of, part
from pitboss.http.web.view import View
from pitboss.model.estimate import told
from pitboss.model.queue import Queue
from pitboss.model.states import State
from pitboss.operate.partitions import PartitionsReading, by_number, read_partitions, validation
from pitboss.operate.plan import Launch, QueuePlan, read_plan

_SECONDS, _PLAN_SECONDS = 2.0, 15.0
# With more unfinished tasks, their keys are not counted: a page must not cost more, the more there are.
_MOST_COUNTED = 100_000
TOPICS = ("queues", "workers", "store")


async def queues(view: View) -> Context:
    status = await view.status()
    divided = [one.name for one in status.queues if one.partitions is not None]
    shown = part(view, divided)
    return {
        "readings": [await _reading(view, name, counts=False) for name in shown],
        "supported": capabilities(view.store).partitions is not None,
        **pages_of(view, len(divided)),
    }


async def one_queue(view: View) -> Context:
    name = view.places["queue"]
    unfinished = {one.name: _unfinished(one) for one in (await view.status()).queues if one.partitions is not None}
    counted = unfinished.get(name, 0) <= _MOST_COUNTED
    reading = await _reading(view, name, counts=counted)
    text, slot = view.query.get("q", "").strip().lower(), view.query.get("slot", "")
    plan = await _plan(view, name) if sum(unfinished.values()) <= _MOST_COUNTED else None
    why = {one.key.key: one.why for one in reading.unowned}
    keys = sorted(reading.keys.values(), key=lambda one: (one.key not in why, -one.waiting, one.key))
    chosen = [one for one in keys if text in one.key.lower() and slot in ("", one.owner)]
    return {
        "title": name,
        "reading": reading,
        "is_counted": counted,
        "most": _MOST_COUNTED,
        "queue": reading.queue,
        "spec": reading.spec,
        "why": why,
        "text": text,
        "slot": slot,
        "rows": part(view, chosen),
        "key_count": len(keys),
        "slots": sorted(reading.slots, key=lambda one: by_number(one.name)),
        "running": reading.queue.counts.get(State.RUNNING, 0),
        "check": validation(name, reading.spec, {one.key: one.unfinished for one in keys} if counted else None),
        "plan": plan,
        "estimate": "" if plan is None else told(plan.estimate),
        **pages_of(view, len(chosen)),
    }


async def _reading(view: View, name: str, *, counts: bool) -> PartitionsReading:
    return await view.readings.get(
        ("partitions", name, counts), lambda: read_partitions(view.store, name, view.now, counts=counts), _SECONDS
    )


def _unfinished(queue: Queue) -> int:
    return queue.waiting + queue.counts.get(State.RUNNING, 0)


async def _plan(view: View, name: str) -> QueuePlan | None:
    """What the managers that run would do with the queue, as `pitboss plan` shows it."""
    found: Any = await view.readings.get("plan", lambda: read_plan(view.store, Launch(), view.now), _PLAN_SECONDS)
    return next((one for one in found.queues if one.queue.name == name), None)


PAGES = (
    Page("/partitions", "Partitions", "partitions.html", queues, TOPICS),
    Page("/partitions/{queue}", "Partitions", "partition.html", one_queue, TOPICS),
)
