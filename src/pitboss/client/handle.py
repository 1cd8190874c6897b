"""What an enqueue returns: the way to a task's end."""

from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Generic, TypeVar

from pitboss.client.app_core import LIMIT, AppCore
from pitboss.client.client import Client
from pitboss.client.options import Tags, task_change
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Time, span
from pitboss.model.errors import TaskFailed
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Placed, Task

R = TypeVar("R")


class Handle(Generic[R]):
    """One enqueued task. `created` is False if it met a task with its unique key; `id` is then that task's."""

    # A large call makes as many of these as it has tasks.
    __slots__ = ("__weakref__", "_app", "_decode", "created", "id", "placed")

    def __init__(self, app: AppCore, placed: Placed, decode: Callable[[str], R] | None) -> None:
        self._app, self._decode = app, decode
        self.id: TaskId = placed.id
        self.created = placed.created
        self.placed = placed

    def __repr__(self) -> str:
        return f"<Handle {self.id} {'created' if self.created else 'existing'}>"

    def task(self) -> Task:
        """The task as it is now."""
        return self._app.run(self.atask(), what="reading the task")

    async def atask(self) -> Task:
        return await self._app.aask(lambda client: client.get(self.id))

    def result(self, timeout: Time | None = None) -> R:
        """Wait for the end and return what the handler returned; `TaskFailed` if it failed or was cancelled."""
        seconds = inf if timeout is None else span(timeout, what="timeout") / SECOND + LIMIT
        return self._value(self._app.run(self._finished(timeout), limit=seconds, what="waiting for the result"))

    async def aresult(self, timeout: Time | None = None) -> R:
        return self._value(await self._finished(timeout))

    def cancel(self, reason: str = "") -> State:
        """Cancel it, or ask it to stop if it runs; its state afterwards."""
        return self._app.run(self.acancel(reason), what="cancelling the task")

    async def acancel(self, reason: str = "") -> State:
        def cancel(client: Client) -> Coroutine[Any, Any, State]:
            return self._app.acting(client, "tasks cancel", self.id, reason=reason).cancel(self.id, reason=reason)

        return await self._app.aask(cancel)

    def change(self, *, priority: int | None = None, tag: Tags = (), untag: Tags = ()) -> Task:
        """Give it another priority, or add and remove tags, while it waits; the task afterwards. `Refused` if it runs
        or has ended."""
        return self._app.run(self.achange(priority=priority, tag=tag, untag=untag), what="changing the task")

    async def achange(self, *, priority: int | None = None, tag: Tags = (), untag: Tags = ()) -> Task:
        change = task_change(priority, tag, untag)

        def changed(client: Client) -> Coroutine[Any, Any, Task]:
            details = {"priority": priority, "tag": change.tag, "untag": change.untag}
            return self._app.acting(client, "tasks change", self.id, **details).change(self.id, change)

        return await self._app.aask(changed)

    async def _finished(self, timeout: Time | None) -> Task:
        limit = None if timeout is None else span(timeout, what="timeout")
        return await self._app.aask(lambda client: client.finished(self.id, timeout=limit))

    def _value(self, task: Task) -> R:
        if task.state is not State.COMPLETED:
            raise TaskFailed(
                f"task {task.id} ({task.handler}) {'failed' if task.state is State.FAILED else 'was cancelled'}",
                why=task.error.message if task.error else task.reason or "no reason was given",
                fix="look at its attempts; retry it when the cause is gone",
            )
        text = task.result or "null"
        value: R = self._decode(text) if self._decode else from_json(text)
        return value
