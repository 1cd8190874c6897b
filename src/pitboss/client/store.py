"""What a client asks of a store. A process with a store hands in its engine; inside a worker, the manager's channel."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from pitboss.engines.protocol import Page
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo
from pitboss.model.task import NewTask, Placed, Task


class Store(Protocol):
    """The part of an engine that the asking side needs."""

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]: ...

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]: ...

    async def find(
        self, wanted: Filter, *, limit: int = 50, after: str | None = None, oldest_first: bool = False
    ) -> Page: ...

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed: ...

    async def register(self, handlers: Iterable[HandlerInfo]) -> None: ...

    async def handlers(self) -> list[HandlerInfo]: ...
