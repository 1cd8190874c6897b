"""One claim → one outcome: find the handler, make its arguments, run it within its time, say what came of it."""

import asyncio
import concurrent.futures.thread
import contextvars
import traceback
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from pitboss.client.context import Context
from pitboss.client.state import StatePlaceholder
from pitboss.model.canonical import Json, printable
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import InvalidInput
from pitboss.model.fingerprint import fingerprint
from pitboss.model.outcome import Cancelled, Completed, Failed, Outcome, Released, Retry, Snooze, TimedOut
from pitboss.model.policy import Policy
from pitboss.model.resource import Report
from pitboss.model.signals import Cancel, Fail, RateLimited, Signal
from pitboss.model.signals import Retry as RetrySignal
from pitboss.model.signals import Snooze as SnoozeSignal
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.worker.hiding import hidden_in
from pitboss.worker.lending import Lent, judged, lent
from pitboss.worker.states import States

GRACE_SECONDS = 2.0
_OUR_FILES = (__file__, concurrent.futures.thread.__file__)
Prepare = Callable[[str, Mapping[str, Any], Mapping[str, Any]], NewTask]
Abandon = Callable[[Claim, Outcome], None]


class Arguments(Protocol):
    """How a handler's arguments and result are stored."""

    injected: dict[str, Any]

    def unpack(self, params: Json) -> dict[str, Any]: ...

    def pack_result(self, value: object) -> Json: ...


class Runnable(Protocol):
    """What the runner needs of a handler."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    policy: Policy

    @property
    def params(self) -> Arguments: ...


class Ran(NamedTuple):
    """What came of a claim, and what that says about the resource that it held."""

    outcome: Outcome
    report: Report | None = None


class Runner:
    """Runs claims of known handlers. A sync function runs in the executor, never on the loop.

    A coroutine that does not yield to its cancellation is abandoned: `abandon` hears what is to be told of it, and
    what it comes to later means nothing. Abandoned tasks and threads that do not return are `stuck`. `hidden` takes
    the secrets that were opened here out of what is told.
    """

    def __init__(
        self,
        handlers: Mapping[str, Runnable],
        *,
        executor: Executor | None = None,
        report: Callable[[Claim, int, str | None], None] | None = None,
        prepare: Prepare | None = None,
        abandon: Abandon | None = None,
        hidden: Callable[[str], str] | None = None,
    ) -> None:
        self._handlers, self._executor, self._hidden = handlers, executor, hidden
        self._report, self._prepare, self._abandon = report, prepare, abandon
        self._states = States()
        self.stuck = 0
        self._contexts: dict[tuple[str, int], tuple[Context, asyncio.Task[Any] | None]] = {}

    async def run(self, claim: Claim, task: "asyncio.Task[Any] | None" = None) -> Ran:
        """What came of it. Never raises, whatever the handler does. `task` is the one that runs this, if known."""
        handler = self._handlers.get(claim.handler)
        if handler is None:
            return Ran(Released())
        context = Context(claim, report=self._reporter(claim), prepare=self._prepare)
        key = claim.id, claim.token.claim
        self._contexts[key] = context, task or asyncio.current_task()
        held: Lent | None = None
        try:
            arguments, injected = handler.params.unpack(claim.params), handler.params.injected
            held = lent(claim, injected) if injected else None
            limit = handler.policy.timeout if claim.timeout is None else claim.timeout
            # As few coroutines in each other as there can be: every one of them costs every task.
            work = (
                self._call(handler, arguments, context, held)
                if injected
                else self._execute(handler, arguments, context)
            )
            value = await (work if limit is None else self._within(limit, claim, work))
            done = Completed(handler.params.pack_result(value), context.follow_ups())
            return Ran(*judged(held, done, None))
        except BaseException as error:  # whatever it is, the task must hear of it, and the worker must live
            outcome, report = judged(held, _outcome(claim, context, error), error)
            return Ran(hidden_in(outcome, self._hidden) if self._hidden else outcome, report)
        finally:
            del self._contexts[key]

    def stop(self, claim: Claim) -> None:
        """Somebody asked to cancel it: a coroutine is cancelled, a thread can see it in `ctx.cancelled`."""
        context, task = self._contexts.get((claim.id, claim.token.claim), (None, None))
        # It is asked again with every renewal, but a handler that cleans up must not be broken into.
        if context is not None and not context.cancelled:
            context.ask_to_stop()
            if task is not None and self._handlers[claim.handler].is_async:
                task.cancel()
                given_up = Cancelled("cancelled; it did not yield, and was abandoned")
                self._give_up_after(GRACE_SECONDS, claim, lambda: given_up)

    async def close(self) -> None:
        """Close the states that live in this worker."""
        await self._states.close()

    async def _call(self, handler: Runnable, arguments: dict[str, Any], context: Context, held: Lent | None) -> Any:
        injected = handler.params.injected
        wanted = {name: kind for name, kind in injected.items() if isinstance(kind, StatePlaceholder)}
        # Opening a state is part of the task too: what is logged then should say so.
        with context.running():
            if held is not None:
                await held.prepare()
            async with self._states.lent(wanted) as states:
                given = dict.fromkeys(injected.keys() - wanted.keys(), context) | states
                if held is not None:
                    given[held.parameter] = held.lease
                return await self._execute(handler, {**arguments, **given}, context)

    async def _execute(self, handler: Runnable, arguments: dict[str, Any], context: Context) -> Any:
        with context.running():
            if handler.is_async:
                return await handler.function(**arguments)
            here = contextvars.copy_context()
            return await self._in_thread(partial(here.run, _quietly, handler.function, arguments))

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                # A thread cannot be ended. It goes on in a place that no other task can have meanwhile.
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


def _outcome(claim: Claim, context: Context, error: BaseException) -> Outcome:
    match error:
        case _OutOfTime():
            return _timed_out(claim, error)
        case asyncio.CancelledError():
            return Cancelled("cancelled") if context.cancelled else Released(started=True)
    return _raised(claim, error)


class _OutOfTime(TimeoutError):
    pass


class _Stopped(Exception):
    """Carries a StopIteration out of a thread, where a future cannot hold it."""


def _quietly(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:
        raise _Stopped("StopIteration left the handler") from error


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
            # Nothing can be handed on; but the far side's wish for a pause is known.
            told = described(claim, error, category="rate_limited")
            return Retry(None, told) if error.retry_after is None else Snooze(error.retry_after, error.reason)
        case InvalidInput():
            # The stored arguments do not fit the function, or its result is no JSON: no repetition changes that.
            return Failed(described(claim, error, category="invalid", retryable=False))
    return _failed(claim, error)


def _failed(claim: Claim, error: BaseException) -> Failed:
    return Failed(described(claim, error, category="error"))


def _timed_out(claim: Claim, error: BaseException) -> TimedOut:
    return TimedOut(described(claim, error.__cause__ or error, category="timeout", message=str(error)))


def _ignored(claim: Claim, told: str) -> TimedOut:
    return _timed_out(claim, _OutOfTime(f"{told}, did not yield when it was cancelled, and was abandoned"))


def described(
    claim: Claim, error: BaseException, *, category: str, retryable: bool = True, message: str | None = None
) -> TaskError:
    """An exception as data. Its own text may fail or be huge; neither may lose the outcome."""
    try:
        told = str(error) if message is None else message
        trace = "".join(traceback.TracebackException(type(error), error, _of_the_handler(error.__traceback__)).format())
    except Exception:
        told, trace = f"{type(error).__name__} (its text cannot be made)", ""
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
    """The traceback from where the handler begins: how it was called says nothing to its author."""
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in _OUR_FILES:
        trace = trace.tb_next
    return trace
