"""A function with its policy: what `@app.task` makes of it."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast

import msgspec

from pitboss.client.batch_handle import BatchHandle
from pitboss.client.batches import BatchOptions
from pitboss.client.context import Context, current
from pitboss.client.handle import Handle
from pitboss.client.handler_lease import lease_in
from pitboss.client.lazy_tasks import LARGE, Preparing
from pitboss.client.options import Options
from pitboss.model.canonical import Json
from pitboss.model.errors import InvalidInput
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.task import Claim, NewTask, Placed, Token
from pitboss.model.want_template import with_template

if TYPE_CHECKING:
    from pitboss.client.params import Params

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
T = TypeVar("T")


class Outbox(Protocol):
    """Where a handler's tasks go: the app it was declared in."""

    def new_id(self) -> str: ...

    def checked_queue(self, handler: "Handler[Any, Any, Any]", queue: str) -> str: ...

    def params_of(self, name: str, function: Callable[..., Any]) -> "Params": ...

    def place(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]: ...

    async def aplace(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]: ...

    def ask(self, work: Callable[[Any], Coroutine[Any, Any, T]], *, limit: float, what: str) -> T: ...

    async def aask(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T: ...

    def batch(self, tasks: Iterable[NewTask], **options: Unpack[BatchOptions]) -> BatchHandle: ...

    async def abatch(self, tasks: Iterable[NewTask], **options: Unpack[BatchOptions]) -> BatchHandle: ...


class Handler(Generic[P, R, C]):
    """A function that runs as a task. Called plainly it just runs; `enqueue` stores a task for it.

    `P` are its parameters, `R` is what its task results in, `C` what a plain call returns.
    """

    def __init__(
        self,
        function: Callable[P, C],
        outbox: Outbox,
        *,
        name: str,
        queue: str | None,
        policy: Policy,
        options: Options,
    ) -> None:
        update_wrapper(self, function)
        self.function, self._outbox = function, outbox
        self.name, self.lease = checked_name(name, "task"), lease_in(name, function)
        usual = self.lease.pool if self.lease else "default"
        self.queue = checked_name(queue or usual, "queue")
        self.policy, self.options = policy, options
        self.is_async = inspect.iscoroutinefunction(function)

    def __repr__(self) -> str:
        return f"<Handler {self.name} on queue {self.queue}>"

    @property
    def resources(self) -> str | None:
        """The pool of which each of its tasks holds a member."""
        return self.lease.pool if self.lease else None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now. Outside a task, it gets a context of its own."""
        if current() is not None:
            return self.function(*args, **kwargs)
        context = self._inline_context()
        for name, kind in self.params.injected.items():
            if kind is Context and name not in kwargs:
                kwargs[name] = context
        if self.is_async:
            work = cast("Coroutine[Any, Any, Any]", self.function(*args, **kwargs))
            return cast("C", _run_within(context, work))
        with context.running():
            return self.function(*args, **kwargs)

    @cached_property
    def params(self) -> "Params":
        return self._outbox.params_of(self.name, self.function)

    def using(self, **options: Any) -> "Handler[P, R, C]":
        """The same handler with other options: `fetch.using(delay="10m", key="u:1").enqueue(...)`."""
        other = copy(self)
        if "queue" in options:
            other.queue = self._outbox.checked_queue(self, checked_name(options.pop("queue"), "queue"))
        other.options = self.options.changed(**options)
        other.__dict__["params"] = self.params
        return other

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a task; when this returns, it survives anything. Refuses arguments that do not fit the function."""
        return self._handles(self._outbox.place([self.prepared(*args, **kwargs)], self.options))[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `enqueue`, for async callers."""
        return self._handles(await self._outbox.aplace([self.prepared(*args, **kwargs)], self.options))[0]

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Store many tasks in one act, each given by its arguments' names: all of them, or none."""
        return self._handles(self._outbox.place(self._prepared_many(calls), self.options))

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """As `enqueue_many`, for async callers."""
        return self._handles(await self._outbox.aplace(self._prepared_many(calls), self.options))

    def batch(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[BatchOptions]) -> BatchHandle:
        """Store a batch of tasks, each given by its arguments' names; `app.batch` says what the options are."""
        return self._outbox.batch(self._items(calls), **options)

    async def abatch(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[BatchOptions]) -> BatchHandle:
        """As `batch`, for async callers."""
        return await self._outbox.abatch(self._items(calls), **options)

    def prepared(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """The task that a call would store."""
        return self._new(self.params.pack(args, kwargs))

    def prepared_from(self, params: Mapping[str, Any]) -> NewTask:
        """The task for parameters given by name."""
        return self._new(self.params.check(params))

    def describe(self) -> HandlerInfo:
        """This handler as data, for the store's registry."""
        policy = msgspec.json.encode(self.policy).decode()
        schema = self.params.schema()
        return HandlerInfo(
            name=self.name,
            queue=self.queue,
            policy=policy,
            schema=with_template(schema, self.lease.template) if self.lease else schema,
            resources=self.resources,
        )

    def _items(self, calls: Iterable[Mapping[str, Any]]) -> list[NewTask]:
        if self.options.within is not None:
            raise InvalidInput(
                "a batch cannot be stored within a caller's transaction",
                why="it takes its place in its lane in an act of its own",
                fix="leave within= out, and create the batch after your commit",
            )
        return list(self._prepared_many(calls))

    def _prepared_many(self, calls: Iterable[Mapping[str, Any]]) -> Sequence[NewTask]:
        # What a caller's code has a part in happens here, call by call: he may use one mapping for all of them.
        packed = [self.params.check(call) for call in calls]
        return Preparing(self._new, packed) if len(packed) > LARGE else [self._new(params) for params in packed]

    def _new(self, params: Json) -> NewTask:
        parent = current()
        return self.options.task(
            task_id=self._outbox.new_id(),
            handler=self.name,
            queue=self.queue,
            params=params,
            parent=parent.id if parent else None,
            want=self.lease.template.want(params) if self.lease else None,
        )

    def _handles(self, placed: list[Placed]) -> list[Handle[R]]:
        return [Handle(self._outbox, one, self.params.unpack_result) for one in placed]

    def _inline_context(self) -> Context:
        claim = Claim(
            id=self._outbox.new_id(),
            token=Token(0, 1),
            handler=self.name,
            queue=self.queue,
            params="{}",
            attempt=1,
        )
        return Context(claim)


async def _run_within(context: Context, work: Coroutine[Any, Any, Any]) -> Any:
    with context.running():
        return await work
