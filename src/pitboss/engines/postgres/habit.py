"""What the last look at the store said, believed for some calls: spares a statement that would be refused."""

from collections.abc import Hashable, Iterable

_TURNS = 50


class Habit:
    """Only ever a hint: a call that goes by an outdated one is slower, never wrong."""

    def __init__(self) -> None:
        self._left: dict[Hashable, int] = {}

    def note(self, things: Iterable[Hashable]) -> None:
        self._left.update(dict.fromkeys(things, _TURNS))

    def forget(self, things: Iterable[Hashable]) -> None:
        """A look has said that it is not so any more."""
        for thing in things:
            self._left.pop(thing, None)

    def holds(self, things: Iterable[Hashable]) -> bool:
        """Whether one of the things is still believed. Asking wears the belief down, so that it is checked again."""
        found = False
        for thing in things:
            left = self._left.get(thing)
            if left is not None:
                found = True
                if left > 1:
                    self._left[thing] = left - 1
                else:
                    del self._left[thing]
        return found
