"""The process that runs an app's hooks, as its manager sees it: a channel with room for so many facts, and a pid."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from pitboss import config
from pitboss.manager.strays import MARK
from pitboss.model.facts import AnyFact
from pitboss.worker.channel import Channel
from pitboss.worker.fact_frames import FactMessage, FromHooks, HandledMessage, ToHooks, hub_codec
from pitboss.worker.frames import BrokenMessage, DrainMessage, ReadyMessage
from pitboss.worker.hooks_main import HooksSpec

Heard = Callable[["HookProcess", FromHooks], None]
_REAP_SECONDS = 0.5


class HookProcess:
    """Starts, speaks to and ends one hook process.

    It is given few more facts than it can handle at once. The others wait with the manager, where they are counted,
    and survive the process; those that it was given are lost with it, for one of them may have been its death.
    """

    def __init__(self, spec: HooksSpec, heard: Heard) -> None:
        self._spec, self._heard = spec, heard
        # Another hub may have a process as well, while new code takes the place of the old.
        self.mark = f"{spec.manager}:hooks#{id(self):x}"
        self.ready = False
        self.draining = False
        self.condemned = False
        self.broken: BrokenMessage | None = None
        self.in_flight = 0
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._channel: Channel[FromHooks, ToHooks] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def room(self) -> int:
        """How many facts it can take now: none, or so many at a time that a frame is worth its cost."""
        busy = self.in_flight > self._spec.concurrency
        return 0 if busy or self.draining or not self.ready else 2 * self._spec.concurrency - self.in_flight

    @property
    def silence(self) -> float:
        """For how many seconds it has said nothing."""
        return self._loop.time() - self._heard_at

    async def spawn(self) -> None:
        """Start the process. It says `ready` when it has loaded the app."""
        ours, theirs = socket.socketpair()
        try:
            # A session of its own: Ctrl-C in the terminal is for the manager, and its whole group can be ended at once.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pitboss.worker.hooks_main",
                msgspec.json.encode(self._spec).decode(),
                str(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**config.inherited(), MARK: self.mark},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = await Channel.over(ours, hub_codec(), self._hear, self.gone.set)
        if self.draining:
            self.say(DrainMessage())

    def give(self, fact: AnyFact) -> None:
        self.in_flight += 1
        self.say(FactMessage(fact))

    def say(self, message: ToHooks) -> None:
        if self._channel is not None:
            self._channel.say(message)

    def drain(self) -> None:
        """No more facts: let it end the hooks that run, and then itself."""
        self.draining = True
        self.say(DrainMessage())

    def kill(self) -> None:
        """End it now, with every process in its group."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self) -> int:
        """Wait until it is gone, and make sure of it; its exit code, negative for a signal."""
        assert self._process is not None
        assert self._channel is not None
        ends = {asyncio.create_task(self._process.wait()), asyncio.create_task(self.gone.wait())}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            # It may live on with its socket closed, or its socket with a child that it forked: neither for long.
            await asyncio.wait(ends, timeout=_REAP_SECONDS)
        finally:
            self.kill()
            self._channel.close()
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        return await self._process.wait()

    def _hear(self, message: FromHooks) -> None:
        self._heard_at = self._loop.time()
        match message:
            case ReadyMessage():
                self.ready = True
            case BrokenMessage():
                self.broken = message
            case HandledMessage():
                self.in_flight -= 1
        self._heard(self, message)
