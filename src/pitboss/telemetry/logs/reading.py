"""Reads log files: the last lines, all lines, or new lines as they come; rotated files and current ones alike."""

import heapq
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from pitboss.model.duration import SECOND, Moment
from pitboss.model.log_settings import LEVELS
from pitboss.telemetry.logs.files import LogFile, log_files
from pitboss.telemetry.logs.lines import as_text, stamp

_BLOCK = 256 * 1024
_HEAD = 96
_DAY_AND_TIME = slice(len("2026-"), len("2026-01-01T00:00:00"))
_LOOKS = 10
_DEFAULT_LEVEL, _TROUBLE = LEVELS["info"], LEVELS["warning"]

# An inode is reused at once after a removal, so a file is also identified by its first bytes.
Key = tuple[int, int, bytes]


class Entry(NamedTuple):
    """A line: its time, its fields, and its bytes."""

    time: str
    fields: dict[str, Any]
    raw: bytes


class Wanted:
    """Which lines: from a level and a time on; of one task or one batch, given by its id or the start or end of it.

    `troubles`: of the manager's lines only warnings and errors.
    """

    def __init__(
        self,
        *,
        level: int = 0,
        since: Moment | None = None,
        task: str | None = None,
        batch: str | None = None,
        troubles: bool = False,
    ) -> None:
        self._level, self.since, self._troubles = level, since, troubles
        self._since = "" if since is None else stamp(since / SECOND)
        self._ids = [(field, piece) for field, piece in (("task_id", task), ("batch", batch)) if piece is not None]
        self._pieces = [piece.encode() for _, piece in self._ids]

    def entry(self, raw: bytes) -> Entry | None:
        """The line's entry; None if it is not wanted, or not one of our lines."""
        if not all(piece in raw for piece in self._pieces):
            return None
        try:
            fields = msgspec.json.decode(raw)
            entry = Entry(fields["time"], fields, raw)
            return entry if self._fits(entry) else None
        except (msgspec.DecodeError, KeyError, TypeError):
            return None

    def _fits(self, entry: Entry) -> bool:
        least = _TROUBLE if self._troubles and "manager_pid" in entry.fields else self._level
        if entry.time < self._since or LEVELS.get(entry.fields["level"], _DEFAULT_LEVEL) < max(least, self._level):
            return False
        return all(matching(entry.fields, field, piece) for field, piece in self._ids)


def tail(folder: Path, worker: str | Collection[str], count: int, level: str = "") -> list[str]:
    """The last lines of a worker or of several as text, the newest last, each with its traceback, from a level on.
    Times are in UTC."""
    one_only = isinstance(worker, str)
    names, found = {worker} if isinstance(worker, str) else frozenset(worker), []
    for one in Reader(folder, names.__contains__, Wanted(level=LEVELS.get(level, 0))).last(count):
        trace = str(one.fields.get("exception") or "")
        found.append(
            as_text({**one.fields, "worker": ""} if one_only else one.fields, one.time[_DAY_AND_TIME].replace("T", " "))
            + (f"\n{trace}" if trace else "")
        )
    return found


def matching(fields: Mapping[str, Any], field: str, piece: str) -> list[str]:
    """The ids in a line's `task_id` or `batch` that begin or end with this piece. A line may be about several tasks."""
    about = [fields.get(field), *(one.get(field) for one in fields.get("tasks") or () if isinstance(one, dict))]
    return [str(one) for one in about if one and (str(one).startswith(piece) or str(one).endswith(piece))]


class Reader:
    """Reads the files whose names are `chosen`. `new` returns lines that were written after the reader was made."""

    def __init__(self, folder: Path, chosen: Callable[[str], bool], wanted: Wanted) -> None:
        self._folder, self._chosen, self._wanted = folder, chosen, wanted
        self._files = self._settled()
        self._before = {file.path: file for file in self._files}
        self._ends = {key: _end(file) for file in self._files if (key := _key(file)) is not None}

    def last(self, count: int) -> list[Entry]:
        """The last lines of all files together, sorted by time."""
        found = [entry for files in self._by_name() for entry in islice(self._backward(files), count)]
        found.sort(key=lambda entry: entry.time)
        return found[-count:] if count else []

    def all(self) -> Iterator[Entry]:
        """All lines, sorted by time."""
        return heapq.merge(*(self._forward(files) for files in self._by_name()), key=lambda entry: entry.time)

    def new(self) -> list[Entry]:
        """The lines that were written since the last call, sorted by time."""
        found: list[Entry] = []
        for file in self._chosen_files():
            if self._before.get(file.path) == file:
                continue
            key = _key(file)
            if key is not None:
                self._before[file.path] = file
                found += self._read_on(file, key)
        return sorted(found, key=lambda entry: entry.time)

    def _read_on(self, file: LogFile, key: Key) -> list[Entry]:
        start = self._ends.get(key, 0)
        if start > file.size:
            start = 0  # it was truncated
        with _opened(file) as opened:
            opened.seek(start)
            data = opened.read()
        whole, newline, _ = data.rpartition(b"\n")
        self._ends[key] = start + len(whole) + len(newline)
        return self._entries(iter(whole.split(b"\n")))

    def _backward(self, files: list[LogFile]) -> Iterator[Entry]:
        for file in reversed(files):
            for raw in _lines_backward(file):
                entry = self._wanted.entry(raw)
                if entry is not None:
                    yield entry

    def _forward(self, files: list[LogFile]) -> Iterator[Entry]:
        for file in files:
            with _opened(file) as opened:
                left = file.size
                for raw in opened:
                    left -= len(raw)
                    entry = self._wanted.entry(raw.rstrip(b"\n")) if left >= 0 else None
                    if entry is not None:
                        yield entry
                    if left <= 0:
                        break

    def _entries(self, lines: Iterator[bytes]) -> list[Entry]:
        return [entry for raw in lines if (entry := self._wanted.entry(raw)) is not None]

    def _by_name(self) -> list[list[LogFile]]:
        """The files of each name, the oldest first, without those that end before `since`."""
        since = self._wanted.since
        recent = [file for file in self._files if since is None or file.changed * SECOND >= since]
        return [list(files) for _, files in groupby(recent, key=lambda file: file.base)]

    def _chosen_files(self) -> list[LogFile]:
        return [file for file in log_files(self._folder) if self._chosen(file.name)]

    def _settled(self) -> list[LogFile]:
        """The files, read while none was being renamed: a missed file would look new later."""
        found = self._chosen_files()
        for _ in range(_LOOKS):
            before, found = found, self._chosen_files()
            if [(file.path, file.inode) for file in before] == [(file.path, file.inode) for file in found]:
                break
        return found


def task_lines(
    folder: Path,
    task: str,
    since: Moment,
    workers: Collection[str] = (),
    *,
    most: int = 200,
    most_bytes: int = 32 << 20,
) -> list[Entry]:
    """The last lines of this task, sorted by time, from files that were written since then: those of these workers
    first, then the newest, and at most this many bytes. `Reader` reads everything, which takes long."""
    wanted, found = Wanted(since=since, task=task), list[Entry]()
    recent = [one for one in log_files(folder) if one.changed * SECOND >= since]
    for file in sorted(recent, key=lambda one: (one.name not in workers, -one.changed)):
        lines = 0
        for raw in _lines_backward(file) if most_bytes > 0 else ():
            most_bytes -= len(raw) + 1
            entry = wanted.entry(raw)
            if entry is not None:
                found.append(entry)
                lines += 1
            if most_bytes <= 0 or lines >= most:
                break
    return sorted(found, key=lambda entry: entry.time)[-most:]


def _key(file: LogFile) -> Key | None:
    """None if the file has no line yet, or was removed."""
    with _opened(file) as opened:
        head = opened.read(_HEAD)
    has_line = len(head) == _HEAD or b"\n" in head
    return (file.device, file.inode, head.partition(b"\n")[0]) if has_line else None


def _end(file: LogFile) -> int:
    """The end of the last complete line."""
    if file.rotated:
        return file.size
    with _opened(file) as opened:
        start = file.size
        while start > 0:
            start = max(0, start - _BLOCK)
            opened.seek(start)
            found = opened.read(min(_BLOCK, file.size - start)).rfind(b"\n")
            if found >= 0:
                return start + found + 1
    return 0


def _lines_backward(file: LogFile) -> Iterator[bytes]:
    """The complete lines of a file, the last one first."""
    rest = b""
    position = _end(file)
    with _opened(file) as opened:
        while position > 0:
            start = max(0, position - _BLOCK)
            opened.seek(start)
            first, *lines = (opened.read(position - start) + rest).split(b"\n")
            yield from reversed(lines)
            rest, position = first, start
    yield rest


def _opened(file: LogFile) -> BinaryIO:
    """The file, even if it was renamed since; an empty file if it was removed."""
    renamed = (one.path for one in log_files(file.path.parent) if one.inode == file.inode)
    for path in chain((file.path,), renamed):
        try:
            opened = path.open("rb")
        except FileNotFoundError:
            continue
        if os.fstat(opened.fileno()).st_ino == file.inode:
            return opened
        opened.close()
    return Path(os.devnull).open("rb")
