"""State that lives with a worker, such as a browser: made once there, handed to handlers, closed at the end."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar, cast

from pitboss.model.duration import Span, Time, span

T = TypeVar("T")


class StatePlaceholder:
    """A parameter's default, until the worker puts the state in its place."""

    def __init__(self, state: "WorkerState[Any]") -> None:
        self.state = state

    def __repr__(self) -> str:
        return f"<{self.state.name} of the worker>"


class WorkerState(Generic[T]):
    """A declared state. `page: Browser = browser()` asks for it in a handler's parameters."""

    def __init__(
        self,
        make: Callable[[], AsyncIterator[T]] | Callable[[], AbstractAsyncContextManager[T]],
        *,
        max_uses: int | None = None,
        max_age: Time | None = None,
    ) -> None:
        self.name = getattr(make, "__name__", "state")
        self._make = make
        self.max_uses = max_uses
        self.max_age: Span | None = None if max_age is None else span(max_age, what="max_age")

    def __call__(self) -> T:
        # The type is a promise: the worker puts the value in its place.
        return cast("T", StatePlaceholder(self))

    def open(self) -> AbstractAsyncContextManager[T]:
        """A new value of this state."""
        made = self._make()
        if isinstance(made, AbstractAsyncContextManager):
            return made
        return asynccontextmanager(cast("Callable[[], AsyncIterator[T]]", self._make))()
