"""Processes that a worker's handlers left behind, also those that left its process group and its family.

A worker is started with a mark in its environment, which every process below it inherits. So a daemon that detached
itself is still found when the worker has ended.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "PITBOSSWORKER"
_SHOWN = 80


class Stray(NamedTuple):
    """A process that outlived its worker, and what it runs."""

    pid: int
    command: str


def end_strays(mark: str) -> list[Stray]:
    """End every process with this mark; which they were. Blocks for as long as it takes to look at all processes."""
    wanted = f"{MARK}={mark}".encode()
    others = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]
    found = [Stray(int(entry.name), _command(entry)) for entry in others if _has(entry, wanted)]
    for stray in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(stray.pid, signal.SIGKILL)
    return found


def _has(entry: Path, wanted: bytes) -> bool:
    # Somebody else's process, or one that has just ended.
    with suppress(OSError):
        return wanted in (entry / "environ").read_bytes().split(b"\0")
    return False


def _command(entry: Path) -> str:
    with suppress(OSError):
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:_SHOWN]
    return ""
