"""The first page: the verdict, and the evidence below it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pitboss.engines.capabilities import capabilities
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.access import Role
from pitboss.model.figures import HOUR
from pitboss.model.filter import EVERYTHING
from pitboss.model.fleet import READY, ManagerView, live_managers
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from pitboss.operate.activity import activity_document, read_activity
from pitboss.operate.failures import FailureGroups, failure_groups
from pitboss.operate.figures import FigureReading, read_figures
from pitboss.operate.queue_flows import QueueFlow, read_queue_flows
from pitboss.operate.resources import list_resource_pools
from pitboss.operate.schedules import list_schedules
from pitboss.operate.status import Status

ORDER = ("ready", "busy", "resting", "cooling", "blacklisted", "disabled")
_FIGURES_SECONDS, _FLOWS_SECONDS = 5.0, 2.0
_QUEUES, _POOLS, _BATCHES, _FAILURES, _SCHEDULES, _HAPPENINGS, _ODD = 8, 6, 6, 4, 3, 8, 5


async def read(view: View) -> Context:
    status = await view.status()
    now, store = status.now, view.store
    managers = live_managers(status.sessions, now)
    flows = await queue_flows(view)
    total = await figures(view)
    acts = Role.ADMIN in view.call.caller.roles
    log = await view.readings.get(
        ("activity", acts), lambda: read_activity(store, limit=_HAPPENINGS, acts=acts), _FLOWS_SECONDS
    )
    groups = await failures(view)
    return {
        "status": status,
        "empty_store": not managers and not status.queues,
        "linked": linked(view, status),
        "also": [one for one in status.findings if one.grade in ("problem", "warning")][:4],
        "evidence": _evidence(status, flows),
        "totals": _totals(status, flows, total, managers),
        "total": total,
        "flows": flows[:_QUEUES],
        "queue_count": len(flows),
        "strips": strips(managers),
        "states": Counter(one.state.value for manager in managers for one in manager.snapshot.workers),
        "odd": _odd(managers)[:_ODD],
        "pools": (await resource_pools(view))[:_POOLS],
        "order": ORDER,
        "batches": status.batches[:_BATCHES],
        "groups": groups.groups[:_FAILURES],
        "group_count": len(groups.groups),
        "schedules": await _schedules(view),
        "wall": status.wall,
        "log": [activity_document(one) | {"at_moment": one.at} for one in log],
    }


async def queue_flows(view: View) -> list[QueueFlow]:
    return await view.readings.get("flows", lambda: read_queue_flows(view.store, view.now), _FLOWS_SECONDS)


async def figures(view: View) -> FigureReading:
    """Those of all tasks in the last hour."""
    return await view.readings.get("figures", lambda: read_figures(view.store, view.now, since=HOUR), _FIGURES_SECONDS)


async def failures(view: View) -> FailureGroups:
    return await view.readings.get("failures", lambda: failure_groups(view.store, EVERYTHING), _FLOWS_SECONDS)


def linked(view: View, status: Status) -> list[tuple[str, str]]:
    """The sentence of the verdict in pieces, with an address for the name of its queue."""
    said, queue = status.verdict.sentence, status.verdict.queue
    if not queue or f'"{queue}"' not in said:
        return [(said, "")]
    before, after = said.split(f'"{queue}"', 1)
    return [(before, ""), (queue, view.url("/tasks", q=f"queue:{queue} state:pending")), (after, "")]


def _evidence(status: Status, flows: Sequence[QueueFlow]) -> QueueFlow | None:
    """The queue that the verdict is about, or the one in which most waits."""
    named = [one for one in flows if one.queue.name == status.verdict.queue]
    return next(iter(named or [one for one in flows if one.queue.waiting]), None)


def _totals(
    status: Status, flows: Sequence[QueueFlow], total: FigureReading, managers: Sequence[ManagerView]
) -> dict[str, Any]:
    workers = [worker for manager in managers for worker in manager.snapshot.workers]
    waits = [(one.oldest, one.queue.name) for one in flows if one.oldest is not None]
    series = total.series
    failed = sum(one or 0 for one in series["failed"])
    return {
        "waiting": sum(one.waiting for one in status.queues),
        "growth": sum(one.arriving - one.ending for one in flows),
        "oldest": max(waits, default=None),
        "running": sum(one.counts.get(State.RUNNING, 0) for one in status.queues),
        "slots": sum(
            pool.concurrency * _count(manager, pool.name) for manager in managers for pool in manager.snapshot.pools
        ),
        "ending": sum(one.ending for one in flows),
        "failed": failed,
        "ended": sum(one or 0 for one in series["out"]),
        "ready": sum(one.state in READY for one in workers),
        "workers": len(workers),
        "restarting": sum(one.state is WorkerState.RESTARTING for one in workers),
    }


def _count(manager: ManagerView, pool: str) -> int:
    return sum(worker.pool == pool for worker in manager.live)


def strips(managers: Sequence[ManagerView]) -> list[dict[str, Any]]:
    """The workers of each pool, by host."""
    names = sorted({pool.name for manager in managers for pool in manager.snapshot.pools})
    found = []
    for name in names:
        hosts = []
        used = slots = 0
        for manager in managers:
            pool = next((one for one in manager.snapshot.pools if one.name == name), None)
            workers = [one for one in manager.snapshot.workers if one.pool == name]
            if pool is not None and workers:
                hosts.append(
                    {"name": manager.host, "session": manager.number, "workers": workers, "slots": pool.concurrency}
                )
                used += sum(one.running for one in workers)
                slots += pool.concurrency * _count(manager, name)
        paused = any(one.paused for manager in managers for one in manager.snapshot.pools if one.name == name)
        found.append({"name": name, "hosts": hosts, "used": used, "slots": slots, "paused": paused})
    return found


def _odd(managers: Sequence[ManagerView]) -> list[dict[str, Any]]:
    """Workers that a person may want to look at."""
    return [
        {"worker": one, "host": manager.host, "session": manager.number, "limit": _memory(manager, one.pool)}
        for manager in managers
        for one in manager.snapshot.workers
        if one.state in (WorkerState.CRASHED, WorkerState.RESTARTING, WorkerState.DRAINING) or one.why or one.crashes
    ]


def _memory(manager: ManagerView, pool: str) -> int:
    return next((one.memory for one in manager.snapshot.pools if one.name == pool), 0)


async def resource_pools(view: View) -> list[dict[str, Any]]:
    """Resource pools with their members in the order of their condition."""
    if capabilities(view.store).resources is None:
        return []
    pools = await view.readings.get("pools", lambda: list_resource_pools(view.store, view.now), _FLOWS_SECONDS)
    found = []
    for pool in pools:
        counts = Counter(one.condition.value for one in pool.members)
        conditions = [name for name in ORDER for _ in range(counts[name])]
        usable = sum(counts[name] for name in ("ready", "busy", "resting"))
        found.append({"pool": pool, "counts": counts, "conditions": conditions, "usable": usable})
    return sorted(found, key=lambda one: one["usable"] - len(one["conditions"]))


async def _schedules(view: View) -> Sequence[Any]:
    found = await view.readings.get("schedules", lambda: list_schedules(view.store), _FIGURES_SECONDS)
    coming = [one for one in found if one.schedule.next_at is not None and not one.schedule.paused]
    return sorted(coming, key=lambda one: one.schedule.next_at or 0)[:_SCHEDULES]


TOPICS = ("queues", "workers", "batches", "resources", "schedules", "happenings", "wishes", "store")
PAGES = (Page("", "Overview", "overview.html", read, TOPICS),)
