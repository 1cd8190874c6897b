"""Makes batches: many tasks that start, pause, progress and end together."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from pitboss.client.batch_handle import BatchHandle, Home
from pitboss.client.batch_store import batches_of, checked_room, status_of
from pitboss.client.client import Client
from pitboss.model.batch import Batch, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.canonical import from_json, to_json
from pitboss.model.duration import SECOND, Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import checked_id
from pitboss.model.queue import checked_name
from pitboss.model.task import NewTask

MAX_NAME = 200
_LIMIT = 15.0
_ITEMS_PER_SECOND = 1000


class Completing(Protocol):
    """A handler, as the end of a batch needs it."""

    name: str

    def prepared_from(self, params: Mapping[str, Any]) -> NewTask: ...


class BatchOptions(TypedDict, total=False):
    """What a batch may say about itself. `id` is a UUID of version 7: the same again makes no second batch."""

    name: str
    lane: str
    on_complete: NewTask | Completing | None
    data: Mapping[str, Any]
    paused: bool
    id: str | None
    by: str | None
    wait: Time | None


class Batching:
    """What an app offers for batches. `app.batch` takes tasks of any handlers, made by `handler.prepared(...)`."""

    def batch(self: Home, tasks: Iterable[NewTask], **options: Unpack[BatchOptions]) -> BatchHandle:
        """Store a batch with its items, all of them or none; it starts when its lane has a free slot.

        `on_complete` is put when it has ended, with `batch` and `status` among its params.
        """
        items = list(tasks)
        new, wait = prepared(self, options)
        limit = _LIMIT + len(items) / _ITEMS_PER_SECOND + (wait or 0) / SECOND
        self.ask(_creating(self, new, items, wait), limit=limit, what="storing the batch")
        return BatchHandle(self, new.id)

    async def abatch(self: Home, tasks: Iterable[NewTask], **options: Unpack[BatchOptions]) -> BatchHandle:
        """As `batch`, for async callers."""
        new, wait = prepared(self, options)
        await self.aask(_creating(self, new, list(tasks), wait))
        return BatchHandle(self, new.id)

    def batch_handle(self: Home, batch: BatchId) -> BatchHandle:
        """The way to a batch whose id is known. Asks nothing yet."""
        return BatchHandle(self, batch)

    def batches(self: Home, *statuses: BatchStatus | str, limit: int = 100) -> list[Batch]:
        """Batches (of these statuses): those that run, then the queued in their order, the paused, the ended."""
        return self.ask(_listing(statuses, limit), limit=_LIMIT, what="listing batches")

    async def abatches(self: Home, *statuses: BatchStatus | str, limit: int = 100) -> list[Batch]:
        return await self.aask(_listing(statuses, limit))

    def lane(self: Home, name: str = "default", *, max_running: int | None = None) -> Lane:
        """A lane as it is in the store, or changed so that this many of its batches run at a time."""
        return self.ask(_lane(name, max_running), limit=_LIMIT, what="changing the lane")

    async def alane(self: Home, name: str = "default", *, max_running: int | None = None) -> Lane:
        return await self.aask(_lane(name, max_running))


def prepared(home: Home, options: BatchOptions) -> tuple[NewBatch, Span | None]:
    """The batch that the options describe, checked, and how long to wait for room."""
    wait = options.get("wait")
    given = options.get("id")
    batch = home.new_id() if given is None else checked_id(given)
    new = NewBatch(
        id=batch,
        name=checked_title(options.get("name", "")),
        lane=checked_name(options.get("lane", "default"), "lane"),
        data=to_json(dict(options.get("data", {})), what="data of the batch"),
        by=options.get("by"),
        paused=options.get("paused", False),
        on_complete=_completion(home, batch, options.get("on_complete")),
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


def _completion(home: Home, batch: BatchId, task: NewTask | Completing | None) -> NewTask | None:
    """Checked with what it will be given, so that the end of a batch is not the first to find that it does not fit."""
    if task is None:
        return None
    told = {"batch": batch, "status": BatchStatus.DONE.value}
    name = task.handler if isinstance(task, NewTask) else task.name
    try:
        if not isinstance(task, NewTask):
            return task.prepared_from(told)
        handler = home.handlers.get(name)
        if handler is None:
            return task
        return msgspec.structs.replace(task, params=handler.params.check({**from_json(task.params), **told}))
    except InvalidInput as error:
        raise InvalidInput(
            f'"{name}" cannot be the on_complete of a batch',
            why=error.why,
            fix="let it take batch: str and status: str, which it is given when the batch has ended",
        ) from error


def _creating(
    home: Home, new: NewBatch, items: list[NewTask], wait: Span | None
) -> Callable[[Client], Coroutine[Any, Any, Batch]]:
    async def work(client: Client) -> Batch:
        store = batches_of(client.store)
        names = {item.handler for item in (*items, *([new.on_complete] if new.on_complete else []))}
        if any(client.unmet(name) for name in names):
            await client.introduce(home.describe())
        return await client.patiently(lambda: store.create_batch(new, items), wait=wait)

    return work


def _listing(statuses: Iterable[str], limit: int) -> Callable[[Client], Coroutine[Any, Any, list[Batch]]]:
    wanted = [status_of(status) for status in statuses]

    async def work(client: Client) -> list[Batch]:
        return await batches_of(client.store).batches(statuses=wanted, limit=limit)

    return work


def _lane(name: str, max_running: int | None) -> Callable[[Client], Coroutine[Any, Any, Lane]]:
    checked_name(name, "lane")
    if max_running is not None:
        checked_room(max_running)

    async def work(client: Client) -> Lane:
        store = batches_of(client.store)
        if max_running is not None:
            return await store.change_lane(name, max_running)
        return next((lane for lane in await store.lanes() if lane.name == name), Lane(name=name))

    return work
