"""Hooks: functions of the user that hear what happened. Declared here, run in a process of their own, best effort."""

import inspect
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar, overload

from pitboss.client.handler import Handler
from pitboss.model.errors import InvalidInput
from pitboss.model.facts import (
    Fact,
    PoolScaled,
    RestartRequired,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    WorkerCrashed,
    WorkerGivenUp,
    WorkerStarted,
    kind_of,
)
from pitboss.model.queue import checked_name

E = TypeVar("E", bound=Fact)
R = TypeVar("R")


class Hook(NamedTuple):
    """One function, the kind of fact that it hears, and the fields that such a fact must have."""

    kind: str
    function: Callable[[Any], object]
    only: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__qualname__", repr(self.function)))

    @property
    def is_async(self) -> bool:
        kind: Any = type(self.function)
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(kind.__call__)

    def wants(self, fact: Fact) -> bool:
        return all(getattr(fact, field) == wanted for field, wanted in self.only)


class Hooks:
    """The hooks of one app, in the order in which they were declared."""

    def __init__(self) -> None:
        self._declared: dict[str, list[Hook]] = {}

    def add(self, hook: Hook) -> None:
        _check(hook)
        self._declared.setdefault(hook.kind, []).append(hook)

    def kinds(self) -> list[str]:
        """The kinds of facts that at least one hook wants."""
        return sorted(self._declared)

    def wanting(self, fact: Fact) -> list[Hook]:
        return [hook for hook in self._declared.get(fact.kind, ()) if hook.wants(fact)]

    def check(self, handlers: Collection[str]) -> None:
        """Refuse a hook for a handler that the app does not have: it would never be called."""
        for hook in (hook for hooks in self._declared.values() for hook in hooks):
            wanted = dict(hook.only).get("handler")
            if wanted is not None and wanted not in handlers:
                raise InvalidInput(
                    f'hook {hook.name} waits for a task "{wanted}", which this app does not have',
                    why="it would never be called",
                    fix=f"use one of {', '.join(sorted(handlers)) or 'none'}, or leave handler= out",
                )


class OnTask(Generic[E]):
    """Declares a hook for one kind of task fact: for all of them, or for a queue's, a handler's or a pool's."""

    def __init__(self, hooks: Hooks, fact: type[E]) -> None:
        self._hooks, self._kind = hooks, kind_of(fact)

    @overload
    def __call__(self, function: Callable[[E], R], /) -> Callable[[E], R]: ...

    @overload
    def __call__(
        self, *, queue: str | None = None, handler: str | Handler[Any, Any, Any] | None = None, pool: str | None = None
    ) -> Callable[[Callable[[E], R]], Callable[[E], R]]: ...

    def __call__(
        self,
        *function: Callable[[Any], Any],
        queue: str | None = None,
        handler: str | Handler[Any, Any, Any] | None = None,
        pool: str | None = None,
    ) -> Any:
        name = handler.name if isinstance(handler, Handler) else handler
        declare = _declaring(self._hooks, self._kind, {"queue": queue, "handler": name, "pool": pool})
        return declare(*function) if function else declare


class OnPool(Generic[E]):
    """Declares a hook for one kind of fact about workers: of all pools, or of one."""

    def __init__(self, hooks: Hooks, fact: type[E]) -> None:
        self._hooks, self._kind = hooks, kind_of(fact)

    @overload
    def __call__(self, function: Callable[[E], R], /) -> Callable[[E], R]: ...

    @overload
    def __call__(self, *, pool: str | None = None) -> Callable[[Callable[[E], R]], Callable[[E], R]]: ...

    def __call__(self, *function: Callable[[Any], Any], pool: str | None = None) -> Any:
        declare = _declaring(self._hooks, self._kind, {"pool": pool})
        return declare(*function) if function else declare


class HookDecorators:
    """The decorators of an app that declare hooks. A hook is a sync or async function of one fact.

    They run in one process of their own, beside the workers: a slow or broken hook holds up no task. Best effort:
    facts are dropped when hooks cannot keep up, and lost when their process dies. What must happen is a task.
    """

    hooks: Hooks

    @property
    def on_task_completed(self) -> OnTask[TaskCompleted]:
        """A handler returned."""
        return OnTask(self.hooks, TaskCompleted)

    @property
    def on_task_failed(self) -> OnTask[TaskFailed]:
        """A task failed for good: a dead letter."""
        return OnTask(self.hooks, TaskFailed)

    @property
    def on_task_retried(self) -> OnTask[TaskRetried]:
        """An attempt failed, and another one follows."""
        return OnTask(self.hooks, TaskRetried)

    @property
    def on_task_cancelled(self) -> OnTask[TaskCancelled]:
        """A task that was running, or about to, was cancelled."""
        return OnTask(self.hooks, TaskCancelled)

    @property
    def on_worker_started(self) -> OnPool[WorkerStarted]:
        """A worker takes tasks."""
        return OnPool(self.hooks, WorkerStarted)

    @property
    def on_worker_crashed(self) -> OnPool[WorkerCrashed]:
        """A worker ended unasked."""
        return OnPool(self.hooks, WorkerCrashed)

    @property
    def on_worker_given_up(self) -> OnPool[WorkerGivenUp]:
        """A worker crashed too often and is not started again by itself."""
        return OnPool(self.hooks, WorkerGivenUp)

    @property
    def on_pool_scaled(self) -> OnPool[PoolScaled]:
        """The number of workers that a pool should have changed."""
        return OnPool(self.hooks, PoolScaled)

    @property
    def on_restart_required(self) -> OnPool[RestartRequired]:
        """The delivery process could not reach its broker for long, and was replaced."""
        return OnPool(self.hooks, RestartRequired)


def _declaring(hooks: Hooks, kind: str, wanted: dict[str, str | None]) -> Callable[[Callable[[Any], Any]], Any]:
    fields = {"queue": "queue", "handler": "task", "pool": "pool"}
    chosen = tuple((key, checked_name(value, fields[key])) for key, value in wanted.items() if value is not None)

    def declare(function: Callable[[Any], Any]) -> Any:
        hooks.add(Hook(kind, function, chosen))
        return function

    return declare


def _check(hook: Hook) -> None:
    if isinstance(hook.function, Handler):
        raise InvalidInput(
            f'task "{hook.function.name}" cannot be a hook',
            why="a hook runs at once and is not stored; a task is stored and runs in a worker",
            fix="write a hook that enqueues the task",
        )
    try:
        # Functions written in C may have no signature.
        with suppress(ValueError):
            inspect.signature(hook.function).bind(object())
    except TypeError as error:
        raise InvalidInput(
            f"{hook.name} cannot be a hook for {hook.kind}",
            why=f"it is called with one argument, the fact: {error}",
            fix="write it as def hook(fact); filters go by name, as in queue=…",
        ) from error
