"""What the command palette offers: places to go to, by name."""

from typing import Any

from pitboss.http.web.nav import ENTRIES
from pitboss.http.web.view import View
from pitboss.model.filter import by, written
from pitboss.model.states import State
from pitboss.operate.status import Status

_MOST = 300


async def palette(view: View) -> list[dict[str, Any]]:
    """Pages, queues, resource pools and batches, each with its kind and its address."""
    status = await view.status()
    return [{"kind": kind, "name": name, "go": go} for kind, name, go in _entries(view, status)[:_MOST]]


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
