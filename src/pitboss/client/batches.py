"""Makes batches: many tasks that start, pause, progress and end together."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from pitboss.client.app_core import LIMIT, AppCore
from pitboss.client.batch_handle import BatchHandle
from pitboss.client.client import Client
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import Batch, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.canonical import from_json, to_json
from pitboss.model.duration import SECOND, Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import checked_id
from pitboss.model.new_task import TaskOptions
from pitboss.model.queue import checked_name
from pitboss.model.task import NewTask

MAX_NAME = 200
_ITEMS_PER_SECOND = 1000
_Checked = TypeVar("_Checked")


class CompletionHandler(Protocol):
    """A handler whose task is put when a batch has ended."""

    name: str

    def prepared_from(self, params: Mapping[str, Any]) -> NewTask: ...


class BatchOptions(TypedDict, total=False):
    """The options of a batch. `id` is a UUID of version 7: the same id again makes no second batch."""

    name: str
    lane: str
    on_complete: NewTask | CompletionHandler | None
    data: Mapping[str, Any]
    paused: bool
    id: str | None
    by: str | None
    wait: Time | None


class BatchMethods(AppCore):
    """What an app offers for batches. `app.batch` takes tasks of any handlers, made by `handler.prepared(...)`."""

    def batch(self, tasks: Iterable[NewTask], **options: Unpack[BatchOptions]) -> BatchHandle:
        """Store a batch with its items, all of them or none; it starts when its lane has a free slot.

        `on_complete` is put when it has ended, also when it was requeued and has ended again, with `batch` and `status`
        among its params, and `run` (1, 2, …) if it takes that.
        """
        items = list(tasks)
        refuse_order_keys(items)
        new, wait = prepared(self, options)
        limit = LIMIT + len(items) / _ITEMS_PER_SECOND + (wait or 0) / SECOND
        return self.run(self._create(new, items, wait), limit=limit, what="storing the batch")

    async def abatch(self, tasks: Iterable[NewTask], **options: Unpack[BatchOptions]) -> BatchHandle:
        """As `batch`, for async callers."""
        items = list(tasks)
        refuse_order_keys(items)
        new, wait = prepared(self, options)
        return await self.arun(self._create(new, items, wait))

    def batch_handle(self, batch: BatchId) -> BatchHandle:
        """The way to a batch whose id is known. Asks nothing yet."""
        return BatchHandle(self, batch)

    def batches(self, *statuses: BatchStatus | str, limit: int = 100) -> list[Batch]:
        """Batches (of these statuses): those that run, then the queued in their order, the paused, the ended."""
        return self.run(self.abatches(*statuses, limit=limit), what="listing batches")

    async def abatches(self, *statuses: BatchStatus | str, limit: int = 100) -> list[Batch]:
        wanted = [status_of(status) for status in statuses]
        return await self.aask(lambda client: batches_of(client.store).batches(statuses=wanted, limit=limit))

    def lane(self, name: str = "default", *, max_running: int | None = None) -> Lane:
        """A lane as it is in the store, or changed so that this many of its batches run at a time."""
        return self.run(self.alane(name, max_running=max_running), what="changing the lane")

    async def alane(self, name: str = "default", *, max_running: int | None = None) -> Lane:
        checked_name(name, "lane")
        if max_running is not None:
            checked_max_running(max_running)

        def lane(client: Client) -> Coroutine[Any, Any, Lane]:
            details = {"max-running": max_running}
            acting = client if max_running is None else self.acting(client, "batches lanes", name, **details)
            return _lane(acting, name, max_running)

        return await self.aask(lane)

    async def _create(self, new: NewBatch, items: list[NewTask], wait: Span | None) -> BatchHandle:
        store = batches_of(self._connected().engine)
        completion = [new.on_complete] if new.on_complete else []
        client = await self.introduced(*{item.handler for item in (*items, *completion)})
        await client.patiently(lambda: store.create_batch(new, items), wait=wait)
        return BatchHandle(self, new.id)


def refuse_order_keys(items: Iterable[NewTask | TaskOptions]) -> None:
    """A batch holds its items until it runs, and so does an order key: an item could wait for one that never comes."""
    if any(item.order_key is not None for item in items):
        raise InvalidInput(
            "a task of a batch cannot have an order key",
            why="the batch says when its items run, and pauses them",
            fix="leave order_key= out, or enqueue these tasks without a batch",
        )


def prepared(app: AppCore, options: BatchOptions) -> tuple[NewBatch, Span | None]:
    """The batch that the options describe, checked, and how long to wait for room."""
    wait = options.get("wait")
    given = options.get("id")
    batch = app.new_id() if given is None else checked_id(given)
    new = NewBatch(
        id=batch,
        name=checked_title(options.get("name", "")),
        lane=checked_name(options.get("lane", "default"), "lane"),
        data=to_json(dict(options.get("data", {})), what="data of the batch"),
        by=options.get("by"),
        paused=options.get("paused", False),
        on_complete=_completion(app, batch, options.get("on_complete")),
    )
    return new, None if wait is None else span(wait, what="wait")


def checked_title(name: str) -> str:
    """The name of a batch, if it is a line of text."""
    to_json(name, what="name of the batch")
    if len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInput(
            f"{name!r:.60} cannot name a batch",
            why=f"a name is one line of at most {MAX_NAME} characters",
            fix="shorten it, and put the rest into data",
        )
    return name


def _completion(app: AppCore, batch: BatchId, task: NewTask | CompletionHandler | None) -> NewTask | None:
    """The task, checked now with the params that it will get, not only when the batch ends."""
    if task is None:
        return None
    name = task.handler if isinstance(task, NewTask) else task.name

    def with_params(told: Mapping[str, Any]) -> NewTask:
        if not isinstance(task, NewTask):
            return task.prepared_from(told)
        handler = app.handlers.get(name)
        if handler is None:
            return task
        return msgspec.structs.replace(task, params=handler.params.check({**from_json(task.params), **told}))

    try:
        return with_completion_params(batch, with_params)
    except InvalidInput as error:
        raise InvalidInput(
            f'"{name}" cannot be the on_complete of a batch',
            why=error.why,
            fix="let it take batch: str and status: str, which it gets when the batch has ended",
        ) from error


def with_completion_params(batch: BatchId, check: Callable[[Mapping[str, Any]], _Checked]) -> _Checked:
    """What `check` makes of the params that an `on_complete` task will get: with the number of the run, if it may."""
    told = {"batch": batch, "status": BatchStatus.DONE.value}
    try:
        return check({**told, "run": 1})
    except InvalidInput:
        return check(told)


async def _lane(client: Client, name: str, max_running: int | None) -> Lane:
    store = batches_of(client.store)
    if max_running is not None:
        return await store.change_lane(name, max_running)
    return next((lane for lane in await store.lanes() if lane.name == name), Lane(name=name))


def status_of(text: str) -> BatchStatus:
    """The status of that name."""
    try:
        return BatchStatus(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r:.60} is not a status of a batch",
            why=f"the statuses are {', '.join(BatchStatus)}",
            fix="use one of these",
        ) from None


def checked_max_running(max_running: int) -> int:
    if max_running < 1:
        raise InvalidInput(
            f"max_running={max_running} is too small",
            why="a lane in which nothing may run would never move",
            fix="say 1 or more; to stop a batch, pause it",
        )
    return max_running
