"""A log file that several processes append to at once, rotated when it is full or old.

A draining worker and its successor have the same name, and so the same file. Each line is one write to a file opened
for appending, so lines never mix. Before each line the writer checks that its file still has its name; if another
process has rotated it, the writer opens the new one. A line that is written during the rotation goes to the rotated
file, which is kept and read like the current one.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.log_settings import MANAGER_FILE

_NAME = re.compile(
    r"(?P<file>(?:worker-(?P<worker>.+)|(?P<manager>manager)|.+)\.log)(?:\.(?P<rotated>\d{8}T\d{6}\.\d{6}))?\Z"
)
_LOCK = ".lock"
# A line for each file with a name of its own: the file and its worker.
_NOTES = ".worker-files"
_MODE = 0o666
_FIRST_TIME = slice(len('{"time":"'), len('{"time":"2026-01-01T00:00:00.000Z'))


class LogFile(NamedTuple):
    """A file as it was found. `name` is its worker, or the manager; `base` the file's name before it was rotated.
    `rotated` is when that was; it is empty for the current file."""

    path: Path
    name: str
    base: str
    rotated: str
    device: int
    inode: int
    size: int
    changed: float


def worker_file(folder: Path, worker: str, name: str = "") -> Path:
    """Its file. One with a `name` of its own is noted in the folder, so that it is found and pruned like the others."""
    if not name:
        return folder / f"worker-{worker}.log"
    with suppress(OSError):  # as for log lines: a folder that cannot be written must not stop the worker
        _note(folder, name, worker)
    return folder / name


def _note(folder: Path, name: str, worker: str) -> None:
    if _noted(folder).get(name) != worker:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / _NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            os.write(file, f"{name} {worker}\n".encode())
        finally:
            os.close(file)


def _noted(folder: Path) -> dict[str, str]:
    """The workers of files with names of their own."""
    try:
        lines = (folder / _NOTES).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name: worker for name, _, worker in (line.partition(" ") for line in lines) if worker}


def manager_file(folder: Path) -> Path:
    return folder / MANAGER_FILE


def log_files(folder: Path) -> list[LogFile]:
    """The log files in a folder, sorted by name, the oldest first."""
    found, noted = [], _noted(folder)
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.match(entry.name)
            name = None if match is None else noted.get(match["file"]) or match["worker"] or match["manager"]
            if match is None or name is None:
                continue
            with suppress(FileNotFoundError):  # renamed or pruned since the folder was read
                seen = entry.stat()
                base, rotated, size, changed = match["file"], match["rotated"] or "", seen.st_size, seen.st_mtime
                found.append(LogFile(Path(entry.path), name, base, rotated, seen.st_dev, seen.st_ino, size, changed))
    return sorted(found, key=lambda file: (file.name, file.base, not file.rotated, file.rotated))


def prune_logs(folder: Path, *, total_size: int, age: Span, now: Moment) -> list[Path]:
    """Remove files older than `age`, then the oldest until the rest fits `total_size`; returns what was removed.

    Current files are removed last. Their writers notice, and open new ones.
    """
    removed: list[LogFile] = []
    kept: list[LogFile] = []
    for file in log_files(folder):
        (removed if now - file.changed * SECOND > age else kept).append(file)
    size = sum(file.size for file in kept)
    for file in sorted(kept, key=lambda file: (not file.rotated, file.changed)):
        if size <= total_size:
            break
        removed.append(file)
        size -= file.size
    for file in removed:
        with suppress(OSError):
            file.path.unlink()
    return [file.path for file in removed]


class Appender:
    """Writes whole lines to one file. Not thread-safe: the caller holds a lock."""

    def __init__(self, path: Path, *, size: int, age: Span, kept: int) -> None:
        self.path = path
        self._size, self._age, self._kept = size, age / SECOND, kept
        self._file: int | None = None
        self._identity = (0, 0)
        self._began = 0.0
        self._torn = False

    def write(self, line: bytes, now: float) -> None:
        """Append a line that was made at `now`, in seconds. Raises OSError if it cannot be written."""
        file = self._ready(len(line), now)
        # A full disk cut off the previous line: this one must not be joined to it.
        data = b"\n" + line if self._torn else line
        self._torn = True
        done = os.write(file, data)
        while done < len(data):
            done += os.write(file, data[done:])
        self._torn = False

    def close(self) -> None:
        """Close the file. A later line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _ready(self, length: int, now: float) -> int:
        seen = self._seen()
        if self._file is None or seen is None or (seen.st_dev, seen.st_ino) != self._identity:
            file, seen = self._open(now)
        else:
            file = self._file
        full = seen.st_size + length > self._size or now - self._began > self._age
        if full and seen.st_size and self._rotate(now):
            file, _ = self._open(now)
        return file

    def _seen(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None

    def _open(self, now: float) -> tuple[int, os.stat_result]:
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        seen = os.fstat(self._file)
        self._identity = seen.st_dev, seen.st_ino
        self._began = _first_moment(self.path, seen.st_mtime) if seen.st_size else now
        return self._file, seen

    def _rotate(self, now: float) -> bool:
        """Rotate the file, or see that another process did. False while one is at it: the next line tries again."""
        with _alone(self.path.parent) as alone:
            if not alone:
                return False
            seen = self._seen()
            if seen is not None and (seen.st_dev, seen.st_ino) == self._identity:
                self.path.rename(self._free_name(now))
                self._drop_oldest()
            return True

    def _free_name(self, now: float) -> Path:
        moment = round(now * SECOND)
        while (path := self.path.with_name(f"{self.path.name}.{_rotated_name(moment)}")).exists():
            moment += 1
        return path

    def _drop_oldest(self) -> None:
        mine = [file.path for file in log_files(self.path.parent) if file.rotated and self._is_mine(file.path)]
        for path in mine[: max(0, len(mine) - self._kept)]:
            path.unlink(missing_ok=True)

    def _is_mine(self, path: Path) -> bool:
        return path.name.startswith(f"{self.path.name}.")


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """A lock per folder; never waits. Opened anew each time, because a child process would inherit an open lock."""
    file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        yield _locked(file)
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _rotated_name(moment: Moment) -> str:
    return datetime.fromtimestamp(moment / SECOND, UTC).strftime("%Y%m%dT%H%M%S.%f")


def _first_moment(path: Path, otherwise: float) -> float:
    """When the first line was written: the system does not record when a file was created."""
    try:
        with path.open("rb") as file:
            text = file.read(_FIRST_TIME.stop)[_FIRST_TIME].decode()
        return datetime.fromisoformat(text).timestamp()
    except (OSError, ValueError):
        return otherwise
