"""A log file that several processes append to at once, set aside when it is full or old.

A worker that drains and the one that follows it have the same name, and so the same file. Each line is one write to
a file opened for appending, so lines never mix. Before each line the writer looks whether its file still has its
name: one that was set aside by the other is left for the new one. A line that is on its way meanwhile lands in the
file set aside, which is kept and read like the current one.
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

MANAGER = "manager"
_NAME = re.compile(r"(?:worker-(?P<worker>.+)|manager)\.log(?:\.(?P<aside>\d{8}T\d{6}\.\d{6}))?\Z")
_LOCK = ".lock"
_MODE = 0o666
_FIRST_TIME = slice(len('{"time":"'), len('{"time":"2026-01-01T00:00:00.000Z'))


class LogFile(NamedTuple):
    """A file as it was found. `aside` is when it was set aside, and empty for the one that is written to."""

    path: Path
    name: str
    aside: str
    device: int
    inode: int
    size: int
    changed: float


def worker_file(folder: Path, worker: str) -> Path:
    return folder / f"worker-{worker}.log"


def manager_file(folder: Path) -> Path:
    return folder / f"{MANAGER}.log"


def log_files(folder: Path) -> list[LogFile]:
    """The log files in a folder, by name, the oldest of each first."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.match(entry.name)
            if match is None:
                continue
            with suppress(FileNotFoundError):  # renamed or pruned since the folder was read
                seen = entry.stat()
                name, aside = match["worker"] or MANAGER, match["aside"] or ""
                size, changed = seen.st_size, seen.st_mtime
                found.append(LogFile(Path(entry.path), name, aside, seen.st_dev, seen.st_ino, size, changed))
    return sorted(found, key=lambda file: (file.name, not file.aside, file.aside))


def prune_logs(folder: Path, *, total_size: int, age: Span, now: Moment) -> list[Path]:
    """Remove what is older than `age`, and then the oldest until the rest fits; returns what was removed.

    Files that are written to come last. Their writers notice and begin new ones.
    """
    removed: list[LogFile] = []
    kept: list[LogFile] = []
    for file in log_files(folder):
        (removed if now - file.changed * SECOND > age else kept).append(file)
    size = sum(file.size for file in kept)
    for file in sorted(kept, key=lambda file: (not file.aside, file.changed)):
        if size <= total_size:
            break
        removed.append(file)
        size -= file.size
    for file in removed:
        with suppress(OSError):
            file.path.unlink()
    return [file.path for file in removed]


class Appender:
    """Writes whole lines to one file. Not for several threads at once: whoever uses it has the lock."""

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
        # What came before was cut off by a full disk: it must not swallow this line too.
        data = b"\n" + line if self._torn else line
        self._torn = True
        done = os.write(file, data)
        while done < len(data):
            done += os.write(file, data[done:])
        self._torn = False

    def close(self) -> None:
        """Let the file go. A later line opens it again."""
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
        if full and seen.st_size and self._set_aside(now):
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

    def _set_aside(self, now: float) -> bool:
        """True if the file has another name now, whoever gave it. If somebody is just at it, the next line tries."""
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
        while (path := self.path.with_name(f"{self.path.name}.{_aside(moment)}")).exists():
            moment += 1
        return path

    def _drop_oldest(self) -> None:
        mine = [file.path for file in log_files(self.path.parent) if file.aside and self._is_mine(file.path)]
        for path in mine[: max(0, len(mine) - self._kept)]:
            path.unlink(missing_ok=True)

    def _is_mine(self, path: Path) -> bool:
        return path.name.startswith(f"{self.path.name}.")


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """One at a time per folder; never waits. Opened anew each time: a lock that a child inherited would be no lock."""
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


def _aside(moment: Moment) -> str:
    return datetime.fromtimestamp(moment / SECOND, UTC).strftime("%Y%m%dT%H%M%S.%f")


def _first_moment(path: Path, otherwise: float) -> float:
    """When the first line was written: the system does not tell when a file was made."""
    try:
        with path.open("rb") as file:
            text = file.read(_FIRST_TIME.stop)[_FIRST_TIME].decode()
        return datetime.fromisoformat(text).timestamp()
    except (OSError, ValueError):
        return otherwise
