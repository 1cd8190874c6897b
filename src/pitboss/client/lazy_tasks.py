"""The tasks of a large call, made as they are asked for, from arguments that were checked before."""

from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import overload

from pitboss.model.canonical import Json
from pitboss.model.task import NewTask

# Fewer than these are made at once, before anything else happens.
LARGE = 500


class Preparing(Sequence[NewTask]):
    """One task for each call's parameters, each made once, whoever asks for it, as if it was made where this was."""

    def __init__(self, make: Callable[[Json], NewTask], params: Sequence[Json]) -> None:
        self._make, self._params, self._within = make, params, copy_context()
        self._made: list[NewTask] = []

    def __len__(self) -> int:
        return len(self._params)

    def __iter__(self) -> Iterator[NewTask]:
        self._make_up_to(len(self))
        return iter(self._made)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...

    @overload
    def __getitem__(self, place: slice) -> list[NewTask]: ...

    def __getitem__(self, place: int | slice) -> NewTask | list[NewTask]:
        wanted = range(len(self))[place]
        if isinstance(wanted, int):
            self._make_up_to(wanted + 1)
            return self._made[wanted]
        self._make_up_to(max(wanted, default=-1) + 1)
        return [self._made[number] for number in wanted]

    def _make_up_to(self, end: int) -> None:
        if len(self._made) < end:
            self._within.run(self._make_some, self._params[len(self._made) : end])

    def _make_some(self, params: Sequence[Json]) -> None:
        self._made += [self._make(one) for one in params]
