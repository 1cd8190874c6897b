"""The workload with partitions, and the checker, find every bug that was planted there."""

import asyncio
import re
from collections.abc import Callable

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import FullStore
from pitboss.testing.checker import Violation
from pitboss.testing.clock import FakeClock
from tests.races.keyed_workload import KeyedWorkload
from tests.races.planted import Planted
from tests.races.planted_owners import OWNER_BUGS
from tests.races.workload import told

SEEDS = 60
CLEAN_SEEDS = 100


def run(make: Callable[[FakeClock], FullStore], seed: int) -> list[Violation]:
    stores: list[FullStore] = []

    async def open_store(clock: FakeClock) -> FullStore:
        # A memory store is the engine object itself: all processes share it.
        if not stores:
            stores.append(make(clock))
        return stores[0]

    return asyncio.run(KeyedWorkload(open_store, seed).run())


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    for seed in range(CLEAN_SEEDS):
        found = run(lambda clock: MemoryEngine(clock=clock), seed)
        assert not found, told(found, seed)


@pytest.mark.parametrize("bug", OWNER_BUGS, ids=lambda bug: bug.__name__)
def test_every_planted_bug_is_found(bug: type[Planted]) -> None:
    """By the promise that it breaks, not by a side effect only."""
    others: set[str] = set()
    for seed in range(SEEDS):
        for violation in run(bug, seed):
            if re.search(bug.breaks, f"{violation.invariant}: {violation.what}"):
                assert violation.lines, "a violation must show what happened"
                return
            others.add(violation.invariant)
    pytest.fail(f"{bug.__name__} was not found in {SEEDS} seeds; found instead: {others or 'nothing'}")
