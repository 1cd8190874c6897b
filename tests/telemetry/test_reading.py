"""Lines are read sorted by time, filtered, and once each, even if files are renamed at the same time."""

import random
from pathlib import Path
from typing import Any

import pytest

from pitboss.model.duration import SECOND
from pitboss.telemetry.logs import reading
from pitboss.telemetry.logs.files import Appender, log_files, manager_file, worker_file
from pitboss.telemetry.logs.lines import encoded, stamp
from pitboss.telemetry.logs.reading import Entry, Reader, Wanted, task_lines

NOW = 1_700_000_000.0
FIRST, SECOND_TASK = "01900000-0000-7000-8000-0000000000aa", "01900000-0000-7000-8000-0000000000bb"


class Book:
    """Writers for several names; each line has a later time."""

    def __init__(self, folder: Path, *, size: int = 1_000_000, kept: int = 10_000) -> None:
        self.folder, self._size, self._kept = folder, size, kept
        self._writers: dict[str, Appender] = {}
        self.count = 0

    def write(self, name: str, **fields: Any) -> None:
        path = manager_file(self.folder) if name == "manager" else worker_file(self.folder, name)
        fresh = Appender(path, size=self._size, age=10**15, kept=self._kept)
        now = NOW + self.count
        line = {"time": stamp(now), "level": "info", "logger": "shop", "event": f"{self.count}", **fields}
        self._writers.setdefault(name, fresh).write(encoded(line), now)
        self.count += 1

    def reader(self, **wanted: Any) -> Reader:
        return Reader(self.folder, lambda name: name != "manager", Wanted(**wanted))


def told(entries: Any) -> list[int]:
    return [int(entry.fields["event"]) for entry in entries]


@pytest.fixture(params=[1_000_000, 300], ids=["one file", "many files"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Book:
    found = Book(tmp_path, size=request.param)
    for number in range(30):
        found.write(("a-1", "b-1", "manager")[number % 3])
    return found


WORKERS = [number for number in range(30) if number % 3 != 2]


def test_the_last_lines_of_all_workers_by_time(book: Book) -> None:
    assert told(book.reader().last(5)) == WORKERS[-5:]
    assert told(book.reader().last(1000)) == WORKERS
    assert book.reader().last(0) == []


def test_all_lines_by_time(book: Book) -> None:
    assert told(book.reader().all()) == WORKERS


def test_only_since_a_moment(book: Book) -> None:
    since = round((NOW + 20) * SECOND)
    assert told(book.reader(since=since).all()) == [number for number in WORKERS if number >= 20]


def test_only_from_a_level_on(book: Book) -> None:
    for level in ("debug", "warning", "critical", "verbose"):
        book.write("a-1", level=level)
    assert told(book.reader(level=30).last(10)) == [31, 32]
    assert told(book.reader(level=20).last(3)) == [31, 32, 33]


def test_only_of_a_task(book: Book) -> None:
    book.write("a-1", task_id=FIRST)
    book.write("b-1", task_id=SECOND_TASK, note=FIRST)
    book.write("b-1", task_id=FIRST)
    assert told(book.reader(task=FIRST).all()) == [30, 32]
    assert told(book.reader(task="0000aa").all()) == [30, 32]
    assert told(book.reader(task="01900000-").all()) == [30, 31, 32]


def test_what_is_no_line_is_passed_over(book: Book) -> None:
    path = worker_file(book.folder, "a-1")
    with path.open("ab") as file:
        file.write(b'half a li\n\n[1]\n"x"\n{"time":5}\n{"time":"2023","level":[]}\n')
    book.write("a-1")
    assert told(book.reader().last(2)) == [28, 30]
    assert told(book.reader().all()) == [*WORKERS, 30]


@pytest.mark.parametrize("block", [7, 100, 1_000_000])
def test_reading_from_the_end_in_blocks_of_any_size(book: Book, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(reading, "_BLOCK", block)
    assert told(book.reader().last(1000)) == WORKERS


def test_a_line_that_is_still_being_written_comes_when_it_is_whole(book: Book) -> None:
    path = worker_file(book.folder, "a-1")
    line = encoded({"time": stamp(NOW + 100), "level": "info", "event": "100"})
    with path.open("ab", buffering=0) as file:
        file.write(line[:20])
        reader = book.reader()
        assert told(reader.last(1)) == [28]
        assert reader.new() == []
        file.write(line[20:-1])
        assert reader.new() == []
        file.write(line[-1:])
        assert told(reader.new()) == [100]
        assert reader.new() == []


def test_following_begins_where_the_last_lines_ended(book: Book) -> None:
    reader = book.reader()
    book.write("a-1")
    assert told(reader.last(1)) == [28]
    book.write("c-1")
    assert told(reader.new()) == [30, 31]
    assert reader.new() == []


@pytest.mark.parametrize("seed", range(3))
def test_following_across_renames_gives_each_line_once(tmp_path: Path, seed: int) -> None:
    """Also if a removed file's inode is reused, and if several files were rotated between two calls."""
    luck = random.Random(seed)
    book = Book(tmp_path, size=250, kept=12)
    book.write("a-1")
    reader = book.reader()
    found: list[Entry] = []
    for _ in range(100):
        for _ in range(luck.randrange(12)):
            book.write(luck.choice(["a-1", "b-1"]), pad="x" * luck.randrange(60))
        found += reader.new()
    assert told(found) == list(range(1, book.count))
    assert len(log_files(tmp_path)) > 10


def test_a_file_that_was_emptied_is_read_from_its_beginning(book: Book) -> None:
    reader = book.reader()
    worker_file(book.folder, "a-1").write_bytes(b"")
    assert reader.new() == []
    book.write("a-1")
    assert told(reader.new()) == [30]


def test_a_file_renamed_after_it_was_seen_is_still_read(tmp_path: Path) -> None:
    book = Book(tmp_path, size=250)
    book.write("a-1")
    reader = book.reader()
    for _ in range(10):
        book.write("a-1", pad="x" * 100)
    assert told(reader.last(5)) == [0]


def test_the_last_lines_of_a_task_from_a_bounded_part_of_the_files(tmp_path: Path) -> None:
    book = Book(tmp_path)
    for name in ("a-1", "a-1", "b-1", "manager", "a-1"):
        book.write(name, task_id=FIRST)
        book.write(name, task_id=SECOND_TASK)
    since = int(NOW * SECOND)
    assert told(task_lines(tmp_path, FIRST, since)) == [0, 2, 4, 6, 8]
    assert told(task_lines(tmp_path, FIRST, since, most=2)) == [6, 8]
    assert told(task_lines(tmp_path, FIRST, since, ["b-1"], most_bytes=300)) == [4]
    assert task_lines(tmp_path, FIRST, since + 10**9 * SECOND) == []
    assert task_lines(tmp_path / "none", FIRST, since) == []
