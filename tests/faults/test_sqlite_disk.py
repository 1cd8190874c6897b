"""SQLite and its disk: full, and full again with room; and a log that a reader keeps from being reused."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.faults.full_disk import Found
from tests.faults.recording import ROOT


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """One trial on a small disk, which is mounted for that process only and goes with it."""
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command = [*alone, sys.executable, "-m", "tests.faults.full_disk", str(tmp_path_factory.mktemp("disk"))]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Found)


def test_a_full_disk_says_so(found: Found) -> None:
    assert all("is full" in error and "Fix:" in error for error in found.errors), found.errors
    assert "is full" in found.second_store


def test_nothing_is_half_written_and_nothing_acknowledged_is_lost(found: Found) -> None:
    assert found.acknowledged > 300
    assert found.whole == [True, True, True]
    assert found.integrity == "ok"


def test_it_works_again_as_soon_as_there_is_room(found: Found) -> None:
    assert found.settled == 50
