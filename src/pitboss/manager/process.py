"""One worker process as its manager sees it: a worker for the dispatcher, a channel, a pid, and its figures."""

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
from pitboss.manager.vitals import proportional
from pitboss.model.duration import SECOND, Span
from pitboss.model.outcome import Outcome
from pitboss.model.task import Claim, TaskError
from pitboss.worker.channel import Channel
from pitboss.worker.frames import (
    BrokenMessage,
    DrainMessage,
    HeartbeatMessage,
    ReadyMessage,
    RecallMessage,
    StopMessage,
    TaskMessage,
    ToManager,
    ToWorker,
    manager_codec,
)
from pitboss.worker.main import STACK_SIGNAL, Spec

Heard = Callable[["WorkerProcess", ToManager], None]
Key = tuple[str, int]
_REAP_SECONDS = 0.5
_STACK_LIMIT = 64 * 1024
_TRAVEL_SECONDS = 1.0
_LAST_WORDS_SECONDS = 0.1


class WorkerProcess:
    """Starts, speaks to and ends one worker. `gone` is set once nothing more will be heard of it.

    `id` is its own, `name` is that of its place in the pool and passes to its successor.
    """

    def __init__(self, spec: Spec, number: int, edition: tuple[int, int], env: dict[str, str], heard: Heard) -> None:
        self.spec, self.edition, self._env, self._heard = spec, edition, env, heard
        self.name, self.capacity = spec.name, spec.concurrency
        self.id = f"{spec.name}#{number}"
        self.mark = f"{spec.manager}:{self.id}"
        self.ready = asyncio.Event()
        self.gone = asyncio.Event()
        self.claims: dict[Key, Claim] = {}
        self.since: dict[Key, float] = {}
        self.draining = False
        self.succeeds = False
        self.code: int | None = None
        self.broken: BrokenMessage | None = None
        # Why the manager ended it, if it did, and what that means for its tasks, if it is not a crash.
        self.sentence: TaskError | None = None
        self.fate: Outcome | None = None
        self.stack = ""
        self.asked_for_stack = False
        self.named_blocked = False
        self.deaf_beats = 0
        self.handled = 0
        # What a task needs can be seen where it ran by itself, and long enough to be measured.
        self.learned: Callable[[str, int], None] = lambda _handler, _size: None
        self._solo: Key | None = None
        self.memory = self.base = self.peak = self.fresh = 0
        self.cpu = 0.0
        self.cpu_seconds = 0.0
        self.succeeded = 0
        self.failed = 0
        self.busy: Span = 0
        self._loop = asyncio.get_running_loop()
        self.began = self.heard_at = self.active_at = self._loop.time()
        self._channel: Channel[ToManager, ToWorker] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stack_end: int | None = None
        self._doomed = False
        self._noticing: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def processed(self) -> int:
        return self.succeeded + self.failed

    async def spawn(self) -> None:
        """Start the process. It says `ready` when it has loaded the app."""
        ours, theirs = socket.socketpair()
        stack_out, stack_in = os.pipe()
        try:
            # A session of its own: Ctrl-C in the terminal is for the manager, and its whole group can be ended at once.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pitboss.worker.main",
                msgspec.json.encode(self.spec).decode(),
                str(theirs.fileno()),
                str(stack_in),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), stack_in),
                start_new_session=True,
                env={**config.inherited(), **self._env, MARK: self.mark},
            )
        except BaseException:
            ours.close()
            os.close(stack_out)
            raise
        finally:
            theirs.close()
            os.close(stack_in)
        self._stack_end = stack_out
        os.set_blocking(stack_out, False)
        self._channel = await Channel.over(ours, manager_codec(), self._hear, self.gone.set)
        self._noticing = asyncio.create_task(self._notice_end())
        # What was asked of it meanwhile could not be passed on.
        if self._doomed:
            self.kill()
        if self.draining:
            self.say(DrainMessage())

    def start(self, claim: Claim) -> None:
        key = claim.id, claim.token.claim
        self.claims[key] = claim
        self.since[key] = self._loop.time()
        self._solo = key if len(self.claims) == 1 else None
        self.base = self.peak = self.memory
        if self._channel is not None:
            self._channel.say(TaskMessage(claim))

    def ended_task(self, key: Key, *, well: bool, ran: Span) -> Claim | None:
        """The claim that it speaks of, if it has it; counted."""
        claim = self.claims.pop(key, None)
        if claim is not None:
            del self.since[key]
            self.busy += ran
            if self._solo == key and self.peak > self.base:
                self.learned(claim.handler, self.peak - self.base)
            if well:
                self.succeeded += 1
            else:
                self.failed += 1
        return claim

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

    @property
    def spared(self) -> bool:
        """It is ended for reasons that are neither its own nor its tasks'."""
        return self.fate is not None and self.sentence is None

    def kill(self, sentence: TaskError | None = None, fate: Outcome | None = None) -> None:
        """End it now, with every process that its handlers started in its group."""
        self.sentence, self.fate = self.sentence or sentence, self.fate or fate
        self._doomed = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def ask_for_stack(self) -> None:
        """Have it write down where it is; works also while its loop and its interpreter are blocked."""
        self.asked_for_stack, self.stack = True, ""
        if self._process is not None and self._process.returncode is None and self.ready.is_set():
            with suppress(ProcessLookupError):
                self._process.send_signal(STACK_SIGNAL)

    def read_stack(self) -> str:
        """What it has written since it was asked."""
        if self._stack_end is not None:
            with suppress(BlockingIOError):
                told = os.read(self._stack_end, _STACK_LIMIT).decode(errors="replace")
                self.stack = told or self.stack
        return self.stack

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
        code = self.code = await self._process.wait()
        if self._noticing is not None:
            self._noticing.cancel()
        if self._channel is not None:
            self._channel.close()
        if self._stack_end is not None:
            os.close(self._stack_end)
            self._stack_end = None
        return code

    async def _notice_end(self) -> None:
        """The end of the socket tells sooner; but processes that it forked may hold its end open."""
        assert self._process is not None
        await self._process.wait()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        self.gone.set()

    def _hear(self, message: ToManager) -> None:
        self.heard_at = self._loop.time()
        self.asked_for_stack = self.named_blocked = False
        match message:
            case ReadyMessage():
                self.fresh = proportional(self.pid)
                self.ready.set()
            case BrokenMessage():
                self.broken = message
            case HeartbeatMessage(running, _, handled):
                self._beat(running, handled)
        self._heard(self, message)

    def _beat(self, running: int, handled: int) -> None:
        """Alive but deaf: it has had tasks for a while and room for them, but has not begun them, and ends none."""
        arrived = self._loop.time() - _TRAVEL_SECONDS
        given = sum(since <= arrived for since in self.since.values())
        waits = running < min(given, self.capacity) and handled == self.handled
        self.deaf_beats = self.deaf_beats + 1 if waits else 0
        self.handled = handled


def evidence(worker: WorkerProcess, code: int | None) -> TaskError:
    """What is known about a worker's death, for the attempts that died with it."""
    if worker.sentence is not None:
        return worker.sentence
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


def overdue(worker: WorkerProcess, now: float, limit: Callable[[Claim], Span | None], grace: float) -> list[Claim]:
    """The tasks of a silent worker that are past their own time limit: it can no longer end them by itself."""
    found = []
    for key, claim in list(worker.claims.items())[: worker.capacity]:
        allowed = limit(claim)
        if allowed is not None and now - worker.since[key] >= allowed / SECOND + grace:
            found.append(claim)
    return found


def surely_begun(worker: WorkerProcess, claim: Claim) -> bool:
    """Of a silent worker: whether this task runs there. Those that it was given since then may wait behind another."""
    since = worker.since[claim.id, claim.token.claim]
    return since <= worker.heard_at or len(worker.claims) == 1
