"""What a running handler knows about its task, and what it can say about it."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pitboss.model.canonical import Json, from_json, to_json
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId
from pitboss.model.meta import EventMark, FailureMark, MessageMark, Meta, read_meta
from pitboss.model.task import Claim, NewTask, Token

# The context of the task that runs here, if one does.
current_context: ContextVar["Context"] = ContextVar("pitboss_context")
MAX_PERCENT = 100
MAX_NOTE = 500


class Context:
    """A handler's view of its own task. Get it as a parameter annotated `Context`, or through `pitboss.ctx`."""

    def __init__(
        self,
        claim: Claim,
        *,
        report: Callable[[int, str | None], None] | None = None,
        prepare: Callable[[str, Mapping[str, Any], Mapping[str, Any]], NewTask] | None = None,
    ) -> None:
        self.task = claim
        self._report, self._prepare = report, prepare
        self._follow_ups: list[NewTask] = []
        self._cancelled = False

    @property
    def id(self) -> TaskId:
        return self.task.id

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self.task.attempt

    @property
    def token(self) -> Token:
        """Grows with every claim: hand it to systems that can refuse an outdated writer."""
        return self.task.token

    @property
    def idempotency_key(self) -> str:
        """The same over all attempts of this task: hand it to systems that can recognise a repetition."""
        return self.task.id

    @property
    def cancelled(self) -> bool:
        """True once a cancellation of this task was asked for. A coroutine is cancelled anyway; a thread must look."""
        return self._cancelled

    @property
    def scheduled_for(self) -> datetime | None:
        """The tick of the schedule that put this task, or the task that this one follows; None without a schedule."""
        tick = self._meta.tick
        return None if tick is None else _date(tick.scheduled_for)

    @property
    def last_success(self) -> datetime | None:
        """The newest tick before `scheduled_for` whose task completed: what happened since then is still to do."""
        tick = self._meta.tick
        return None if tick is None or tick.last_success is None else _date(tick.last_success)

    @property
    def event(self) -> EventMark | None:
        """The event that this task handles, with its `id`, `name` and `key`."""
        return self._meta.event

    @property
    def message(self) -> MessageMark | None:
        """The message of a broker that this task was, or the task that this one follows: its `id`, `headers`, …"""
        return self._meta.message

    @property
    def failed(self) -> FailureMark | None:
        """The failed task that this one is the fallback of, or the dead letter."""
        return self._meta.failure

    @cached_property
    def inherited(self) -> Json | None:
        """What the tasks that this one enqueues are told of where it comes from. They do not follow its failure."""
        meta = self.task.meta
        if meta is None or '"failure"' not in meta:
            return meta
        kept = {key: value for key, value in from_json(meta).items() if key != "failure"}
        return to_json(kept) if kept else None

    def progress(self, percent: int, note: str | None = None) -> None:
        """Say how far it is, from 0 to 100, with a short note. Best effort: it does not wait for the store."""
        if not 0 <= percent <= MAX_PERCENT:
            raise InvalidInput(f"progress {percent} is not a percentage", why="it goes from 0 to 100", fix="scale it")
        if self._report:
            self._report(int(percent), note[:MAX_NOTE] if note else note)

    def enqueue(self, task: Any, /, *args: Any, **params: Any) -> TaskId:
        """Add a follow-up task, stored in the same act as this task's success: both happen, or neither.

        `task` is a handler (or `handler.using(...)`), or the name of one.
        """
        new: NewTask = task.prepared(*args, **params) if hasattr(task, "prepared") else self._by_name(task, params)
        self._follow_ups.append(new)
        return new.id

    def follow_ups(self) -> tuple[NewTask, ...]:
        return tuple(self._follow_ups)

    def ask_to_stop(self) -> None:
        self._cancelled = True

    def running(self) -> "_Running":
        """Makes this the context that `pitboss.ctx` means, in a `with` block."""
        return _Running(self)

    @cached_property
    def _meta(self) -> Meta:
        return read_meta(self.task.meta)

    def _by_name(self, name: str, params: Mapping[str, Any]) -> NewTask:
        if self._prepare is None:
            raise InvalidInput(
                f"{name!r} cannot be enqueued by name here",
                why="a handler that is called directly has no app to look the name up in",
                fix="pass the handler itself",
            )
        return self._prepare(name, params, {})


def _date(moment: Moment) -> datetime:
    return datetime.fromtimestamp(moment / SECOND, UTC)


class _Running:
    """A class and not a generator: every task enters one, and this costs a third."""

    __slots__ = ("_context", "_mark")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._mark = current_context.set(self._context)

    def __exit__(self, *_: object) -> None:
        current_context.reset(self._mark)


class _Current(Context):
    """Forwards to the context of the task that runs here."""

    def __init__(self) -> None:
        pass

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        context = current_context.get(None)
        if context is None:
            raise RuntimeError("pitboss.ctx only works inside a handler: no task is running here")
        return getattr(context, name)


ctx: Context = _Current()


def current() -> Context | None:
    """The context of the task that runs here, if one does."""
    return current_context.get(None)
