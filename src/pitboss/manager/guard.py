"""Outlives a manager that is killed, to end what it leaves behind: workers, and the processes their handlers started.

A worker dies with its manager by itself, but cannot take its own children along, and one whose handler holds the
interpreter does not even notice. So a small process waits for the end of a pipe, and then ends every worker's group,
and every process that carries the manager's mark (`strays.py`).
"""

import asyncio
import os
import subprocess
import sys

from pitboss.manager.strays import MARK

# Runs by itself, without this package: it must be small, and start before anything else could go wrong.
_SCRIPT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
mark = sys.argv[1].encode()
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/environ", "rb") as environ:
            if any(one.startswith(mark) for one in environ.read().split(b"\\0")):
                os.kill(int(name), signal.SIGKILL)
    except OSError:
        pass
"""


class Guard:
    """Told which process groups there are. The end of the manager, however it comes, closes the pipe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _SCRIPT, f"{MARK}={os.getpid()}:"]
        self._process = await asyncio.to_thread(
            subprocess.Popen, command, stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    async def stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await asyncio.to_thread(self._process.wait)

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            # Straight to the pipe: a line that sits in a buffer would be lost with the manager.
            os.write(self._process.stdin.fileno(), line.encode())
