"""What an enqueue returns: the way to a task's end."""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from pitboss.client.client import Client
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Time, span
from pitboss.model.errors import TaskFailed
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Placed, Task

R = TypeVar("R")
T = TypeVar("T")
_STORE_LIMIT = 15.0


class Asking(Protocol):
    """How a handle reaches its store."""

    def ask(self, work: Callable[[Client], Coroutine[Any, Any, T]], *, limit: float, what: str) -> T: ...

    async def aask(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T: ...


class Handle(Generic[R]):
    """One enqueued task. `created` is False if it met a task with its unique key; `id` is then that task's."""

    # A large call makes as many of these as it has tasks.
    __slots__ = ("__weakref__", "_asking", "_decode", "created", "id", "placed")

    def __init__(self, asking: Asking, placed: Placed, decode: Callable[[str], R] | None) -> None:
        self._asking, self._decode = asking, decode
        self.id: TaskId = placed.id
        self.created = placed.created
        self.placed = placed

    def __repr__(self) -> str:
        return f"<Handle {self.id} {'created' if self.created else 'existing'}>"

    def task(self) -> Task:
        """The task as it is now."""
        return self._asking.ask(lambda client: client.get(self.id), limit=_STORE_LIMIT, what="reading the task")

    async def atask(self) -> Task:
        return await self._asking.aask(lambda client: client.get(self.id))

    def result(self, timeout: Time | None = None) -> R:
        """Wait for the end and return what the handler returned; `TaskFailed` if it failed or was cancelled."""
        limit = None if timeout is None else span(timeout, what="timeout")
        work = _finished(self.id, limit)
        seconds = float("inf") if limit is None else limit / SECOND + _STORE_LIMIT
        return self._value(self._asking.ask(work, limit=seconds, what="waiting for the result"))

    async def aresult(self, timeout: Time | None = None) -> R:
        limit = None if timeout is None else span(timeout, what="timeout")
        return self._value(await self._asking.aask(_finished(self.id, limit)))

    def cancel(self, reason: str = "") -> State:
        """Cancel it, or ask it to stop if it runs; its state afterwards."""
        work = _cancelled(self.id, reason)
        return self._asking.ask(work, limit=_STORE_LIMIT, what="cancelling the task")

    async def acancel(self, reason: str = "") -> State:
        return await self._asking.aask(_cancelled(self.id, reason))

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


def _finished(task: TaskId, limit: int | None) -> Callable[[Client], Coroutine[Any, Any, Task]]:
    return lambda client: client.finished(task, timeout=limit)


def _cancelled(task: TaskId, reason: str) -> Callable[[Client], Coroutine[Any, Any, State]]:
    return lambda client: client.cancel(task, reason=reason)
