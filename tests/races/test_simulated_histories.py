"""Seeded histories of the production dispatcher under trouble, in virtual time; each one is judged.

To replay a seed that failed: `Scene(seed).run()`.
"""

import pytest

from tests.races.scene import Scene
from tests.races.workload import told

# `make soak` judges a thousand seeds.
GROUPS = 3
SEEDS_PER_GROUP = 50


@pytest.mark.parametrize("group", range(GROUPS))
def test_promises_hold_under_trouble(group: int) -> None:
    lost = refused = 0
    for seed in range(group * SEEDS_PER_GROUP, (group + 1) * SEEDS_PER_GROUP):
        scene = Scene(seed)
        found = scene.run()
        assert not found, told(found, seed)
        lost += scene.losses.bitten
        refused += scene.refusals()
    # Trouble that did not bite proves nothing.
    assert lost > SEEDS_PER_GROUP
    assert refused > SEEDS_PER_GROUP


def test_a_seed_is_the_same_history_every_time() -> None:
    first, second = Scene(7), Scene(7)
    first.run()
    second.run()
    assert first.history.entries == second.history.entries
