"""What a real process does to its files, in order: every write, sync, truncation and name, as the kernel saw it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.faults.disk import Create, FolderSynced, Note, Op, Remove, Resize, SyncBegun, SyncDone, Write

ROOT = Path(__file__).parents[2]
_CALLS = "openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,pwritev,writev,rename,fallocate,sync_file_range,link"
_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(\(| resumed>)(.*)")
_QUOTED = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_FD = re.compile(r"\d+<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")
# Rebuilt after a crash, so what it holds on disk does not matter; it is memory that several processes share.
_IGNORED = ("-shm",)
_HISTORY = "\0history"


class RecordingError(Exception):
    """The process failed, or did something to its files that the model of the disk does not know."""


def record(folder: Path, history: Path, module: str, *arguments: str) -> list[Op]:
    """Run a module of ours with these arguments and write down what it does to the files directly in `folder`."""
    if shutil.which("strace") is None:
        raise RecordingError("strace is not installed; `make strace` installs it")
    trace = history.with_suffix(".strace")
    command = ["strace", "-f", "-y", "-xx", "-s", "1048576", "-e", f"trace={_CALLS}", "-o", str(trace)]
    done = subprocess.run(
        [*command, sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    if done.returncode:
        raise RecordingError(f"{module} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    with trace.open(encoding="ascii") as lines:
        reader = _Reader(folder, history)
        ops = [op for line in lines for op in reader.read(line)]
    trace.unlink()
    return ops


class _Reader:
    """Reads the trace line by line. A call that another thread interrupted is in two lines."""

    def __init__(self, folder: Path, history: Path) -> None:
        self._folder, self._history = str(folder), str(history)
        self._syncing: dict[int, str] = {}

    def read(self, line: str) -> Iterator[Op]:
        found = _LINE.match(line)
        if found is None:
            return
        thread, call, how, rest = int(found[1]), found[2], found[3], found[4]
        if how != "(":
            yield from self._resumed(thread, call, rest)
        elif " = -1 " not in rest[-60:]:
            yield from self._called(thread, call, rest)

    def _called(self, thread: int, call: str, rest: str) -> Iterator[Op]:
        file = self._file(rest) if call not in {"openat", "unlink", "rename", "link"} else self._named(rest)
        if file is None:
            return
        match call:
            case "pwrite64" | "write":
                yield from self._written(file, call, rest)
            case "fsync" | "fdatasync":
                yield from self._synced(file, thread, "<unfinished" not in rest)
            case "ftruncate":
                yield Resize(file, _numbers(rest)[0])
            case "openat":
                yield from [Create(file)] if "O_CREAT" in rest and file != _HISTORY else []
            case "unlink":
                yield Remove(file)
            case _:
                raise RecordingError(f"the model of the disk does not know {call}")

    def _resumed(self, thread: int, call: str, rest: str) -> Iterator[Op]:
        file = self._syncing.pop(thread, None) if call in {"fsync", "fdatasync"} else None
        if file is not None and "= 0" in rest:
            yield SyncDone(file, thread) if file else FolderSynced()

    def _written(self, file: str, call: str, rest: str) -> Iterator[Op]:
        quoted = _QUOTED.search(rest)
        if quoted is None or quoted[2]:
            raise RecordingError(f"unreadable: {rest[:200]}")
        data = _bytes(quoted[1])
        if file == _HISTORY:
            yield Note(data)
        elif call == "pwrite64":
            length, offset = _numbers(rest[quoted.end() :])[:2]
            if length != len(data):
                raise RecordingError(f"{len(data)} of {length} bytes were traced")
            yield Write(file, offset, data)
        else:
            raise RecordingError(f"a write without a place: {file}")

    def _synced(self, file: str, thread: int, done: bool) -> Iterator[Op]:
        if file:
            yield SyncBegun(file, thread)
        if not done:
            self._syncing[thread] = file
        else:
            yield SyncDone(file, thread) if file else FolderSynced()

    def _file(self, rest: str) -> str | None:
        found = _FD.match(rest)
        return None if found is None or found[2] else self._short(_bytes(found[1]).decode())

    def _named(self, rest: str) -> str | None:
        quoted = _QUOTED.search(rest)
        return None if quoted is None else self._short(_bytes(quoted[1]).decode())

    def _short(self, path: str) -> str | None:
        """The name within the folder; "" is the folder itself; None is none of our business."""
        if path == self._history:
            return _HISTORY
        if path == self._folder:
            return ""
        parent, _, name = path.rpartition("/")
        return name if parent == self._folder and not name.endswith(_IGNORED) else None


def _bytes(hexed: str) -> bytes:
    return bytes.fromhex(hexed.replace("\\x", ""))


def _numbers(rest: str) -> list[int]:
    return [int(word) for word in re.findall(r"(?<=, )\d+", rest)]
