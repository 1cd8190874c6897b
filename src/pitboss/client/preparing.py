"""The tasks of a large call, made as they are asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from typing import Any, overload

from pitboss.model.task import NewTask

# Fewer than these are made at once, before anything else happens.
LARGE = 500


class Preparing(Sequence[NewTask]):
    """One task for each call, each made once, whoever asks for it, as if it was made where this was."""

    def __init__(self, make: Callable[[Mapping[str, Any]], NewTask], calls: Sequence[Mapping[str, Any]]) -> None:
        self._make, self._calls, self._within = make, calls, copy_context()
        self._made: list[NewTask] = []

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[NewTask]:
        self._make_up_to(len(self))
        return iter(self._made)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...

    @overload
    def __getitem__(self, place: slice) -> list[NewTask]: ...

    def __getitem__(self, place: int | slice) -> NewTask | list[NewTask]:
        wanted = range(len(self))[place]
        wanted = range(wanted, wanted + 1) if isinstance(wanted, int) else wanted
        self._make_up_to(max(wanted, default=-1) + 1)
        return self._made[place]

    def _make_up_to(self, end: int) -> None:
        if len(self._made) < end:
            self._within.run(self._make_some, self._calls[len(self._made) : end])

    def _make_some(self, calls: Sequence[Mapping[str, Any]]) -> None:
        for call in calls:
            self._made.append(self._make(call))
