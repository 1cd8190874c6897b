"""Whether a host has the memory for one more task, from the memory that its handler's tasks have used so far."""

from collections.abc import Iterable

from pitboss.model.quantiles import Quantiles

SHARE = 0.95
# The reason of a task that was sent back because its host has no memory for it.
NO_MEMORY = "waiting for memory on a host"
# A handler's figure is computed again after an eighth more values: that sorts the buckets, and tasks come fast.
_READ_AGAIN = 8
# The need of a new handler is unknown. One byte lets it start; zero would let a huge task start beside it.
_UNKNOWN = 1


def admits(expected: int, in_use: int, budget: int) -> bool:
    """A task that is larger than the whole budget runs alone; otherwise it would never run."""
    return in_use <= 0 or in_use + expected <= budget


class MemoryBudget:
    """The memory for all tasks together, `budget` bytes (None is without limit), and the need of each handler."""

    def __init__(self, budget: int | None) -> None:
        self.budget = budget
        self._known: dict[str, _Known] = {}

    def expected(self, handler: str) -> int | None:
        """The memory that 95 % of its tasks do not exceed; None before the first was measured."""
        known = self._known.get(handler)
        return known.expected if known else None

    def learn(self, handler: str, size: int) -> None:
        """Record the memory, in bytes, that a task of this handler has used."""
        if handler not in self._known:
            self._known[handler] = _Known()
        self._known[handler].learn(size)

    def admits(self, handler: str, running: Iterable[str], ahead: Iterable[str] = ()) -> bool:
        """Whether a task may start beside the running ones; all are given by their handlers.

        `ahead` are tasks that were refused and have waited too long to be passed: their memory is kept free, or an
        endless stream of small tasks would keep a large one out.
        """
        if self.budget is None:
            return True
        in_use = self.in_use(running) + self.in_use(ahead)
        return admits(self._counted(handler), in_use, self.budget)

    def in_use(self, running: Iterable[str]) -> int:
        """What these tasks, given by their handlers, are expected to need together."""
        return sum(map(self._counted, running))

    def figures(self) -> dict[str, int]:
        """The expected memory of every handler that was measured."""
        return {handler: known.expected for handler, known in self._known.items()}

    def _counted(self, handler: str) -> int:
        known = self._known.get(handler)
        return known.expected if known else _UNKNOWN


class _Known:
    def __init__(self) -> None:
        self.expected = _UNKNOWN
        self._sizes = Quantiles()
        self._unread = 0

    def learn(self, size: int) -> None:
        self._sizes.add(size)
        self._unread += 1
        if self._unread * _READ_AGAIN >= self._sizes.heard:
            self.expected = self._sizes.quantile(SHARE) or _UNKNOWN
            self._unread = 0
