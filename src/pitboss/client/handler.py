"""A function with its policy: what `@app.task` makes of it."""

import inspect
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from copy import copy
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from pitboss.client.batch_handle import BatchHandle
from pitboss.client.batches import BatchMethods, BatchOptions, refuse_order_keys
from pitboss.client.context import Context, current_context
from pitboss.client.handle import Handle
from pitboss.client.lease import UnheldLease
from pitboss.client.options import Options
from pitboss.client.policy_settings import PolicySettings
from pitboss.model.canonical import Json, from_json, to_json
from pitboss.model.duration import Span
from pitboss.model.errors import InvalidInput
from pitboss.model.failure import Routes
from pitboss.model.policy import Policy
from pitboss.model.queue import SYNC, USUAL, HandlerInfo, checked_name
from pitboss.model.task import Claim, NewTask, Placed, Token
from pitboss.model.want_template import WantTemplate, checked_template, with_template
from pitboss.telemetry.traces import sending, traced_meta

if TYPE_CHECKING:
    from pitboss.client.params import Params

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
# Fewer tasks than this are made at once, before anything else happens.
LARGE = 500
_NO_ROUTES = Routes()


class LeaseParameter(NamedTuple):
    """The parameter that gets the lease, the pool that it is of, and what each task wants of that pool."""

    parameter: str
    pool: str
    template: WantTemplate


class Handler(Generic[P, R, C]):
    """A function that runs as a task. Called plainly it just runs; `enqueue` stores a task for it.

    `P` are its parameters, `R` is what its task results in, `C` what a plain call returns.
    """

    def __init__(
        self,
        function: Callable[P, C],
        app: BatchMethods,
        *,
        name: str,
        queue: str | None,
        settings: PolicySettings,
        options: Options,
        routes: Routes = _NO_ROUTES,
        usual: Span | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.function, self._app = function, app
        self.name, self.lease = checked_name(name, "task"), lease_parameter(name, function)
        self.queue = checked_name(queue or (self.lease.pool if self.lease else "default"), "queue")
        self._settings, self.options, self.routes, self.usual = settings, options, routes, usual
        self.is_async = inspect.iscoroutinefunction(function)

    def __repr__(self) -> str:
        return f"<Handler {self.name} on queue {self.queue}>"

    @property
    def resources(self) -> str | None:
        """The pool of which each of its tasks holds a member."""
        return self.lease.pool if self.lease else None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now. Outside a task, it gets a context of its own."""
        if current_context.get(None) is not None:
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
        return self._app.params_of(self.name, self.function)

    @cached_property
    def policy(self) -> Policy:
        """What was declared; the settings of the installation say the rest."""
        return self._settings.policy(self._app.policy_defaults())

    def using(self, **options: Any) -> "Handler[P, R, C]":
        """The same handler with other options: `fetch.using(delay="10m", key="u:1").enqueue(...)`."""
        other = copy(self)
        if "queue" in options:
            other.queue = checked_name(options.pop("queue"), "queue")
            refuse_mixed(other, self._app.handlers)
        other.options = self.options.changed(**options)
        other.__dict__["params"] = self.params
        return other

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a task; when this returns, it survives anything. Refuses arguments that do not fit the function."""
        with sending(self.queue, self.name) as span:
            placed = self._app.place([self.prepared(*args, **kwargs)], self.options)
            span.placed(placed)
        return Handle(self._app, placed[0], self.params.unpack_result)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `enqueue`, for async callers."""
        with sending(self.queue, self.name) as span:
            placed = await self._app.aplace([self.prepared(*args, **kwargs)], self.options)
            span.placed(placed)
        return Handle(self._app, placed[0], self.params.unpack_result)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Store many tasks in one act, each given by its arguments' names: all of them, or none."""
        with sending(self.queue, self.name) as span:
            placed = self._app.place(self._prepared_many(calls), self.options)
            span.placed(placed)
        return self._handles(placed)

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """As `enqueue_many`, for async callers."""
        with sending(self.queue, self.name) as span:
            placed = await self._app.aplace(self._prepared_many(calls), self.options)
            span.placed(placed)
        return self._handles(placed)

    def batch(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[BatchOptions]) -> BatchHandle:
        """Store a batch of tasks, each given by its arguments' names; `app.batch` says what the options are."""
        return self._app.batch(self._items(calls), **options)

    async def abatch(self, calls: Iterable[Mapping[str, Any]], **options: Unpack[BatchOptions]) -> BatchHandle:
        """As `batch`, for async callers."""
        return await self._app.abatch(self._items(calls), **options)

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
            about=to_json(
                msgspec.to_builtins(self.routes)
                | ({} if self.usual is None else {USUAL: self.usual})
                | ({} if self.is_async else {SYNC: True})
            ),
        )

    def _items(self, calls: Iterable[Mapping[str, Any]]) -> list[NewTask]:
        if self.options.within is not None:
            raise InvalidInput(
                "a batch cannot be stored within a caller's transaction",
                why="it takes its place in its lane in an act of its own",
                fix="leave within= out, and create the batch after your commit",
            )
        refuse_order_keys([self.options])
        return list(self._prepared_many(calls))

    def _prepared_many(self, calls: Iterable[Mapping[str, Any]]) -> Sequence[NewTask]:
        # The params are packed here, call by call: the caller may use one mapping for all of them.
        packed = [self.params.check(call) for call in calls]
        return LazyTasks(self._new, packed) if len(packed) > LARGE else [self._new(params) for params in packed]

    def _new(self, params: Json) -> NewTask:
        parent = current_context.get(None)
        return self.options.task(
            task_id=self._app.new_id(),
            handler=self.name,
            queue=self.queue,
            params=params,
            parent=parent.id if parent else None,
            want=self.lease.template.want(params) if self.lease else None,
            meta=traced_meta(parent.inherited if parent else None),
        )

    def _handles(self, placed: list[Placed]) -> list[Handle[R]]:
        return [Handle(self._app, one, self.params.unpack_result) for one in placed]

    def _inline_context(self) -> Context:
        claim = Claim(
            id=self._app.new_id(),
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


class LazyTasks(Sequence[NewTask]):
    """The tasks of a large call, each made when it is first asked for, in the context in which this was made.

    Their parameters are checked before. Making them while the first ones are stored saves time.
    """

    def __init__(self, make: Callable[[Json], NewTask], params: Sequence[Json]) -> None:
        self._make, self._params, self._within = make, params, copy_context()
        self._made: list[NewTask] = []

    def __len__(self) -> int:
        return len(self._params)

    def __iter__(self) -> Iterator[NewTask]:
        self._make_up_to(len(self))
        return iter(self._made)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...

    @overload
    def __getitem__(self, place: slice) -> list[NewTask]: ...

    def __getitem__(self, place: int | slice) -> NewTask | list[NewTask]:
        wanted = range(len(self))[place]
        if isinstance(wanted, int):
            self._make_up_to(wanted + 1)
            return self._made[wanted]
        self._make_up_to(max(wanted, default=-1) + 1)
        return [self._made[number] for number in wanted]

    def _make_up_to(self, end: int) -> None:
        if len(self._made) < end:
            self._within.run(self._make_some, self._params[len(self._made) : end])

    def _make_some(self, params: Sequence[Json]) -> None:
        self._made += [self._make(one) for one in params]


def lease_parameter(task: str, function: Callable[..., Any]) -> LeaseParameter | None:
    """The parameter that asks for a lease, if any. A task holds one resource at a time."""
    parameters = inspect.signature(function).parameters
    found = {name: one.default for name, one in parameters.items() if isinstance(one.default, UnheldLease)}
    if not found:
        return None
    if len(found) > 1:
        raise InvalidInput(
            f'task "{task}" asks for {len(found)} leases: {", ".join(found)}',
            why="a task is given together with one member of one pool",
            fix="keep one as a parameter, and take the other inside: with pool.lease() as other: …",
        )
    ((name, asked),) = found.items()
    terms = asked.terms
    if terms.key is not None or terms.hold is not None:
        raise InvalidInput(
            f'the lease of task "{task}" says key= or hold=',
            why="a task holds its member as long as it runs, and its parameters make the key",
            fix='say sticky="…" with the name of a parameter, and leave hold= out',
        )
    template = WantTemplate(terms.labels, terms.sticky)
    others = {key: one for key, one in parameters.items() if key != name}
    checked_template(template, task, others)
    defaults = {key: others[key].default for key in template.parameters if others[key].default is not others[key].empty}
    return LeaseParameter(
        name, asked.source.name, WantTemplate(terms.labels, terms.sticky, from_json(to_json(defaults)))
    )


def refuse_mixed(handler: Handler[Any, Any, Any], declared: Mapping[str, Handler[Any, Any, Any]]) -> None:
    """All tasks of a queue hold members of one pool, or none does. `handler` may be a declared one on another queue."""
    queue, pool = handler.queue, handler.resources
    neighbours = [other for other in declared.values() if other.queue == queue]
    for other in neighbours:
        if other.resources != pool:
            raise InvalidInput(
                f'task "{handler.name}" cannot be on queue "{queue}"',
                why=f'"{other.name}" is on it and {_asks(other.resources)}, while "{handler.name}" {_asks(pool)}; '
                "a queue gives its tasks together with members of one pool, or without any",
                fix="give one of them a queue of its own with @app.task(queue=…)",
            )
    if handler.name in declared and pool is not None and not neighbours:
        raise InvalidInput(
            f'task "{handler.name}" cannot be put on queue "{queue}"',
            why=f'no handler binds that queue to "{pool}", so that the task would get no member of it',
            fix="leave queue= out, or declare a handler with that lease on that queue",
        )


def refuse_foreign_pool(handler: Handler[Any, Any, Any], pools: Collection[str]) -> None:
    """A handler asks for members of its own app's pools."""
    if handler.resources is not None and handler.resources not in pools:
        raise InvalidInput(
            f'task "{handler.name}" asks for a lease of "{handler.resources}", which its app does not have',
            why="the pool was declared in another app, and this one's managers know nothing of it",
            fix="declare the pool with app.resources(…) of the same app as the task",
        )


def _asks(pool: str | None) -> str:
    return f'asks for a lease of "{pool}"' if pool else "asks for no lease"
