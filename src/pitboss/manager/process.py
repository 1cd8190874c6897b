"""One worker process as its manager sees it: a lane for the dispatcher, a channel, a pid."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from pitboss.model.task import Claim, TaskError
from pitboss.worker.channel import Channel
from pitboss.worker.frames import (
    DrainMessage,
    MetricsMessage,
    ReadyMessage,
    RecallMessage,
    StopMessage,
    TaskMessage,
    ToManager,
    ToWorker,
    manager_codec,
)
from pitboss.worker.main import Spec

Heard = Callable[["WorkerProcess", ToManager], None]
_REAP_SECONDS = 0.5


class WorkerProcess:
    """Starts, speaks to and ends one worker. `gone` is set once nothing more will be heard of it."""

    def __init__(self, spec: Spec, heard: Heard) -> None:
        self.spec, self._heard = spec, heard
        self.name, self.capacity = spec.name, spec.concurrency
        self.ready = asyncio.Event()
        self.gone = asyncio.Event()
        self.claims: dict[tuple[str, int], Claim] = {}
        self.draining = False
        self.rss = 0
        self._channel: Channel[ToManager, ToWorker] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def spawn(self) -> None:
        """Start the process. It says `ready` when it has loaded the app."""
        ours, theirs = socket.socketpair()
        try:
            # A session of its own: Ctrl-C in the terminal is for the manager, and its whole group can be ended at once.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pitboss.worker.main",
                msgspec.json.encode(self.spec).decode(),
                str(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._channel = await Channel.over(ours, manager_codec(), self._hear, self.gone.set)

    def start(self, claim: Claim) -> None:
        self.claims[claim.id, claim.token.claim] = claim
        if self._channel is not None:
            self._channel.say(TaskMessage(claim))

    def stop(self, claim: Claim) -> None:
        self.say(StopMessage(claim.id, claim.token.claim))

    def recall(self) -> None:
        self.say(RecallMessage())

    def say(self, message: ToWorker) -> None:
        if self._channel is not None:
            self._channel.say(message)

    def drain(self) -> None:
        """Let it end its tasks and then itself."""
        self.draining = True
        self.say(DrainMessage())

    def kill(self) -> None:
        """End it now, with every process that its handlers started in its group."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self) -> int | None:
        """Wait until it is gone; its exit code, negative for a signal."""
        await self.gone.wait()
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAP_SECONDS):
                await self._process.wait()
        # It may live on with its socket closed, and so may processes that its handlers started: nobody hears them.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return await self._process.wait()

    def _hear(self, message: ToManager) -> None:
        match message:
            case ReadyMessage():
                self.ready.set()
            case MetricsMessage(rss):
                self.rss = rss
        self._heard(self, message)


def evidence(worker: WorkerProcess, code: int | None) -> TaskError:
    """What is known about a worker's death, for the attempts that died with it."""
    if code is not None and code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
        hint = (
            " (SIGKILL from outside often means that the machine ran out of memory)" if code == -signal.SIGKILL else ""
        )
    else:
        how, hint = f"ended with exit code {code}", ""
    return TaskError(
        category="crash",
        type="WorkerCrashed",
        message=f"worker {worker.name} (pid {worker.pid}) {how} while it ran this task{hint}",
        fingerprint="",
    )
