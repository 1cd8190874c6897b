"""The cost of processes, from /proc: processor time of process trees, memory, and whether other processes were busy.

Standard library only: it is imported in every peer's own environment.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_KTHREADD = 2


class _Entry(NamedTuple):
    parent: int
    ticks: int  # its own and those of its ended children


def _entries() -> dict[int, _Entry]:
    found = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            fields = _text(folder / "stat").rpartition(")")[2].split()
            if fields:
                found[int(folder.name)] = _Entry(int(fields[1]), sum(map(int, fields[11:15])))
    return found


def family(roots: Iterable[int]) -> set[int]:
    """These processes and their descendants."""
    return _family(_entries(), roots)


def cpu_seconds(roots: Iterable[int]) -> float:
    """Processor time of these process trees so far, ended processes included."""
    entries = _entries()
    return sum(entries[pid].ticks for pid in _family(entries, roots)) / _TICKS


def precise_cpu_seconds(roots: Iterable[int]) -> float:
    """As above, of living threads only, but in nanoseconds: a tick of 10 ms is too coarse for idle processes."""
    threads = [thread for pid in family(roots) for thread in _threads(pid)]
    return sum(int(_text(thread / "schedstat").partition(" ")[0] or 0) for thread in threads) / 1e9


def _threads(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    """The content of the file; empty if its process has just ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _family(entries: dict[int, _Entry], roots: Iterable[int]) -> set[int]:
    members = {pid for pid in roots if pid in entries}
    while more := {pid for pid, entry in entries.items() if entry.parent in members and pid not in members}:
        members |= more
    return members


def pss_mb(pids: Iterable[int]) -> float:
    """Memory (PSS): its own pages, and its share of the shared ones."""
    total = 0
    for pid in pids:
        text = _text(_PROC / str(pid) / "smaps_rollup")
        total += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total / 1024


def _kernel() -> list[int]:
    """The parent of the kernel's threads, if it is visible."""
    return [_KTHREADD] if _text(_PROC / str(_KTHREADD) / "comm").strip() == "kthreadd" else []


class Load(NamedTuple):
    """How busy the machine and one process tree have been up to a moment."""

    moment: float
    busy: float
    ours: float

    @classmethod
    def now(cls, root: int) -> "Load":
        line = (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
        user, nice, system, _idle, _iowait, _irq, _softirq, stolen = (int(word) for word in line[:8])
        # Time that the hypervisor took counts as busy, because we could not use it. Kernel threads and interrupts do
        # not count: most of what they write and send is ours.
        busy = (user + nice + system + stolen) / _TICKS
        return cls(time.monotonic(), busy, cpu_seconds([root, *_kernel()]))

    def foreign_since(self, before: "Load") -> float:
        """Cores that other processes kept busy, on average, between two moments."""
        seconds = self.moment - before.moment
        return max(0.0, (self.busy - before.busy) - (self.ours - before.ours)) / max(seconds, 0.001)
