"""What the command palette offers: places to go to by name, and commands, which ask before they act."""

from typing import Any

from pitboss.http.web.nav import ENTRIES
from pitboss.http.web.pages.overview import failures
from pitboss.http.web.remedies import Act
from pitboss.http.web.view import View
from pitboss.model.filter import by, written
from pitboss.model.fleet import live_managers, worker_pools
from pitboss.model.states import State
from pitboss.operate.status import Status

_MOST, _GROUPS = 300, 20


async def palette(view: View) -> list[dict[str, Any]]:
    """Pages, queues, resource pools, batches and commands, each with its kind and its address."""
    status = await view.status()
    places = [{"kind": kind, "name": name, "go": go} for kind, name, go in _entries(view, status)[:_MOST]]
    return places + [
        {"kind": "command", "name": name, "go": view.url("/command", name=name)} for name in await commands(view)
    ]


async def commands(view: View) -> dict[str, Act]:
    """What may be done now, by its words. All of them ask first."""
    status = await view.status()
    found: dict[str, Act] = {}
    for queue in status.queues:
        act = "resume" if queue.paused else "pause"
        name = f"{act} queue {queue.name}"
        found[name] = Act(f"/queues/{queue.name}/{act}", {}, f"{name.capitalize()}?")
    for pool in sorted({one.pool.name for one in worker_pools(live_managers(status.sessions, status.now))}):
        question = f"Replace the workers of pool {pool} one by one?"
        found[f"restart pool {pool}"] = Act(f"/worker-pools/{pool}/restart", {}, question)
    for group in (await failures(view)).groups[:_GROUPS]:
        name = f"retry {group.error or 'failures'} of {group.handler}"
        question = f"Retry {group.count:,}{'+' if group.more else ''} failed tasks: {group.error} of {group.handler}?"
        found[name] = Act("/tasks/retry", {"filter": group.filter}, question)
    return {name: one for name, one in found.items() if view.may("POST", one.path)}


def _entries(view: View, status: Status) -> list[tuple[str, str, str]]:
    exists = view.exists
    found = [("page", one.label, view.url(one.path)) for one in ENTRIES if exists(one.path) and view.sees(one.path)]
    if exists("/queues/{name}"):
        found += [("queue", one.name, view.url(f"/queues/{one.name}")) for one in status.queues]
    found += [
        ("tasks", f"waiting in {one.name}", view.url("/tasks", q=written(by(state=State.PENDING, queue=one.name))))
        for one in status.queues
    ]
    if exists("/resources/{pool}"):
        found += [("resources", one.name, view.url(f"/resources/{one.name}")) for one in status.resource_pools]
    if exists("/batches/{batch}"):
        batches = [one.batch for one in status.batches]
        found += [("batch", one.name or one.id, view.url(f"/batches/{one.id}")) for one in batches]
    return found
