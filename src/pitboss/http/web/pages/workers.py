"""Workers on all hosts, one worker pool, and one worker with its log and the stacks of its tasks."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pitboss.client.handler_sizes import HandlerSizes
from pitboss.engines.capabilities import capabilities
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.overview import handler_sizes, remote_workers, strips
from pitboss.http.web.view import View
from pitboss.model.errors import NotFound, PitbossError
from pitboss.model.figures import HOUR
from pitboss.model.fleet import ManagerView, WorkerPoolView, live_managers, mean_run, worker_pools, worst_state
from pitboss.model.session import Session
from pitboss.model.snapshot import PoolFigures, WorkerFigures, WorkerState
from pitboss.operate.desired_state import read_desired_state
from pitboss.operate.documents import worker_pools_document
from pitboss.operate.figures import FigureReading, read_figures
from pitboss.operate.stacks import StackReading, read_stack
from pitboss.operate.workers import find_worker_pool, read_worker
from pitboss.telemetry.logs.reading import tail

ROWS = 50
_REMOTE, _HOSTS = 50, 8
_CHOICES = (60, 300, 1000)
_LEVELS = ("info", "warning", "error")
_LEARNED = 12
_FIGURES_SECONDS, _STACK_SECONDS = 5.0, 5.0
# The areas of the chart, from below: the state of a worker and the look of its area.
_AREAS = (
    ("processing", "f-run a1"),
    ("idle", "f-run a0"),
    ("starting", "f-mute a2"),
    ("draining", "f-warn a1"),
    ("restarting", "f-warn a1"),
    ("crashed", "f-bad a1"),
)
TOPICS = ("workers", "wishes", "store")


class Row(NamedTuple):
    """A worker with its pool on its host."""

    worker: WorkerFigures
    pool: PoolFigures
    manager: ManagerView


async def all_workers(view: View) -> Context:
    status = await view.status()
    managers = live_managers(status.sessions, status.now)
    wanted = {name: view.query.get(name, "") for name in ("state", "pool", "host")}
    rows = _rows(worker_pools(managers))
    here = [row for row in rows if _fits(row, wanted["pool"], wanted["host"])]
    chosen = [row for row in here if wanted["state"] in ("", row.worker.state)]
    shown = part(view, chosen)
    remote = await remote_workers(view)
    return {
        "wanted": wanted,
        "states": list(WorkerState),
        "counts_by_state": Counter(row.worker.state.value for row in here),
        "all": len(rows),
        "here": len(here),
        "chosen": len(chosen),
        "strips": strips(managers),
        "pools": _pools(worker_pools(managers)),
        "rows": shown,
        "sizes": await handler_sizes(view),
        "fleet": managers,
        "remote": remote[:_REMOTE],
        "remote_count": len(remote),
        **pages_of(view, len(chosen)),
    }


async def one_pool(view: View) -> Context:
    name, now = view.places["name"], view.now
    views = await find_worker_pool(view.store, now, name)
    rows = _rows(views)
    shown = part(view, rows)
    stored = await read_desired_state(view.store)
    found = await pool_figures(view, name)
    document = worker_pools_document(views, stored)
    return {
        "title": name,
        "name": name,
        "views": views,
        "orders": {key: value for key, value in document["orders"].items() if key.partition("@")[0] == name},
        "pool_hosts": sorted({one.manager.host for one in views}),
        "workers": [row.worker for row in rows],
        "strips": [one for one in strips([one.manager for one in views]) if one["name"] == name],
        "rows": shown,
        "mean_run": mean_run(row.worker for row in rows),
        "sizes": await handler_sizes(view),
        "figures": found,
        "areas": [] if found is None else [(look, found.series.get(f"workers_{state}", ())) for state, look in _AREAS],
        "learned": await _learned(view, [one.pool for one in views]),
        "worst": worst_state(views),
        "logs": [
            await _log(view, one.manager.session, one.manager.snapshot.logs, [worker.name for worker in one.workers])
            for one in views[:_HOSTS]
        ],
        **pages_of(view, len(rows)),
    }


async def one_worker(view: View) -> Context:
    number, name = view.places["session"], view.places["name"]
    if not number.isdecimal() or len(number) > len(str(2**53)):
        raise NotFound("there is no such manager", why=f'"{number[:40]}" is not its number', fix="pitboss ps")
    found = await read_worker(view.store, view.now, int(number), name)
    asked = view.query.get("stack", "")
    stack, fault = await _stack(view, asked, found.worker) if asked else (None, None)
    return {
        "title": name,
        "row": Row(found.worker, found.pool.pool, found.manager),
        "pool_state": found.pool.state,
        "sizes": await handler_sizes(view),
        "log": await _log(view, found.manager.session, found.manager.snapshot.logs, found.worker.name),
        "asked": asked,
        "stack": stack,
        "fault": fault,
        # A stack is of one moment; to read the page again would ask the manager again.
        "topics": () if asked else TOPICS,
    }


def part(view: View, rows: Sequence[Any]) -> Sequence[Any]:
    """The rows of this page of a list that is in memory."""
    first = (_page(view) - 1) * ROWS
    return rows[first : first + ROWS]


def pages_of(view: View, count: int) -> dict[str, Any]:
    """The addresses of the pages before and after this one."""
    page = _page(view)
    following = view.again(page=page + 1) if page * ROWS < count else None
    before = view.again(page=page - 1 if page > 2 else None) if page > 1 else None  # noqa: PLR2004
    return {"previous_page": before, "next_page": following, "first_row": (page - 1) * ROWS + 1, "row_count": count}


async def pool_figures(view: View, name: str) -> FigureReading | None:
    """Those of a worker pool or resource pool in the last hour; None if there are none."""
    if capabilities(view.store).figures is None:
        return None

    async def read() -> FigureReading | None:
        try:
            return await read_figures(view.store, view.now, since=HOUR, pool=name)
        except NotFound:
            return None

    return await view.readings.get(("pool", name), read, _FIGURES_SECONDS)


def _page(view: View) -> int:
    text = view.query.get("page", "")
    return min(max(1, int(text)), 10**6) if text.isascii() and text.isdecimal() and len(text) < ROWS else 1


def _rows(views: Sequence[WorkerPoolView]) -> list[Row]:
    return [Row(worker, one.pool, one.manager) for one in views for worker in one.workers]


def _fits(row: Row, pool: str, host: str) -> bool:
    return pool in ("", row.pool.name) and host in ("", row.manager.host)


def _pools(views: Sequence[WorkerPoolView]) -> dict[str, list[WorkerPoolView]]:
    found: dict[str, list[WorkerPoolView]] = {}
    for one in views:
        found.setdefault(one.pool.name, []).append(one)
    return found


async def _learned(view: View, pools: Sequence[PoolFigures]) -> list[tuple[str, HandlerSizes]]:
    """The handlers of these pools with the most runs."""
    known = await handler_sizes(view)
    queues = None if any(one.queues is None for one in pools) else {name for one in pools for name in one.queues or ()}
    own = {one.name for one in await view.store.handlers() if queues is None or one.queue in queues}
    found = [(name, sizes) for name, sizes in known.items() if queues is None or name in own]
    return sorted(found, key=lambda pair: -pair[1].run.n)[:_LEARNED]


async def _stack(view: View, task: str, worker: WorkerFigures) -> tuple[StackReading | None, PitbossError | None]:
    """Asked of the manager, as GET /tasks/{id}/stack does. Who may not use that route gets nothing."""
    if not view.may("GET", "/tasks/1/stack") or task not in [one.id for one in worker.tasks]:
        return None, NotFound("this worker does not run that task", why="it has ended meanwhile", fix="reload the page")
    return await read_shared_stack(view, task)


async def read_shared_stack(view: View, task: str) -> tuple[StackReading | None, PitbossError | None]:
    """Where the task is, or why its manager does not say: it is asked at most once in a few seconds, by all pages."""
    call = view.call

    async def ask() -> tuple[StackReading | None, PitbossError | None]:
        try:
            return await read_stack(call.store, task, call.server.make_id, by=call.by), None
        except PitbossError as error:
            return None, error

    return await view.readings.get(("stack", task), ask, _STACK_SECONDS)


async def _log(view: View, session: Session, folder: str, worker: str | Sequence[str]) -> dict[str, Any]:
    """The end of the log of a worker or of several, if their manager wrote it on this host."""
    asked, level = view.query.get("lines", ""), view.query.get("level", "")
    level = level if level in _LEVELS else ""
    count = int(asked) if asked in map(str, _CHOICES) else _CHOICES[0]
    told = {
        "host": session.info.host, "folder": folder, "text": None, "fault": "",
        "count": count, "choices": _CHOICES, "level": level, "levels": _LEVELS,
    }  # fmt: skip
    if not folder or not view.call.server.is_here(session.info):
        return told
    try:
        lines = await asyncio.to_thread(tail, Path(folder), worker, count, level)
    except OSError as error:
        return {**told, "fault": error.strerror or type(error).__name__}
    return {**told, "text": "\n".join(lines)}


PAGES = (
    Page("/workers", "Workers", "workers.html", all_workers, TOPICS),
    Page("/pools/{name}", "Worker pool", "pool.html", one_pool, TOPICS),
    Page("/workers/{session}/{name}", "Worker", "worker.html", one_worker, TOPICS),
)
