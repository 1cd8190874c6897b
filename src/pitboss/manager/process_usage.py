"""Memory and processor time of a worker with its child processes, as the operating system counts them."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Resident bytes and seconds of processor time of a process with all its descendants."""

    memory: int
    cpu_seconds: float


def measure(pid: int) -> Usage:
    """A quick measurement. Memory that several of the processes share is counted for each of them."""
    pages, ticks = 0, 0
    for one in family(pid):
        with suppress(OSError, ValueError, IndexError):
            pages += int(_read(f"/proc/{one}/statm").split()[1])
            ticks += sum(int(field) for field in _read(f"/proc/{one}/stat").rpartition(")")[2].split()[11:15])
    return Usage(pages * _PAGE, ticks / _TICKS)


def proportional(pid: int) -> int:
    """The memory with shared pages divided among their users: exact, at several times the cost."""
    total = 0
    for one in family(pid):
        with suppress(OSError):
            for line in _read(f"/proc/{one}/smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def family(pid: int) -> list[int]:
    """The process and its descendants."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        with suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                left += map(int, _read(f"{thread}/children").split())
    return found


def _read(path: str) -> str:
    return Path(path).read_text(encoding="ascii", errors="replace")
