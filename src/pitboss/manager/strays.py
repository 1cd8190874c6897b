"""Finds and kills processes that outlived their worker, including daemons that left its process group.

A worker is started with a mark in its environment. Every process below it inherits the mark.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "PITBOSSWORKER"
_SHOWN = 80


class Stray(NamedTuple):
    """A process that outlived its worker, and its command line."""

    pid: int
    command: str


def end_strays(mark: str) -> list[Stray]:
    """Kill every process with this mark; returns them. Blocks while it looks at all processes of the host."""
    wanted = f"{MARK}={mark}".encode()
    others = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]
    found = [Stray(int(entry.name), _command(entry)) for entry in others if _has(entry, wanted)]
    for stray in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(stray.pid, signal.SIGKILL)
    return found


def _has(entry: Path, wanted: bytes) -> bool:
    # The process may belong to another user, or may have just ended.
    with suppress(OSError):
        return wanted in (entry / "environ").read_bytes().split(b"\0")
    return False


def _command(entry: Path) -> str:
    with suppress(OSError):
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:_SHOWN]
    return ""
