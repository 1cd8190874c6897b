"""SQLite and the loss of power: at any write or sync, nothing acknowledged is lost and nothing is damaged.

Each case records the real engine in a process of its own and crashes the recording; `make soak` does it more often.
"""

from pathlib import Path
from random import Random

import pytest

from tests.faults.disk import Create, Disk, FolderSynced, SyncBegun, SyncDone, Write
from tests.faults.power import Start, lose_power

CRASHES = 51
# As shipped; opened and closed often, so that the log is emptied and removed; emptied while others write; and both by
# two processes.
LOADS = {
    "as shipped": ("--acts", "36"),
    "opened and closed": ("--acts", "12", "--rounds", "4"),
    "checkpoints all the time": ("--acts", "30", "--checkpoint-pages", "60"),
    "two processes": ("--acts", "10", "--rounds", "2", "--processes", "2", "--checkpoint-pages", "100"),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS.keys())
def test_power_loss_loses_nothing(load: tuple[str, ...], tmp_path: Path) -> None:
    losses = lose_power(tmp_path, Random(11), CRASHES, *load)
    assert losses.faults == []
    assert losses.unsynced >= CRASHES / 4
    assert losses.checkpoints >= (5 if "--checkpoint-pages" in load else 1)


def test_power_is_lost_again_after_a_recovery(tmp_path: Path) -> None:
    rng, start = Random(12), Start()
    for _ in range(3):
        losses = lose_power(tmp_path, rng, CRASHES // 3, "--acts", "15", start=start)
        assert losses.faults == []
        start = losses.survivor


@pytest.mark.parametrize("bug", ["synchronous-normal", "answer-before-commit"])
def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    losses = lose_power(tmp_path, Random(13), 60, "--acts", "20", "--weak", bug)
    assert any("acknowledged" in fault for fault in losses.faults)


def test_the_disk_keeps_what_was_synced_and_not_always_the_rest() -> None:
    disk, seen = Disk(), set()
    for op in (Create("a"), FolderSynced(), Write("a", 0, b"old" * 400), SyncBegun("a", 1), SyncDone("a", 1)):
        disk.apply(op)
    disk.apply(Write("a", 0, b"new" * 400))
    for seed in range(200):
        content = disk.without_power(Random(seed))["a"]
        assert len(content) == 1200
        sectors = [content[start : start + 512] for start in (0, 512, 1024)]
        states = tuple("mixed" if b"new" in one and b"old" in one else one[-3:] for one in sectors)
        assert "mixed" not in states
        seen.add(states)
    assert len(seen) == 8


def test_the_disk_forgets_a_name_that_was_not_synced() -> None:
    disk = Disk()
    for op in (Create("a"), Write("a", 0, b"x"), SyncBegun("a", 1), SyncDone("a", 1)):
        disk.apply(op)
    left = [disk.without_power(Random(seed)) for seed in range(20)]
    assert {} in left
    assert {"a": b"x"} in left


def test_a_sync_protects_only_what_was_written_before_it_began() -> None:
    disk = Disk({"a": b""})
    for op in (SyncBegun("a", 1), Write("a", 0, b"late"), SyncDone("a", 1)):
        disk.apply(op)
    assert disk.unsynced() == 1
    assert {"a": b""} in [disk.without_power(Random(seed)) for seed in range(20)]
