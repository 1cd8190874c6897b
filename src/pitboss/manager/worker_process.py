"""One worker process as its manager sees it: the tasks it was given, and its figures."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from pitboss.manager.child_process import ChildProcess, exit_text
from pitboss.manager.process_usage import proportional
from pitboss.model.duration import SECOND, Span
from pitboss.model.outcome import Outcome
from pitboss.model.snapshot import WorkerState
from pitboss.model.task import Claim, TaskError
from pitboss.worker.channel import (
    BrokenMessage,
    HeartbeatMessage,
    ReadyMessage,
    RecallMessage,
    StopMessage,
    TaskMessage,
    ToManager,
    ToWorker,
    manager_codec,
)
from pitboss.worker.main import STACK_SIGNAL, WorkerSpec

Edition = tuple[int, int]
Heard = Callable[["WorkerProcess", ToManager], None]
Key = tuple[str, int]
_STACK_LIMIT = 64 * 1024
_TRAVEL_SECONDS = 1.0
STANDS_STILL = "the whole process stands still (stopped, or waiting for the machine)"


class WorkerProcess(ChildProcess[ToManager, ToWorker]):
    """One worker, and what it was given. `id` belongs to this process; `name` to its slot, and so to its successor too.

    `heard` gets every message. `on_stuck` gets how many tasks do not return; `learned` how much memory a task of a
    handler needed.
    """

    def __init__(self, spec: WorkerSpec, number: int, edition: Edition, env: dict[str, str], heard: Heard) -> None:
        self.id = f"{spec.name}#{number}"
        super().__init__(f"{spec.manager}:{self.id}", manager_codec())
        self.spec, self.edition, self._env, self._heard = spec, edition, env, heard
        self.name, self.capacity = spec.name, spec.concurrency
        self.claims: dict[Key, Claim] = {}
        self.since: dict[Key, float] = {}
        self.is_successor = False
        # Why the manager killed it, if it did, and the outcome of its tasks if that is not a crash.
        self.kill_reason: TaskError | None = None
        self.task_outcome: Outcome | None = None
        self.stack = ""
        self.asked_for_stack = False
        self.asked_at = 0.0
        self.reported_blocked = False
        self.deaf_beats = 0
        self.handled = 0
        self.on_stuck: Callable[[WorkerProcess, int], None] = lambda _worker, _count: None
        self.learned: Callable[[Claim, int], None] = lambda _claim, _size: None
        # The task that runs alone here: only then the growth of memory is known to be its own.
        self._solo: Key | None = None
        self.memory = self.base = self.peak = self.fresh = 0
        self.cpu = 0.0
        self.cpu_seconds = 0.0
        self.succeeded = 0
        self.failed = 0
        self.busy: Span = 0
        self._stack_end: int | None = None

    @property
    def state(self) -> WorkerState:
        if self.draining:
            return WorkerState.DRAINING
        if not self.ready.is_set():
            return WorkerState.STARTING
        return WorkerState.PROCESSING if self.claims else WorkerState.IDLE

    @property
    def processed(self) -> int:
        return self.succeeded + self.failed

    @property
    def blocked(self) -> str:
        """What keeps it from answering, once that was reported."""
        if not self.reported_blocked:
            return ""
        return "its event loop is blocked" if self.stack else STANDS_STILL

    @property
    def blameless(self) -> bool:
        """Whether it was killed for a reason that is neither its own nor that of its tasks."""
        return self.task_outcome is not None and self.kill_reason is None

    async def spawn(self) -> None:
        """Start the process. It says `ready` when it has loaded the app."""
        stack_out, stack_in = os.pipe()
        try:
            await self.run("pitboss.worker.main", self.spec, self._env, stack_in)
        except BaseException:
            os.close(stack_out)
            raise
        finally:
            os.close(stack_in)
        self._stack_end = stack_out
        os.set_blocking(stack_out, False)

    def start(self, claim: Claim) -> None:
        key = claim.id, claim.token.claim
        self.claims[key] = claim
        self.since[key] = self._loop.time()
        self._solo = key if len(self.claims) == 1 else None
        self.base = self.peak = self.memory
        if self._channel is not None:
            self._channel.say(TaskMessage(claim))

    def ended_task(self, key: Key, *, well: bool, ran: Span) -> Claim | None:
        """Count the end of a task; its claim, or None if this worker does not have it."""
        claim = self.claims.pop(key, None)
        if claim is not None:
            del self.since[key]
            self.busy += ran
            if self._solo == key and self.peak > self.base:
                self.learned(claim, self.peak - self.base)
            if well:
                self.succeeded += 1
            else:
                self.failed += 1
        return claim

    def stop(self, claim: Claim) -> None:
        self.say(StopMessage(claim.id, claim.token.claim))

    def recall(self) -> None:
        self.say(RecallMessage())

    def kill_for(self, reason: TaskError | None = None, task_outcome: Outcome | None = None) -> None:
        """Kill it now. The first reason and the first outcome of its tasks count."""
        self.kill_reason = self.kill_reason or reason
        self.task_outcome = self.task_outcome or task_outcome
        self.kill()

    def ask_for_stack(self) -> None:
        """Have it write its stacks; this works even while its loop or its interpreter is blocked."""
        self.asked_for_stack, self.asked_at, self.stack = True, self._loop.time(), ""
        if self._process is not None and self._process.returncode is None and self.ready.is_set():
            with suppress(ProcessLookupError):
                self._process.send_signal(STACK_SIGNAL)

    def read_stack(self) -> str:
        """What it has written since `ask_for_stack`."""
        if self._stack_end is not None:
            with suppress(BlockingIOError):
                stack = os.read(self._stack_end, _STACK_LIMIT).decode(errors="replace")
                self.stack = stack or self.stack
        return self.stack

    async def ended(self) -> int:
        try:
            return await super().ended()
        finally:
            if self._stack_end is not None:
                os.close(self._stack_end)
                self._stack_end = None

    def _hear(self, message: ToManager) -> None:
        self.heard_at = self._loop.time()
        self.asked_for_stack = self.reported_blocked = False
        match message:
            case ReadyMessage():
                self.fresh = proportional(self.pid)
                self.ready.set()
            case BrokenMessage():
                self.broken = message
            case HeartbeatMessage(running, stuck, handled):
                self._beat(running, handled)
                if stuck and not self.draining:
                    self.on_stuck(self, stuck)
        self._heard(self, message)

    def _beat(self, running: int, handled: int) -> None:
        """Alive but deaf: it has had tasks and free slots for a while, but starts no task and ends none."""
        arrived = self._loop.time() - _TRAVEL_SECONDS
        given = sum(since <= arrived for since in self.since.values())
        waits = running < min(given, self.capacity) and handled == self.handled
        self.deaf_beats = self.deaf_beats + 1 if waits else 0
        self.handled = handled


def crash_error(worker: WorkerProcess, code: int | None) -> TaskError:
    """What is known about a worker's death, for the attempts that were lost with it."""
    if worker.kill_reason is not None:
        return worker.kill_reason
    killed = code == -signal.SIGKILL
    hint = " (SIGKILL from outside often means that the machine ran out of memory)" if killed else ""
    return TaskError(
        category="crash",
        type="WorkerCrashed",
        message=f"worker {worker.name} (pid {worker.pid}) {exit_text(code)} while it ran this task{hint}",
        fingerprint="",
    )


def overdue(worker: WorkerProcess, now: float, limit: Callable[[Claim], Span | None], grace: float) -> list[Claim]:
    """The tasks of a silent worker that are past their time limit: the worker can no longer end them itself."""
    found = []
    for key, claim in list(worker.claims.items())[: worker.capacity]:
        allowed = limit(claim)
        if allowed is not None and now - worker.since[key] >= allowed / SECOND + grace:
            found.append(claim)
    return found


def surely_started(worker: WorkerProcess, claim: Claim) -> bool:
    """Whether this task of a silent worker runs. One that came after its last message may wait behind another task."""
    since = worker.since[claim.id, claim.token.claim]
    return since <= worker.heard_at or len(worker.claims) == 1
