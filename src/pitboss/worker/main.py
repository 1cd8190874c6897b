"""The worker process: gets tasks from its manager, runs them, and sends back their outcomes."""

import asyncio
import contextlib
import faulthandler
import logging
import os
import resource
import signal
import socket
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from pitboss.client.context import current
from pitboss.model.duration import SECOND, Span
from pitboss.model.log_settings import LogSettings
from pitboss.model.outcome import Cancelled, Completed, Failed, Outcome, Released, TimedOut
from pitboss.model.task import Claim, TaskError
from pitboss.telemetry import traces
from pitboss.telemetry.logs.worker import WorkerLogs, set_up_worker
from pitboss.worker.channel import (
    AnswerMessage,
    Channel,
    DrainMessage,
    ErrorMessage,
    HeartbeatMessage,
    MetricsMessage,
    ProgressMessage,
    ReadyMessage,
    RecallMessage,
    ResultMessage,
    StackMessage,
    StackOfMessage,
    StopMessage,
    TaskMessage,
    ToManager,
    ToWorker,
    worker_codec,
)
from pitboss.worker.child import die_with_parent, leave, load_app_or_leave
from pitboss.worker.runner import Runner
from pitboss.worker.store_proxy import StoreProxy
from pitboss.worker.traced_runs import traced

HEARTBEAT_SECONDS = 1.0
METRICS_EVERY = 5
# Makes the process write the stacks of all its threads. A real-time signal, because handlers rarely use those.
STACK_SIGNAL = signal.SIGRTMIN + 7
_CLOSE_SECONDS = 10.0
_log = logging.getLogger("pitboss.worker")


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager passes to a worker at the start."""

    name: str
    target: str
    concurrency: int
    manager: int
    pool: str = "default"
    logs: LogSettings | None = None
    secrets_file: str | None = None
    # What the store's clock is ahead of the host's uptime.
    clock_offset: Span | None = None
    # The environment asks for traces.
    traces: bool = False


class Worker:
    """The tasks that run in this process, and those that wait in it for a free slot."""

    def __init__(self, spec: WorkerSpec, app: Any, logs: WorkerLogs | None = None) -> None:
        self._spec, self._app, self._logs = spec, app, logs
        self._executor = ThreadPoolExecutor(spec.concurrency, thread_name_prefix="pitboss-task")
        self._runner = Runner(
            app.handlers,
            executor=self._executor,
            report=self._report,
            prepare=self._prepare,
            abandon=self._abandoned,
            hidden=app.redactor.hidden,
        )
        self._run_claim = traced(self._runner.run)
        self._running: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._claims: dict[tuple[str, int], Claim] = {}
        self._waiting: deque[Claim] = deque()
        self._over = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._draining = False
        self._handled = 0
        # Messages that came before the channel was ready to answer.
        self._early: list[ToWorker] | None = []
        self._channel: Channel[ToWorker, ToManager]
        self._store: StoreProxy
        self._loop = asyncio.get_running_loop()

    async def run(self, end: socket.socket) -> None:
        """Serve until the manager is gone, or the worker is drained."""
        self._channel = await Channel.over(end, worker_codec(), self._hear, self._hang_up)
        self._store = StoreProxy(self._channel.say, self._spec.clock_offset)
        self._app.use(self._store)
        self._channel.say(ReadyMessage(os.getpid()))
        early, self._early = self._early or [], None
        for message in early:
            self._hear(message)
        beating = asyncio.create_task(self._beat())
        await self._over.wait()
        beating.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._runner.close()
        self._channel.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._hung_up.wait()

    def _hang_up(self) -> None:
        self._hung_up.set()
        self._over.set()

    def _hear(self, message: ToWorker) -> None:
        if self._early is not None:
            self._early.append(message)
            return
        match message:
            case TaskMessage(claim):
                if len(self._running) < self._spec.concurrency:
                    self._start(claim)
                else:
                    self._waiting.append(claim)
            case StopMessage(task, number):
                self._stop(task, number)
            case StackMessage(task, number):
                lines, note = self._runner.stack((task, number))
                self._channel.say(StackOfMessage(task, number, lines, note))
            case RecallMessage():
                self._give_back()
            case DrainMessage():
                self._give_back()
                self._draining = True
                self._end_if_drained()
            case AnswerMessage():
                self._store.hear(message)

    def _start(self, claim: Claim) -> None:
        key = claim.id, claim.token.claim
        self._claims[key] = claim
        self._running[key] = self._loop.create_task(self._work(claim, key))

    def _stop(self, task: str, number: int) -> None:
        claim = self._claims.get((task, number))
        if claim is not None:
            self._runner.stop(claim)
            return
        for claim in self._waiting:
            if claim.id == task and claim.token.claim == number:
                self._waiting.remove(claim)
                self._channel.say(ErrorMessage(task, number, 0, Cancelled("cancelled before it started")))
                return

    def _give_back(self) -> None:
        for claim in self._waiting:
            self._channel.say(ErrorMessage(claim.id, claim.token.claim, 0, Released()))
        self._waiting.clear()

    async def _work(self, claim: Claim, key: tuple[str, int]) -> None:
        began = self._loop.time()
        outcome, report, use_end = await self._run_claim(claim, self._running[key])
        ran = round((self._loop.time() - began) * SECOND)
        if self._running.pop(key, None) is None:
            self._runner.stuck -= 1
            return
        kind = ResultMessage if type(outcome) is Completed else ErrorMessage
        if isinstance(outcome, Failed | TimedOut):
            self._log_failure(claim, outcome.error)
        self._ended(claim, key, kind(claim.id, claim.token.claim, ran, outcome, report, use_end))

    def _ended(self, claim: Claim, key: tuple[str, int], message: ToManager) -> None:
        self._channel.say(message)
        del self._claims[key]
        self._handled += 1
        if self._waiting:
            self._start(self._waiting.popleft())
        elif self._draining:
            self._end_if_drained()

    def _log_failure(self, claim: Claim, error: TaskError) -> None:
        facts = {"task_id": claim.id, "handler": claim.handler, "queue": claim.queue, "attempt": claim.attempt}
        told = {"category": error.category, "error": f"{error.type}: {error.message}", "traceback": error.traceback}
        _log.info("attempt failed", extra=facts | told)

    def _abandoned(self, claim: Claim, outcome: Outcome) -> None:
        """The handler still runs, but its outcome no longer counts."""
        key = claim.id, claim.token.claim
        if self._running.pop(key, None) is not None:
            self._runner.stuck += 1
            self._ended(claim, key, ErrorMessage(claim.id, claim.token.claim, 0, outcome))

    def _end_if_drained(self) -> None:
        if not self._running:
            self._channel.flush()
            self._over.set()

    def _report(self, claim: Claim, percent: int, note: str | None) -> None:
        # A handler may report from a thread.
        message = ProgressMessage(claim.id, claim.token.claim, percent, note)
        self._loop.call_soon_threadsafe(self._channel.say, message)

    def _prepare(self, name: str, params: Any, options: Any) -> Any:
        return self._app.prepared(name, params, **options)

    async def _beat(self) -> None:
        count = 0
        while True:
            self._channel.say(HeartbeatMessage(len(self._running), self._runner.stuck, self._handled))
            if count % METRICS_EVERY == 0:
                self._channel.say(_metrics(self._handled))
            count += 1
            if self._logs is not None:
                # The app may have configured logging since, and removed our handlers.
                self._logs.attach()
            await asyncio.sleep(HEARTBEAT_SECONDS)


def _metrics(handled: int) -> MetricsMessage:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return MetricsMessage(pages * resource.getpagesize(), usage.ru_utime + usage.ru_stime, handled)


async def _serve(spec: WorkerSpec, app: Any, end: socket.socket, logs: WorkerLogs | None) -> None:
    await Worker(spec, app, logs).run(end)
    await asyncio.to_thread(traces.flush)
    # Inside the loop: closing it would wait for coroutines that ignore their cancellation. They are settled already.
    leave(0)


def main() -> None:
    """`python -m pitboss.worker.main SPEC FD STACK_FD`, started by a manager."""
    spec = msgspec.json.decode(sys.argv[1], type=WorkerSpec)
    end = socket.socket(fileno=int(sys.argv[2]))
    faulthandler.register(STACK_SIGNAL, file=int(sys.argv[3]), all_threads=True)
    die_with_parent(spec.manager, end)
    app = load_app_or_leave(spec.target, end)
    app.secrets_file = spec.secrets_file
    if spec.traces:
        traces.configure()
    logs = None
    if spec.logs is not None:
        hidden = app.redactor.hidden_bytes
        logs = set_up_worker(spec.logs, pool=spec.pool, worker=spec.name, current=_current_claim, hidden=hidden)
    uvloop.run(_serve(spec, app, end, logs))


def _current_claim() -> Claim | None:
    running = current()
    return running.task if running is not None else None


if __name__ == "__main__":
    main()
