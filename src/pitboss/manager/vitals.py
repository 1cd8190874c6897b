"""What the operating system says about a worker and its child processes: memory and processor time."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Vitals(NamedTuple):
    """Of a process with all its descendants: resident bytes, and seconds of processor time used so far."""

    memory: int
    cpu_seconds: float


def measure(pid: int) -> Vitals:
    """A quick look. Memory that several of the processes share is counted for each of them."""
    pages, ticks = 0, 0
    for one in family(pid):
        with suppress(OSError, ValueError, IndexError):
            pages += int(_read(f"/proc/{one}/statm").split()[1])
            ticks += sum(int(field) for field in _read(f"/proc/{one}/stat").rpartition(")")[2].split()[11:15])
    return Vitals(pages * _PAGE, ticks / _TICKS)


def proportional(pid: int) -> int:
    """The same memory with shared pages divided among those who share them: the truth, at several times the cost."""
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


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_memory() -> int:
    """Bytes of memory that this host has; 0 where the system does not tell."""
    return _meminfo("MemTotal:")


def host_memory_free() -> int:
    """Bytes that could be used without swapping."""
    return _meminfo("MemAvailable:")


def _meminfo(name: str) -> int:
    with suppress(OSError, ValueError):
        for line in _read("/proc/meminfo").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    return Path(path).read_text(encoding="ascii", errors="replace")
