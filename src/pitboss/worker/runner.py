"""One claim → one outcome: find the handler, build its arguments, run it within its time limit."""

import asyncio
import concurrent.futures.thread
import contextvars
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec

from pitboss.client.context import Context
from pitboss.client.state import StatePlaceholder
from pitboss.model.canonical import Json, printable
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import InvalidInput, KeyMissing
from pitboss.model.fingerprint import fingerprint
from pitboss.model.outcome import (
    NO_KEY,
    Cancelled,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Released,
    Retry,
    Rotated,
    Snooze,
    TimedOut,
)
from pitboss.model.policy import Policy
from pitboss.model.resource import Report, UseEnd
from pitboss.model.signals import Cancel, Fail, RateLimited, Signal
from pitboss.model.signals import Retry as RetrySignal
from pitboss.model.signals import Snooze as SnoozeSignal
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.worker import stacks
from pitboss.worker.task_lease import TaskLease, judged, task_lease
from pitboss.worker.worker_states import WorkerStates

GRACE_SECONDS = 2.0
_OUR_FILES = (__file__, concurrent.futures.thread.__file__)
Prepare = Callable[[str, Mapping[str, Any], Mapping[str, Any]], NewTask]
Abandon = Callable[[Claim, Outcome], None]
Hidden = Callable[[str], str]


class Arguments(Protocol):
    """Converts a handler's arguments and result from and to JSON."""

    injected: dict[str, Any]

    def unpack(self, params: Json) -> dict[str, Any]: ...

    def pack_result(self, value: object) -> Json: ...


class Runnable(Protocol):
    """What the runner needs from a handler."""

    name: str
    function: Callable[..., Any]
    is_async: bool

    @property
    def policy(self) -> Policy: ...

    @property
    def params(self) -> Arguments: ...


class Ran(NamedTuple):
    """The outcome of a claim, how the resource that it held behaved, and the end of its use."""

    outcome: Outcome
    report: Report | None = None
    use_end: UseEnd | None = None


class Runner:
    """Runs claims of known handlers. A sync function runs in the executor, never on the loop.

    A coroutine that ignores its cancellation is abandoned: `abandon` gets the outcome to report, and the coroutine's
    own outcome is dropped. `stuck` counts abandoned coroutines, and threads that do not return. `hidden` removes the
    secrets that were opened in this process from a text.
    """

    def __init__(
        self,
        handlers: Mapping[str, Runnable],
        *,
        executor: Executor | None = None,
        report: Callable[[Claim, int, str | None], None] | None = None,
        prepare: Prepare | None = None,
        abandon: Abandon | None = None,
        hidden: Hidden | None = None,
    ) -> None:
        self._handlers, self._executor, self._hidden = handlers, executor, hidden
        self._report, self._prepare, self._abandon = report, prepare, abandon
        self._states = WorkerStates()
        self.stuck = 0
        self._contexts: dict[tuple[str, int], tuple[Context, asyncio.Task[Any] | None]] = {}
        self._threads: dict[tuple[str, int], int] = {}

    async def run(self, claim: Claim, task: "asyncio.Task[Any] | None" = None) -> Ran:
        """Run it. Never raises, whatever the handler does. `task` is the asyncio task that runs this, if known."""
        handler = self._handlers.get(claim.handler)
        if handler is None:
            return Ran(Released())
        context = Context(claim, report=self._reporter(claim), prepare=self._prepare)
        key, running = (claim.id, claim.token.claim), task or asyncio.current_task()
        self._contexts[key] = context, running
        held: TaskLease | None = None
        try:
            arguments, injected = handler.params.unpack(claim.params), handler.params.injected
            held = task_lease(claim, injected) if injected else None
            limit = handler.policy.timeout if claim.timeout is None else claim.timeout
            # Each nested coroutine costs time for every task: use as few as possible.
            work = (
                self._call(handler, arguments, context, held)
                if injected
                else self._execute(handler, arguments, context)
            )
            value = await (work if limit is None else self._within(limit, claim, work))
            done = Completed(handler.params.pack_result(value), context.follow_ups())
            return Ran(*judged(held, done, None), None if held is None else await held.end())
        except BaseException as error:  # the worker must survive it, and the task must get an outcome
            outcome, report = judged(held, _outcome(claim, context, error, running), error)
            use_end = None if held is None else await held.end(error)
            return Ran(hidden_in(outcome, self._hidden) if self._hidden else outcome, report, use_end)
        finally:
            del self._contexts[key]

    def stop(self, claim: Claim) -> None:
        """Cancel it: a coroutine is cancelled, a thread can check `ctx.cancelled`."""
        context, task = self._contexts.get((claim.id, claim.token.claim), (None, None))
        # Every renewal asks again, but a handler that is cleaning up must not be interrupted twice.
        if context is not None and not context.cancelled:
            context.ask_to_stop()
            if task is not None and self._handlers[claim.handler].is_async:
                task.cancel()
                given_up = Cancelled("cancelled; it ignored the cancellation and was abandoned")
                self._give_up_after(GRACE_SECONDS, claim, lambda: given_up)

    def stack(self, key: tuple[str, int]) -> tuple[tuple[str, ...], str]:
        """Where a task is, and a note if it has not started."""
        if key not in self._contexts:
            return (), "it waits in its worker for a free slot"
        thread, (_, running) = self._threads.get(key), self._contexts[key]
        if thread is not None:
            return stacks.of_thread(thread), ""
        return stacks.of_coroutine(None if running is None else running.get_coro()), ""

    async def close(self) -> None:
        """Close the worker states."""
        await self._states.close()

    async def _call(
        self, handler: Runnable, arguments: dict[str, Any], context: Context, held: TaskLease | None
    ) -> Any:
        injected = handler.params.injected
        wanted = {name: kind for name, kind in injected.items() if isinstance(kind, StatePlaceholder)}
        # Opening a state is part of the task: its log lines should name the task.
        with context.running():
            if held is not None:
                await held.prepare()
            async with self._states.using(wanted) as states:
                given = dict.fromkeys(injected.keys() - wanted.keys(), context) | states
                if held is not None:
                    given[held.parameter] = held.lease
                return await self._execute(handler, {**arguments, **given}, context)

    async def _execute(self, handler: Runnable, arguments: dict[str, Any], context: Context) -> Any:
        with context.running():
            if handler.is_async:
                return await handler.function(**arguments)
            here, key = contextvars.copy_context(), (context.id, context.token.claim)
            return await self._in_thread(partial(here.run, self._quietly, key, handler.function, arguments))

    def _quietly(self, key: tuple[str, int], function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """In the thread."""
        self._threads[key] = threading.get_ident()
        try:
            return function(**arguments)
        except StopIteration as error:
            raise _Stopped("StopIteration left the handler") from error
        finally:
            del self._threads[key]

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                # A thread cannot be killed. It keeps its slot until it returns.
                self.stuck += 1
                future.add_done_callback(self._unstuck)
            raise

    def _unstuck(self, future: "asyncio.Future[Any]") -> None:
        self.stuck -= 1
        if not future.cancelled():
            future.exception()

    async def _within(self, limit: Span, claim: Claim, work: Coroutine[Any, Any, Any]) -> Any:
        timer = asyncio.timeout(limit / SECOND)
        told = f"it did not end within its time limit of {limit / SECOND:g} s"
        deadline = self._give_up_after(limit / SECOND + GRACE_SECONDS, claim, lambda: _ignored(claim, told))
        try:
            async with timer:
                return await work
        except TimeoutError as error:
            if timer.expired():
                raise _OutOfTime(told) from error
            raise
        finally:
            deadline.cancel()

    def _give_up_after(self, seconds: float, claim: Claim, outcome: Callable[[], Outcome]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._give_up, claim, outcome)

    def _give_up(self, claim: Claim, outcome: Callable[[], Outcome]) -> None:
        if self._abandon is not None and (claim.id, claim.token.claim) in self._contexts:
            self._abandon(claim, outcome())

    def _reporter(self, claim: Claim) -> Callable[[int, str | None], None] | None:
        report, hidden = self._report, self._hidden
        if report is None or hidden is None:
            return None if report is None else lambda percent, note: report(claim, percent, note)
        return lambda percent, note: report(claim, percent, hidden(note) if note else note)


def _outcome(claim: Claim, context: Context, error: BaseException, running: "asyncio.Task[Any] | None") -> Outcome:
    match error:
        case _OutOfTime():
            return _timed_out(claim, error)
        case asyncio.CancelledError() if context.cancelled:
            return Cancelled("cancelled")
        case asyncio.CancelledError() if running is not None and running.cancelling():
            return Released(started=True)
    # Also a cancellation of something that the handler awaited: given back, the task would run again without end.
    return _raised(claim, error)


class _OutOfTime(TimeoutError):
    pass


class _Stopped(Exception):
    """Carries a StopIteration out of a thread: a future cannot hold one."""


def _raised(claim: Claim, error: BaseException) -> Outcome:
    match error:
        case RetrySignal():
            return Retry(error.after, described(claim, error, category="retry"))
        case SnoozeSignal():
            return Snooze(error.delay, error.reason)
        case Cancel():
            return Cancelled(error.reason)
        case Fail():
            return Failed(described(claim, error, category=error.category, retryable=False))
        case RateLimited() if claim.leased is None:
            # There is no member to replace; but the far side said how long to pause.
            told = described(claim, error, category="rate_limited")
            return Retry(None, told) if error.retry_after is None else Snooze(error.retry_after, error.reason)
        case KeyMissing():
            return NO_KEY
        case InvalidInput():
            # The stored arguments do not fit the function, or its result is not JSON: a retry cannot help.
            return Failed(described(claim, error, category="invalid", retryable=False))
    return _failed(claim, error)


def _failed(claim: Claim, error: BaseException) -> Failed:
    return Failed(described(claim, error, category="error"))


def _timed_out(claim: Claim, error: BaseException) -> TimedOut:
    return TimedOut(described(claim, error.__cause__ or error, category="timeout", message=str(error)))


def _ignored(claim: Claim, told: str) -> TimedOut:
    return _timed_out(claim, _OutOfTime(f"{told}, ignored its cancellation, and was abandoned"))


def described(
    claim: Claim, error: BaseException, *, category: str, retryable: bool = True, message: str | None = None
) -> TaskError:
    """An exception as data. Its `str()` may fail or be huge; neither may lose the outcome."""
    try:
        told = str(error) if message is None else message
        trace = "".join(traceback.TracebackException(type(error), error, _of_the_handler(error.__traceback__)).format())
    except Exception:
        told, trace = f"{type(error).__name__} (its str() failed)", ""
    kind = type(error).__name__
    signal = isinstance(error, Signal)
    return TaskError(
        category=category,
        type=kind,
        message=printable(told, 4000),
        traceback=printable(trace),
        fingerprint=fingerprint(claim.handler, kind, told, "" if signal else trace),
        retryable=retryable,
    )


def _of_the_handler(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this package, which mean nothing to the handler's author."""
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in _OUR_FILES:
        trace = trace.tb_next
    return trace


def hidden_in(outcome: Outcome, hidden: Hidden) -> Outcome:
    """The outcome without secrets in its texts. A result belongs to the handler and stays as it is."""
    match outcome:
        case Failed() | TimedOut() | Rotated():
            return msgspec.structs.replace(outcome, error=_without_secrets(outcome.error, hidden))
        case Retry() | Crashed():
            error = outcome.error
            return outcome if error is None else msgspec.structs.replace(outcome, error=_without_secrets(error, hidden))
        case Snooze() | Cancelled():
            return msgspec.structs.replace(outcome, reason=hidden(outcome.reason))
        case Completed() | Released():
            return outcome


def _without_secrets(error: TaskError, hidden: Hidden) -> TaskError:
    return msgspec.structs.replace(
        error, message=hidden(error.message), traceback=hidden(error.traceback), type=hidden(error.type)
    )
