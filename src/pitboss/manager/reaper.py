"""A small process that outlives a killed manager and kills what it leaves behind.

A worker exits with its manager, but cannot take its own child processes along, and a worker whose handler holds the
interpreter does not even notice. So the reaper waits for the end of a pipe, and then kills the process group of every
worker, and every process with the manager's mark (`strays.py`).
"""

import asyncio
import os
import sys
from contextlib import suppress

from pitboss.manager.strays import MARK

# Runs without this package: it must be small, and must start before anything can go wrong.
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


_PAUSE_SECONDS = 1.0


class Reaper:
    """Tells the process which process groups exist. The end of the manager, for whatever reason, closes the pipe.

    If the process is killed, another one is started.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._pipe: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._spawn()
        self._keeping = asyncio.create_task(self._keep())

    def watch(self, group: int) -> None:
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    async def stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self._hang_up()
        if self._process is not None:
            await self._process.wait()

    async def _keep(self) -> None:
        while True:
            if self._process is not None:
                await self._process.wait()
            await asyncio.sleep(_PAUSE_SECONDS)
            with suppress(OSError):  # the system refuses another process: try again later
                await self._spawn()

    async def _spawn(self) -> None:
        self._hang_up()
        theirs, ours = os.pipe()
        command = [sys.executable, "-I", "-S", "-c", _SCRIPT, f"{MARK}={os.getpid()}:"]
        try:
            self._process = await asyncio.create_subprocess_exec(*command, stdin=theirs, start_new_session=True)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._pipe = ours
        for group in self._groups:
            self._tell(f"+{group}\n")

    def _hang_up(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _tell(self, line: str) -> None:
        if self._pipe is not None:
            # Unbuffered: a line in a buffer would be lost with the manager.
            with suppress(BrokenPipeError):
                os.write(self._pipe, line.encode())
