"""A child process of the manager, with a socket to it: start it, talk to it, drain it, kill it, wait for its end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from pitboss import config
from pitboss.manager.strays import MARK
from pitboss.worker.channel import BrokenMessage, Channel, Codec, DrainMessage, ReadyMessage
from pitboss.worker.secret_start import SECRET_START

In = TypeVar("In")
Out = TypeVar("Out")
_EXIT_SECONDS = 0.5
_LAST_WORDS_SECONDS = 0.1


class ChildProcess(Generic[In, Out]):
    """One process: from its start to its end, never restarted. `gone` is set once it cannot say anything more.

    The child leads a session of its own: Ctrl-C in the terminal reaches only the manager, and the whole process group
    can be killed at once. `mark` is in its environment, so that processes that left the group are found (`strays.py`).
    """

    def __init__(self, mark: str, codec: Codec[In]) -> None:
        self.mark, self._codec = mark, codec
        self.ready = asyncio.Event()
        self.gone = asyncio.Event()
        self.draining = False
        self.broken: BrokenMessage | None = None
        self.code: int | None = None
        self._loop = asyncio.get_running_loop()
        self.began = self.heard_at = self._loop.time()
        self._channel: Channel[In, Any] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._noticing: asyncio.Task[None] | None = None
        self._killed = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def silence(self) -> float:
        """For how many seconds it has said nothing."""
        return self._loop.time() - self.heard_at

    async def run(
        self, module: str, spec: msgspec.Struct, env: Mapping[str, str], *files: int, secret: bool = False
    ) -> None:
        """Start `python -m MODULE SPEC FD FILES…`, with the spec as JSON. Raises OSError if the system refuses.

        A `secret` spec goes through a pipe (`worker/secret_start.py`): everyone on the host can read arguments.
        """
        ours, theirs = socket.socketpair()
        pipe = [_filled_pipe(msgspec.json.encode(spec))] if secret else []
        inherited = (theirs.fileno(), *files)
        arguments = [SECRET_START, module, str(pipe[0])] if secret else [module, msgspec.json.encode(spec).decode()]
        command = [sys.executable, "-m", *arguments, *map(str, inherited)]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                pass_fds=(*inherited, *pipe),
                start_new_session=True,
                env={**config.inherited(), **env, MARK: self.mark},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            for end in pipe:
                os.close(end)
        self._channel = await Channel.over(ours, self._codec, self._hear, self.gone.set)
        self._noticing = asyncio.create_task(self._notice_exit())
        # Both may have been called while the process was being started.
        if self._killed:
            self._kill_group()
        if self.draining:
            self._channel.say(DrainMessage())

    async def started(self) -> bool:
        """Wait until it is ready or gone; whether it became ready."""
        waits = {asyncio.create_task(self.ready.wait()), asyncio.create_task(self.gone.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return self.ready.is_set()

    def say(self, message: Out) -> None:
        if self._channel is not None:
            self._channel.say(message)

    def drain(self) -> None:
        """Let it finish what it is doing, and then exit."""
        self.draining = True
        if self._channel is not None:
            self._channel.say(DrainMessage())

    def kill(self) -> None:
        """Kill it now, with its whole process group."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            self._kill_group()

    async def ended(self) -> int:
        """Wait until it is gone, with its process group; its exit code, negative for a signal."""
        assert self._process is not None
        try:
            await self.gone.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_SECONDS):
                    await self._process.wait()
        finally:
            # The child may live on with its socket closed, and processes that it started may live on without it.
            self._kill_group()
            if self._noticing is not None:
                self._noticing.cancel()
            if self._channel is not None:
                self._channel.close()
        self.code = await self._process.wait()
        return self.code

    def _kill_group(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _notice_exit(self) -> None:
        """Usually the socket closes first; but a process that the child forked may hold it open."""
        assert self._process is not None
        await self._process.wait()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        self.gone.set()

    def _hear(self, message: In) -> None:
        self.heard_at = self._loop.time()
        match message:
            case ReadyMessage():
                self.ready.set()
            case BrokenMessage():
                self.broken = message


def _filled_pipe(content: bytes) -> int:
    """The reading end of a pipe with this content, which must fit into it (64 KiB)."""
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
    finally:
        os.close(writing)
    return reading


def exit_text(code: int | None) -> str:
    """How a process ended, as a sentence without its subject."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
