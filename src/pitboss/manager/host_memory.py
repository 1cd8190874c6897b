"""The memory of this host: how much it has, how much each handler's tasks need, and whether another one may start.

What managers learned before is read when this one starts: the need of memory, and how long tasks take.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from pitboss.client.handler_sizes import recall_sizes
from pitboss.engines.figure_protocol import Figures
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import PitbossError
from pitboss.model.placement import MemoryBudget
from pitboss.model.task import Claim

_SHARE = 0.8
# A handler whose tasks need less than this part of the budget is not worth counting what runs.
_HEAVY = 0.125
# A manager does not wait longer for what was learned before it started.
_RECALL_SECONDS = 3.0
# Enough values to say what a handler needs, and few enough for new ones to count.
_RECALLED = 50
# The handlers with the most runs, whose usual duration is published.
_MOST_USUAL = 50


class HostMemory:
    """Learns from the workers. While no handler is heavy, every task may start and nothing is counted."""

    def __init__(self, budget: int | None, running: Callable[[], Iterable[Claim]]) -> None:
        self._budget = MemoryBudget(budget or round(total_memory() * _SHARE) or None)
        self._running = running
        self.tight = False
        # How long a run of a handler took before this manager started, on average.
        self.usual: dict[str, Span] = {}
        self.noted: Callable[[Claim, int], None] = lambda _claim, _size: None

    async def recall(self, figures: Figures | None, now: Moment) -> None:
        """Begin with what managers learned before. Without an answer of the store, it is learned anew."""
        if figures is None:
            return
        with suppress(PitbossError, TimeoutError):
            async with asyncio.timeout(_RECALL_SECONDS):
                found = await recall_sizes(figures, now)
                busiest = sorted(found.items(), key=lambda pair: -pair[1].run.n)[:_MOST_USUAL]
                self.usual = {name: mean for name, known in busiest if (mean := known.run.mean)}
                for handler, known in found.items():
                    for size in known.memory.spread(_RECALLED):
                        self._learn(handler, size)

    def learn(self, claim: Claim, size: int) -> None:
        self._learn(claim.handler, size)
        self.noted(claim, size)

    def _learn(self, handler: str, size: int) -> None:
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
