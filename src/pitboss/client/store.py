"""What a client asks of a store. A process with a store hands in its engine; inside a worker, the manager's channel."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo
from pitboss.model.task import NewTask, Placed, Task


class Store(Protocol):
    """The part of an engine that the asking side needs."""

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]: ...

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]: ...

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed: ...

    async def register(self, handlers: Iterable[HandlerInfo]) -> None: ...

    async def handlers(self) -> list[HandlerInfo]: ...
