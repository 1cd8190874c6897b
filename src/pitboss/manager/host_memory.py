"""The memory of this host: how much it has, how much each handler's tasks need, and whether another one may start."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from pitboss.model.placement import MemoryBudget
from pitboss.model.task import Claim

_SHARE = 0.8
# A handler whose tasks need less than this part of the budget is not worth counting what runs.
_HEAVY = 0.125


class HostMemory:
    """Learns from the workers. While no handler is heavy, every task may start and nothing is counted."""

    def __init__(self, budget: int | None, running: Callable[[], Iterable[Claim]]) -> None:
        self._budget = MemoryBudget(budget or round(total_memory() * _SHARE) or None)
        self._running = running
        self.tight = False

    def learn(self, handler: str, size: int) -> None:
        self._budget.learn(handler, size)
        expected, budget = self._budget.expected(handler) or 0, self._budget.budget
        self.tight = self.tight or (budget is not None and expected > budget * _HEAVY)

    def admits(self, claim: Claim) -> bool:
        return self._budget.admits(claim.handler, [one.handler for one in self._running() if one.id != claim.id])

    def published(self) -> tuple[int, int, dict[str, int]]:
        """For the snapshot: the budget, what is in use of it, and each handler's need; nothing while none is heavy."""
        if not self.tight or self._budget.budget is None:
            return 0, 0, {}
        in_use = self._budget.in_use(one.handler for one in self._running())
        return self._budget.budget, in_use, self._budget.figures()


def total_memory() -> int:
    """Bytes of memory that this host has; 0 if the system does not say."""
    return _meminfo("MemTotal:")


def free_memory() -> int:
    """Bytes that could be used without swapping; 0 if the system does not say."""
    return _meminfo("MemAvailable:")


def _meminfo(name: str) -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0
