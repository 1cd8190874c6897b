"""Many processes on one SQLite file: no process sees a locked database, and each gets a fair share of the turns."""

from pathlib import Path

from tests.faults.line import complaints, stand_in_line, table

# `make soak` goes on for a minute.
SECONDS = 5


def test_eight_processes_share_one_file(disk: Path) -> None:
    turns = stand_in_line(disk, SECONDS)
    assert complaints(turns) == [], "\n" + table(turns)
