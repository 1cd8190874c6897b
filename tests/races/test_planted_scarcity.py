"""The workload with pools and batches, and the checker, find every bug that was planted there."""

import asyncio
import re
from collections.abc import Callable

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import FullStore
from pitboss.testing.checker import Violation
from pitboss.testing.clock import FakeClock
from tests.races.planted import Planted
from tests.races.planted_batches import BATCH_BUGS
from tests.races.planted_pools import POOL_BUGS
from tests.races.scarce_workload import FETCHING, POSTING, ScarceWorkload
from tests.races.workload import PLAIN, told

SEEDS = 60
CLEAN_SEEDS = 100


class ForcefulWorkload(ScarceWorkload):
    """Operators start batches by force, too."""

    forcing = True


class RemoteWorkload(ScarceWorkload):
    """Remote workers hold members, too."""

    remote_queues = ((FETCHING,), (POSTING, PLAIN), (PLAIN,))


def run(
    make: Callable[[FakeClock], FullStore], seed: int, kind: type[ScarceWorkload] = ScarceWorkload
) -> list[Violation]:
    stores: list[FullStore] = []

    async def open_store(clock: FakeClock) -> FullStore:
        # A memory store is the engine object itself: all processes share it.
        if not stores:
            stores.append(make(clock))
        return stores[0]

    return asyncio.run(kind(open_store, seed).run())


@pytest.mark.parametrize("kind", [ScarceWorkload, ForcefulWorkload, RemoteWorkload])
def test_nothing_is_found_where_nothing_is_wrong(kind: type[ScarceWorkload]) -> None:
    for seed in range(CLEAN_SEEDS):
        found = run(lambda clock: MemoryEngine(clock=clock), seed, kind)
        assert not found, told(found, seed)


@pytest.mark.parametrize("bug", [*POOL_BUGS, *BATCH_BUGS], ids=lambda bug: bug.__name__)
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
