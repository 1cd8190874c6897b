"""Files that several processes write to at once are rotated without losing, doubling or tearing a line."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pitboss.model.duration import SECOND
from pitboss.telemetry.logs import files
from pitboss.telemetry.logs.files import Appender, log_files, prune_logs, worker_file

NOW = 1_700_000_000.0
DAY = 86_400

WRITER = """
import sys
from pathlib import Path
from pitboss.telemetry.logs import files
from pitboss.telemetry.logs.files import Appender
from pitboss.telemetry.logs.lines import encoded, stamp
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
out = Appender(path, size=20_000, age=86_400_000_000, kept=10_000)
sys.stdin.read(1)
for number in range(count):
    now = 1_700_000_000 + number / 1000
    fields = {"time": stamp(now), "level": "info", "event": f"{name}-{number}", "pad": "x" * (number % 700)}
    out.write(encoded(fields), now)
"""


def appender(path: Path, *, size: int = 100, age: int = DAY, kept: int = 100) -> Appender:
    return Appender(path, size=size, age=age * SECOND, kept=kept)


def contents(folder: Path) -> list[list[str]]:
    """The lines of each file, the oldest file first."""
    return [file.path.read_text().splitlines() for file in log_files(folder)]


def test_a_full_file_is_rotated(tmp_path: Path) -> None:
    out = appender(worker_file(tmp_path, "a-1"))
    for number in range(5):
        out.write(b"%d" % number + b"x" * 38 + b"\n", NOW + number)
    assert [[line[0] for line in lines] for lines in contents(tmp_path)] == [["0", "1"], ["2", "3"], ["4"]]
    first, second, current = log_files(tmp_path)
    assert (first.name, first.rotated, current.rotated) == ("a-1", "20231114T221322.000000", "")
    assert second.path.name == "worker-a-1.log.20231114T221324.000000"


def test_a_line_that_is_longer_than_a_file_has_one_to_itself(tmp_path: Path) -> None:
    out = appender(worker_file(tmp_path, "a-1"), size=10)
    for text in (b"x" * 50, b"y" * 50):
        out.write(text + b"\n", NOW)
    assert contents(tmp_path) == [["x" * 50], ["y" * 50]]


def test_an_old_file_is_rotated_also_by_a_later_worker(tmp_path: Path) -> None:
    path = worker_file(tmp_path, "a-1")
    line = b'{"time":"2023-11-14T22:13:20.000Z","event":"%d"}\n'
    appender(path, size=10_000).write(line % 1, NOW)
    later = appender(path, size=10_000)
    later.write(line % 2, NOW + DAY - 1)
    assert len(log_files(tmp_path)) == 1
    later.write(line % 3, NOW + DAY + 1)
    assert [len(lines) for lines in contents(tmp_path)] == [2, 1]


def test_only_a_limited_number_of_rotated_files_is_kept(tmp_path: Path) -> None:
    out, other = (appender(worker_file(tmp_path, name), size=10, kept=3) for name in ("a-1", "a-11"))
    for number in range(10):
        out.write(b"%d 345678\n" % number, NOW + number)
        other.write(b"%d 345678\n" % number, NOW + number)
    assert [lines[0][0] for lines in contents(tmp_path)] == ["6", "7", "8", "9"] * 2


def test_two_that_are_rotated_in_the_same_moment_have_two_names(tmp_path: Path) -> None:
    out = appender(worker_file(tmp_path, "a-1"), size=10)
    for number in range(4):
        out.write(b"%d 345678\n" % number, NOW)
    assert [lines[0][0] for lines in contents(tmp_path)] == ["0", "1", "2", "3"]


def test_a_writer_whose_file_was_rotated_by_another_goes_on_in_the_new_one(tmp_path: Path) -> None:
    path = worker_file(tmp_path, "a-1")
    old, new = appender(path), appender(path)
    old.write(b"o" * 60 + b"\n", NOW)
    new.write(b"n" * 60 + b"\n", NOW + 1)
    old.write(b"p" * 30 + b"\n", NOW + 2)
    assert [[line[0] for line in lines] for lines in contents(tmp_path)] == [["o"], ["n", "p"]]


def test_a_line_on_its_way_lands_in_the_rotated_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = worker_file(tmp_path, "a-1")
    slow, quick = appender(path), appender(path)
    slow.write(b"s" * 60 + b"\n", NOW)
    write = os.write

    def overtaken(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        quick.write(b"q" * 60 + b"\n", NOW + 1)
        return write(file, data)

    monkeypatch.setattr(os, "write", overtaken)
    slow.write(b"t\n", NOW + 1)
    assert [[line[0] for line in lines] for lines in contents(tmp_path)] == [["s", "t"], ["q"]]


def test_a_file_that_another_has_just_begun_is_not_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = worker_file(tmp_path, "a-1")
    slow, quick = appender(path), appender(path)
    slow.write(b"s" * 90 + b"\n", NOW)
    locked = files._locked

    def overtaken(lock: int) -> bool:
        monkeypatch.setattr(files, "_locked", locked)
        quick.write(b"q" * 20 + b"\n", NOW + 1)
        return locked(lock)

    monkeypatch.setattr(files, "_locked", overtaken)
    slow.write(b"t" * 20 + b"\n", NOW + 1)
    assert [[line[0] for line in lines] for lines in contents(tmp_path)] == [["s"], ["q", "t"]]


def test_no_writer_waits_for_another_one_that_rotates(tmp_path: Path) -> None:
    out = appender(worker_file(tmp_path, "a-1"))
    out.write(b"x" * 90 + b"\n", NOW)
    with (tmp_path / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        out.write(b"y" * 20 + b"\n", NOW)
        assert len(log_files(tmp_path)) == 1
    out.write(b"z" * 20 + b"\n", NOW)
    assert [[line[0] for line in lines] for lines in contents(tmp_path)] == [["x", "y"], ["z"]]


def test_a_removed_file_and_a_removed_folder_come_back(tmp_path: Path) -> None:
    path = worker_file(tmp_path / "logs", "a-1")
    out = appender(path)
    out.write(b"one\n", NOW)
    path.unlink()
    out.write(b"two\n", NOW)
    assert path.read_bytes() == b"two\n"
    path.unlink()
    path.parent.rmdir()
    out.write(b"three\n", NOW)
    assert path.read_bytes() == b"three\n"


def test_a_line_cut_off_by_a_full_disk_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = worker_file(tmp_path, "a-1")
    out = appender(path)
    out.write(b"whole\n", NOW)
    write, room = os.write, iter([3])

    def full(file: int, data: bytes) -> int:
        left = next(room, None)
        if left is None:
            raise OSError(errno.ENOSPC, "full")
        return write(file, data[:left])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="full"):
        out.write(b"halved\n", NOW)
    monkeypatch.setattr(os, "write", write)
    out.write(b"next\n", NOW)
    assert path.read_bytes() == b"whole\nhal\nnext\n"


def test_processes_that_write_to_one_file_lose_and_tear_nothing(tmp_path: Path) -> None:
    """Like a draining worker and its successor, only faster: three writers at once, a new file every fifty lines."""
    path, count = worker_file(tmp_path, "a-1"), 1500
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(count)], stdin=subprocess.PIPE)
        for name in ("old", "new", "third")
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b".")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = [[msgspec.json.decode(line)["event"] for line in lines] for lines in contents(tmp_path)]
    events = [event for lines in found for event in lines]
    assert len(found) > 40
    assert len(events) == len(set(events)) == 3 * count


def keep(folder: Path, name: str, size: int, days_old: float, rotated: str = "") -> Path:
    path = worker_file(folder, name)
    path = path.with_name(f"{path.name}.{rotated}") if rotated else path
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - days_old * DAY,) * 2)
    return path


def pruned(folder: Path, total_size: int = 10_000, days: int = 14) -> list[str]:
    found = prune_logs(folder, total_size=total_size, age=days * DAY * SECOND, now=round(NOW * SECOND))
    assert not any(path.exists() for path in found)
    return sorted(path.name.removeprefix("worker-") for path in found)


def test_what_is_too_old_is_removed(tmp_path: Path) -> None:
    keep(tmp_path, "a-1", 10, 15, "20231030T000000.000000")
    keep(tmp_path, "a-1", 10, 13, "20231101T000000.000000")
    keep(tmp_path, "gone-1", 10, 20)
    keep(tmp_path, "a-1", 10, 0)
    (tmp_path / "mine.log").write_text("not ours")
    os.utime(tmp_path / "mine.log", (0, 0))
    assert pruned(tmp_path) == ["a-1.log.20231030T000000.000000", "gone-1.log"]
    assert (tmp_path / "mine.log").exists()


def test_the_oldest_rotated_files_are_removed_first_and_current_ones_last(tmp_path: Path) -> None:
    keep(tmp_path, "a-1", 100, 3, "20231111T000000.000000")
    keep(tmp_path, "b-1", 100, 2, "20231112T000000.000000")
    keep(tmp_path, "a-1", 100, 1, "20231113T000000.000000")
    keep(tmp_path, "a-1", 100, 5)
    keep(tmp_path, "b-1", 100, 0)
    assert pruned(tmp_path, 500) == []
    assert pruned(tmp_path, 350) == ["a-1.log.20231111T000000.000000", "b-1.log.20231112T000000.000000"]
    assert pruned(tmp_path, 250) == ["a-1.log.20231113T000000.000000"]
    assert pruned(tmp_path, 150) == ["a-1.log"]


def test_a_writer_goes_on_after_its_file_was_pruned(tmp_path: Path) -> None:
    out = appender(worker_file(tmp_path, "a-1"))
    out.write(b"one\n", NOW)
    assert pruned(tmp_path, 0) == ["a-1.log"]
    out.write(b"two\n", NOW)
    assert contents(tmp_path) == [["two"]]


def test_a_folder_that_is_not_there_has_no_logs(tmp_path: Path) -> None:
    assert log_files(tmp_path / "none") == []
    assert prune_logs(tmp_path / "none", total_size=1, age=1, now=1) == []


def test_a_file_with_a_name_of_its_own_is_rotated_found_and_pruned_like_the_others(tmp_path: Path) -> None:
    path = worker_file(tmp_path, "scrapers-1", "state_worker_0.log")
    assert path == tmp_path / "state_worker_0.log"
    out = appender(path, size=10, kept=2)
    for number in range(5):
        out.write(b"%d\n" % number * 4, NOW + number)
    appender(worker_file(tmp_path, "scrapers-2", "state_worker_1.log")).write(b"other\n", NOW)
    (tmp_path / "state_worker_2.log").write_text("of the app itself")
    found = log_files(tmp_path)
    assert [(file.name, bool(file.rotated)) for file in found] == [
        ("scrapers-1", True),
        ("scrapers-1", True),
        ("scrapers-1", False),
        ("scrapers-2", False),
    ]
    assert found[2].path == path
    assert {file.base for file in found} == {"state_worker_0.log", "state_worker_1.log"}
    for file in found:
        os.utime(file.path, (0, 0))
    os.utime(tmp_path / "state_worker_2.log", (0, 0))
    assert len(pruned(tmp_path)) == 4
    assert (tmp_path / "state_worker_2.log").exists()


def test_a_file_is_noted_once_and_belongs_to_the_worker_that_was_noted_last(tmp_path: Path) -> None:
    for worker in ("a-1", "a-1", "b-1", "b-1"):
        worker_file(tmp_path / "logs", worker, "x.log").write_text("line\n")
    assert [file.name for file in log_files(tmp_path / "logs")] == ["b-1"]
    assert (tmp_path / "logs" / ".worker-files").read_text() == "x.log a-1\nx.log b-1\n"


def test_a_folder_that_cannot_be_written_does_not_stop_the_worker(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert worker_file(tmp_path / "file", "a-1", "x.log").name == "x.log"
