"""The decorators of an app that declare handlers: tasks, and handlers of dead letters."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from msgspec import UNSET, UnsetType

from pitboss.client.batches import BatchMethods
from pitboss.client.fallbacks import refuse_itself
from pitboss.client.handler import Handler, refuse_foreign_pool, refuse_mixed
from pitboss.client.options import Options
from pitboss.client.own_parameters import single_parameter
from pitboss.client.policy_settings import PolicyKeys, merged, policy_settings
from pitboss.model.duration import Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.failure import EVERY_QUEUE, Routes
from pitboss.model.policy import Backoff, Rule
from pitboss.model.queue import checked_name

P = ParamSpec("P")
R = TypeVar("R")
_NO_ROUTES = Routes()


class Decorator:
    """The types of `@app.task(...)`: it keeps the parameters, and knows the results of sync and async functions."""

    def __init__(self, make: Callable[[Callable[..., Any]], Handler[Any, Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Handler[P, R, Any]) -> Handler[P, R, Any]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Handler[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Handler[P, R, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Handler[Any, Any, Any]:
        return self._make(function)


class TaskDecorators(BatchMethods):
    """What an app offers to declare handlers."""

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Handler[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Handler[P, R, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | Time | None = None,
        timeout: Time | UnsetType | None = UNSET,
        rules: Mapping[str, Rule] | None = None,
        max_rotations: int = 10,
        fallback: Handler[Any, Any, Any] | str | None = None,
        usual: Time | None = None,
        **options: Any,
    ) -> Decorator: ...

    def task(self, *function: Callable[..., Any], **declared: Any) -> Any:
        """Declare a handler. The store knows it by its `name` (by default the function's), which should never change.

        Without `max_attempts`, `backoff` or `timeout`, `[defaults]` in the settings says them (5 attempts, no time
        limit); `timeout=None` is no time limit. `max_rotations` is how often a task may move on to another resource
        before that costs an attempt. `fallback` is the handler that gets the params of a task that failed for good.
        `usual` is how long a task takes, for estimates before the first ones have ended: `usual="12s"`. The further
        options (`priority`, `tags`, `key`, `order_key`, `expires_in` …) are those of `Handler.using`.
        """
        decorator = self._declaring(**declared)
        return decorator(*function) if function else decorator

    def dead_letter_handler(self, *queues: str, **keys: Unpack[PolicyKeys]) -> Decorator:
        """Declare a handler that gets each task of these queues that failed for good; "*" stands for all queues.

        Its only parameter gets a `pitboss.DeadTask`, or a dict if it is not annotated so. The further options are those
        of `task`. A dead letter whose handler fails is not given to it again.
        """
        if not queues or not all(isinstance(queue, str) for queue in queues):
            raise InvalidInput(
                "this dead-letter handler has no queue",
                why="it gets the failed tasks of the queues that it names",
                fix='write @app.dead_letter_handler("mail"), or "*" for all queues',
            )
        chosen = [queue if queue == EVERY_QUEUE else checked_name(queue, "queue") for queue in queues]
        options = merged(keys, PolicyKeys.__annotations__)

        def declare(function: Callable[..., Any]) -> Handler[Any, Any, Any]:
            refuse_handler(function, "dead_letter_handler")
            parameter = single_parameter(function.__name__, function, "dead letters", "dead")
            routes = Routes(dead_letters=tuple(dict.fromkeys(chosen)), parameter=parameter)
            return self._declaring(routes=routes, **options)(function)

        return Decorator(declare)

    def alert_channel(self, channel: str, **keys: Unpack[PolicyKeys]) -> Decorator:
        """Declare a handler that gets the messages of a channel of alerts: `@app.alert_channel("oncall")`.

        The settings need the channel too: `[alerts.channels.oncall]` with `type = "function"`. Its only parameter gets
        the message as a dict, as a webhook gets it. It runs on a worker; the further options are those of `task`. With
        another `name`, the channel says `handler`.
        """
        options = merged(keys, PolicyKeys.__annotations__)

        def declare(function: Callable[..., Any]) -> Handler[Any, Any, Any]:
            refuse_handler(function, "alert_channel")
            parameter = single_parameter(function.__name__, function, "alerts", "alert")
            named = {**options, "name": options.get("name") or checked_name(channel, "task")}
            return self._declaring(routes=Routes(alert_parameter=parameter), **named)(function)

        return Decorator(declare)

    def _declaring(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        fallback: Handler[Any, Any, Any] | str | None = None,
        routes: Routes = _NO_ROUTES,
        usual: Time | None = None,
        **keys: Any,
    ) -> Decorator:
        lasts = None if usual is None else _usual(usual)
        said = {key: keys.pop(key) for key in _POLICY if key in keys}
        settings, defaults = policy_settings(**said), Options().changed(**keys)
        target = fallback.name if isinstance(fallback, Handler) else fallback
        if target is not None and not isinstance(target, str):
            raise InvalidInput(
                f"{target!r:.60} cannot be a fallback",
                why="a fallback runs as a task of its own",
                fix="decorate that function with @app.task first, or name a task",
            )
        following = Routes(
            fallback=None if target is None else checked_name(target, "task"),
            dead_letters=routes.dead_letters,
            parameter=routes.parameter,
            alert_parameter=routes.alert_parameter,
        )

        def declare(function: Callable[..., Any]) -> Handler[Any, Any, Any]:
            known_as = name or function.__name__
            refuse_itself(known_as, following.fallback)
            handler: Handler[Any, Any, Any] = Handler(
                function,
                self,
                name=known_as,
                queue=queue,
                settings=settings,
                options=defaults,
                routes=following,
                usual=lasts,
            )
            self._add(handler)
            return handler

        return Decorator(declare)

    def _add(self, handler: Handler[Any, Any, Any]) -> None:
        if handler.name in self.handlers:
            raise InvalidInput(
                f'there are two handlers named "{handler.name}"',
                why=f"tasks are stored under that name; {self.handlers[handler.name].function} has it",
                fix="give one of them another name with @app.task(name=…)",
            )
        refuse_foreign_pool(handler, self.resource_pools)
        refuse_mixed(handler, self.handlers)
        self.handlers[handler.name] = handler


_POLICY = ("max_attempts", "backoff", "timeout", "rules", "max_rotations")


def _usual(value: Time) -> Span:
    found = span(value, what="usual")
    if not found:
        raise InvalidInput(
            "usual=0 is not a time that a task takes",
            why="estimates divide by it",
            fix='write it like usual="12s", or leave it out',
        )
    return found


def refuse_handler(function: Callable[..., Any], decorator: str) -> None:
    """A handler gets its params from one side."""
    if isinstance(function, Handler):
        raise InvalidInput(
            f'"{function.name}" is a handler already',
            why=f"@app.{decorator} declares one itself, and takes the options of @app.task",
            fix=f"leave @app.{decorator} or the other decorator out",
        )
