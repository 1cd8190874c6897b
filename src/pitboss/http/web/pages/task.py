"""One task: its state and why, its life, its runs, and what can be done with it."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pitboss.engines.capabilities import capabilities
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.workers import read_shared_stack
from pitboss.http.web.remedies import helps
from pitboss.http.web.view import View
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.fleet import manager_view
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.task import Attempt, Task
from pitboss.model.waiting import spoken_place, spoken_start
from pitboss.operate.documents import stack_document
from pitboss.operate.origin import origin_lines
from pitboss.operate.task_life import life, read_relatives, worker_of
from pitboss.operate.tasks import TaskPage, read_task
from pitboss.telemetry.logs.lines import as_text
from pitboss.telemetry.logs.reading import Entry, task_lines

_SECONDS = 5.0
_LINES = 100
# Params that are longer are not put into a form.
_EDITABLE = 20_000


async def read(view: View) -> Context:
    now = view.now
    page = await _found(view)
    sessions = await view.store.sessions()
    task = msgspec.structs.replace(page.task, worker=worker_of(page.task, sessions))
    relatives = await view.readings.get(("relatives", task.id), lambda: read_relatives(view.store, task, now), _SECONDS)
    hosts = {one.number: one.info.host for one in sessions}
    stack = await _stack(view, task)
    return {
        "title": task.handler,
        "t": task,
        "why": page.why,
        "helps": helps(view, page.why.helps),
        "limit": task.timeout or view.call.server.types.policy(task.handler).timeout,
        "waits": task.state.waiting,
        "place": spoken_place(page.why),
        "starts": spoken_start(page.why) if page.why.gates else "",
        "origin": origin_lines(task),
        "life": life(task, page.attempts, page.why, hosts, now),
        "runs": page.attempts[::-1],
        "host_of": hosts,
        "relatives": relatives,
        "batch": await _batch(view, task),
        "again": await _again(view, task),
        "long": len(task.params) > _EDITABLE,
        "stack": stack,
        "logs": await _logs(view, task, page.attempts, sessions),
    }


async def _found(view: View) -> TaskPage:
    try:
        return await read_task(view.store, view.places["task"], view.now, pages=1)
    except InvalidInput as error:
        raise NotFound(error.what, why=error.why, fix=error.fix) from error


async def _batch(view: View, task: Task) -> Any:
    batches = capabilities(view.store).batches
    if task.batch is None or batches is None:
        return None
    return next(iter(await batches.batches([task.batch])), None)


async def _again(view: View, task: Task) -> dict[str, Any] | None:
    """The form that enqueues a task like this one; None if its type is not known, or the params are too long."""
    if len(task.params) > _EDITABLE:
        return None
    try:
        kind = await view.call.server.types.find(task.handler)
    except NotFound:
        return None
    return {"remote": kind.info.remote}


async def _stack(view: View, task: Task) -> dict[str, Any] | None:
    """Where it is, if that was asked for."""
    asked = "stack" in view.query and task.state is State.RUNNING
    if not asked or not view.may("GET", f"/tasks/{task.id}/stack"):
        return None
    found, fault = await read_shared_stack(view, task.id)
    if found is None:
        return {"fault": fault}
    return {"fault": None, **stack_document(found), "moment": found.stack.at}


async def _logs(view: View, task: Task, attempts: Sequence[Attempt], sessions: Sequence[Session]) -> dict[str, Any]:
    """The last lines that this host has. Logs stay on the host of their manager; others are only named."""
    ran = {one.session for one in attempts} | {task.session}
    managers = [manager_view(one) for one in sessions if one.info.kind == "manager"]
    server = view.call.server
    folders = {one.snapshot.logs for one in managers if server.is_here(one.session.info) and one.snapshot.logs}
    elsewhere = sorted({one.host for one in managers if one.number in ran and not server.is_here(one.session.info)})
    workers = {one.worker or "" for one in attempts} | {task.worker or "", "manager"}
    lines: list[Entry] = []
    if task.started_at is not None or attempts:
        wall = task.created_at + server.clock.wall() - view.now
        for folder in sorted(folders):
            lines += await view.readings.get(
                ("logs", folder, task.id),
                partial(asyncio.to_thread, task_lines, Path(folder), task.id, wall, workers, most=_LINES),
                _SECONDS,
            )
    told = [
        {
            "level": one.fields.get("level"),
            "at": _moment(one.time),
            "text": as_text(one.fields, "", width=0).strip(),
        }
        for one in lines
    ]
    return {"lines": told, "elsewhere": elsewhere, "here": server.host, "known": bool(folders)}


def _moment(text: str) -> Moment | None:
    """The time of a line; None if it is none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND)
    except ValueError:
        return None


PAGES = (Page("/tasks/{task}", "Task", "task.html", read, ("queues", "workers", "store")),)
