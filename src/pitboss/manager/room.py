"""The memory of this host: what each handler's tasks have needed, and whether another one may start now."""

from collections.abc import Callable, Iterable

from pitboss.manager.vitals import host_memory
from pitboss.model.placement import MemoryBudget
from pitboss.model.task import Claim

_SHARE = 0.8
# Below this part of the budget a task is not worth the look at everything that runs.
_HEAVY = 0.125


class HostRoom:
    """Learns from the workers. As long as no handler is heavy, everything may start and nothing is counted."""

    def __init__(self, budget: int | None, running: Callable[[], Iterable[Claim]]) -> None:
        self._room = MemoryBudget(budget or round(host_memory() * _SHARE) or None)
        self._running = running
        self.tight = False

    def learn(self, handler: str, size: int) -> None:
        self._room.learn(handler, size)
        expected, budget = self._room.expected(handler) or 0, self._room.budget
        self.tight = self.tight or (budget is not None and expected > budget * _HEAVY)

    def admits(self, claim: Claim) -> bool:
        return self._room.admits(claim.handler, [one.handler for one in self._running() if one.id != claim.id])

    def figures(self) -> dict[str, int]:
        """What each handler's tasks are expected to need, in bytes."""
        return self._room.figures()
