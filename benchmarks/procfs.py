"""What processes cost, read from /proc: processor time of families, memory, and whether strangers were at work.

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
    ticks: int  # its own, and those of its children that have ended


def _entries() -> dict[int, _Entry]:
    found = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            fields = _text(folder / "stat").rpartition(")")[2].split()
            if fields:
                found[int(folder.name)] = _Entry(int(fields[1]), sum(map(int, fields[11:15])))
    return found


def family(roots: Iterable[int]) -> set[int]:
    """These processes with all that they started."""
    return _family(_entries(), roots)


def cpu_seconds(roots: Iterable[int]) -> float:
    """Processor time of these families so far, with that of members that have ended."""
    entries = _entries()
    return sum(entries[pid].ticks for pid in _family(entries, roots)) / _TICKS


def precise_cpu_seconds(roots: Iterable[int]) -> float:
    """As above, of living threads only, but to the nanosecond: a tick is 10 ms, which is long for who is idle."""
    threads = [thread for pid in family(roots) for thread in _threads(pid)]
    return sum(int(_text(thread / "schedstat").partition(" ")[0] or 0) for thread in threads) / 1e9


def _threads(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    """What the file says; nothing if its process ended while we looked."""
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
    """Memory, with a share of what is shared."""
    total = 0
    for pid in pids:
        text = _text(_PROC / str(pid) / "smaps_rollup")
        total += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total / 1024


def _kernel() -> list[int]:
    """The parent of the kernel's threads, where it can be seen."""
    return [_KTHREADD] if _text(_PROC / str(_KTHREADD) / "comm").strip() == "kthreadd" else []


class Load(NamedTuple):
    """How busy the machine and how busy one family was until a moment."""

    moment: float
    busy: float
    ours: float

    @classmethod
    def now(cls, root: int) -> "Load":
        line = (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
        user, nice, system, _idle, _iowait, _irq, _softirq, stolen = (int(word) for word in line[:8])
        # What the hypervisor took away counts as busy: it is not there for what we measure. The kernel's own threads
        # and interrupts do not: they write and send what somebody asked for, and most of that is ours.
        busy = (user + nice + system + stolen) / _TICKS
        return cls(time.monotonic(), busy, cpu_seconds([root, *_kernel()]))

    def foreign_since(self, before: "Load") -> float:
        """Cores that others kept busy, on average, between two moments."""
        seconds = self.moment - before.moment
        return max(0.0, (self.busy - before.busy) - (self.ours - before.ours)) / max(seconds, 0.001)
