"""Managers come, go, die and stand still: each target is done once, no key has two live owners, and few keys move.

`make soak ARGS=simulated-partitions` judges two thousand seeds. To replay one: `PartitionWorld(seed).run()`.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from pitboss.dispatch.claimer import Claimer
from pitboss.dispatch.worker_group import WorkerLoad
from tests.races.planted import Planted
from tests.races.planted_owners import MovesAtOnce, NumbersAreTakenFromTheLiving
from tests.simulate.partition_world import PartitionWorld

GROUPS = 4
SEEDS_PER_GROUP = 10
PLANTED_SEEDS = 30


@pytest.mark.parametrize("group", range(GROUPS))
def test_each_target_is_done_once_and_no_key_has_two_live_owners(group: int) -> None:
    measured: Counter[str] = Counter()
    for seed in range(group * SEEDS_PER_GROUP, (group + 1) * SEEDS_PER_GROUP):
        world = PartitionWorld(seed)
        assert world.run() == [], f"seed {seed}"
        measured += world.measured
    # What was not measured proves nothing.
    assert min(measured[what] for what in ("join", "restart", "kill")) >= SEEDS_PER_GROUP // 3
    assert measured["moved"] >= 10 * SEEDS_PER_GROUP


@pytest.mark.parametrize("bug", [MovesAtOnce, NumbersAreTakenFromTheLiving])
def test_a_planted_double_owner_is_found(bug: type[Planted]) -> None:
    for seed in range(PLANTED_SEEDS):
        if any("two live owners" in fault for fault in PartitionWorld(seed, bug).run()):
            return
    pytest.fail(f"{bug.__name__} was not found in {PLANTED_SEEDS} seeds")


def test_a_successor_that_asks_while_its_predecessor_finishes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(claimer: Claimer) -> Callable[[WorkerLoad], int | None]:
        return lambda load: claimer.slot_numbers.asking(load.group.pool, load.place)

    monkeypatch.setattr(Claimer, "_numbering", at_once)
    for seed in range(PLANTED_SEEDS):
        if any("two live owners" in fault for fault in PartitionWorld(seed).run()):
            return
    pytest.fail(f"it was not found in {PLANTED_SEEDS} seeds")


def test_a_seed_is_the_same_history_every_time() -> None:
    first, second = PartitionWorld(3), PartitionWorld(3)
    first.run()
    second.run()
    assert first.history.entries == second.history.entries
