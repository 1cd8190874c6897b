"""What making a batch returns: the way to its end, to its items, and to what operators may do to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from pitboss.client.app_core import LIMIT, AppCore
from pitboss.client.client import Client
from pitboss.client.waiting import explain_batches
from pitboss.engines.batch_protocol import Batches
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import (
    OVER,
    Batch,
    BatchAct,
    BatchChanged,
    BatchId,
    BatchStatus,
    Cancel,
    Delete,
    Move,
    Pause,
    Requeue,
    Resume,
    Start,
)
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Span, Time, span, spoken
from pitboss.model.errors import InvalidInput, NotFound, PitbossError, TimedOutWaiting
from pitboss.model.filter import Filter, parsed
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.waiting import Why

T = TypeVar("T")
PORTION = 1000
_PAGE = 2000
_MOST_IDLE_PORTIONS = 2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0
MoveTo = Literal["top", "up", "down", "bottom", "before"]
ResumeAt = Literal["place", "top", "bottom"]


class ItemResult(NamedTuple):
    """The params of an item, and what it returned."""

    params: dict[str, Any]
    value: Any
    task: TaskId


class BatchHandle:
    """The way to a batch. Nothing is kept here: each call asks the store. Async twins begin with `a`."""

    def __init__(self, app: AppCore, batch: BatchId) -> None:
        self._app = app
        self.id: BatchId = batch

    def __repr__(self) -> str:
        return f"<BatchHandle {self.id}>"

    def batch(self) -> Batch:
        """The batch as it is now, with the number of its items by state."""
        return self._app.run(self.abatch(), what="reading the batch")

    async def abatch(self) -> Batch:
        return await self._app.aask(lambda client: found_batch(client, self.id))

    @property
    def status(self) -> BatchStatus:
        return self.batch().status

    async def astatus(self) -> BatchStatus:
        return (await self.abatch()).status

    def wait(self, timeout: Time | None = None) -> Batch:
        """The batch once it has ended; `TimedOutWaiting` if that takes longer."""
        seconds = inf if timeout is None else span(timeout, what="timeout") / SECOND + LIMIT
        return self._app.run(self.awaited(timeout), limit=seconds, what="waiting for the batch")

    async def awaited(self, timeout: Time | None = None) -> Batch:
        """As `wait`, for async callers: `await handle.awaited()`."""
        limit = None if timeout is None else span(timeout, what="timeout")
        return await self._app.aask(lambda client: ended_batch(client, self.id, limit))

    def pause(self, reason: str = "") -> Batch:
        """Start nothing more of it. What runs may end, and it keeps its place in line."""
        return self._acted(self.apause(reason))

    async def apause(self, reason: str = "") -> Batch:
        return _there(await self._act(Pause(reason)))

    def resume(self, at: ResumeAt = "place") -> Batch:
        """Back in line at its old place, or at an end of the line."""
        return self._acted(self.aresume(at))

    async def aresume(self, at: ResumeAt = "place") -> Batch:
        return _there(await self._act(Resume(at)))

    def start(self) -> Batch:
        """Run it now, whether or not its lane has a free slot."""
        return self._acted(self.astart())

    async def astart(self) -> Batch:
        return _there(await self._act(Start()))

    def cancel(self, reason: str = "") -> Batch:
        """Cancel what waits, and ask what runs to stop. Results are kept."""
        return self._acted(self.acancel(reason))

    async def acancel(self, reason: str = "") -> Batch:
        return _there(await self._act(Cancel(reason)))

    def move(self, to: MoveTo, before: "BatchHandle | BatchId | None" = None) -> Batch:
        """Another place in line: top, up, down, bottom, or before another batch."""
        return self._acted(self.amove(to, before))

    async def amove(self, to: MoveTo, before: "BatchHandle | BatchId | None" = None) -> Batch:
        return _there(await self._act(_move(to, before)))

    def requeue(
        self, error: str | None = None, *, cancelled: bool = False, keep_attempts: bool = False
    ) -> BatchChanged:
        """Run again what failed, or only failures of this category, exception type or fingerprint."""
        return self._acted(self.arequeue(error, cancelled=cancelled, keep_attempts=keep_attempts))

    async def arequeue(
        self, error: str | None = None, *, cancelled: bool = False, keep_attempts: bool = False
    ) -> BatchChanged:
        return await self._act(Requeue(error, cancelled, keep_attempts))

    def delete(self, *, force: bool = False) -> None:
        """Forget it with its items. Only when it has ended, or with `force` when nothing of it runs."""
        self._acted(self.adelete(force=force))

    async def adelete(self, *, force: bool = False) -> None:
        await self._act(Delete(force))

    def items(self, text: str = "", /, **fields: str | Iterable[str]) -> Iterator[Task]:
        """Its items, or those of a filter, oldest first: `handle.items(state="failed")`."""
        pages = _Pages(self._app, parsed(text).also(batch=self.id, **fields))
        while (tasks := self._app.run(pages.next(), what="reading the items")) is not None:
            yield from tasks

    async def aitems(self, text: str = "", /, **fields: str | Iterable[str]) -> AsyncIterator[Task]:
        pages = _Pages(self._app, parsed(text).also(batch=self.id, **fields))
        while (tasks := await pages.next()) is not None:
            for task in tasks:
                yield task

    def results(self) -> Iterator[ItemResult]:
        """The params and results of its completed items, oldest first."""
        return (self._result(task) for task in self.items(state=State.COMPLETED))

    async def aresults(self) -> AsyncIterator[ItemResult]:
        async for task in self.aitems(state=State.COMPLETED):
            yield self._result(task)

    def _result(self, task: Task) -> ItemResult:
        handler = self._app.handlers.get(task.handler)
        text = task.result or "null"
        value = handler.params.unpack_result(text) if handler is not None else from_json(text)
        return ItemResult(from_json(task.params), value, task.id)

    async def _act(self, act: BatchAct) -> BatchChanged:
        def acted(client: Client) -> Coroutine[Any, Any, BatchChanged]:
            audited = self._app.acting(
                client, f"batches {act.__struct_config__.tag}", self.id, **msgspec.structs.asdict(act)
            )
            return act_in_portions(batches_of(audited.store), self.id, act)

        return await self._app.aask(acted)

    def _acted(self, work: Coroutine[Any, Any, T]) -> T:
        # Without a limit: it goes in portions, however many there are, and each answer of the store has its own.
        return self._app.run(work, limit=inf, what="changing the batch")


class _Pages:
    """Tasks of a filter, page by page, oldest first."""

    def __init__(self, app: AppCore, wanted: Filter) -> None:
        self._app, self._wanted = app, wanted
        self._after: str | None = None
        self._over = False

    async def next(self) -> list[Task] | None:
        """The next page; None after the last."""
        if self._over:
            return None
        page = await self._app.aask(
            lambda client: client.store.find(self._wanted, limit=_PAGE, after=self._after, oldest_first=True)
        )
        self._after, self._over = page.next, page.next is None
        return page.tasks


async def act_in_portions(
    store: Batches, batch: BatchId, act: BatchAct, told: Callable[[BatchChanged], None] = lambda _: None
) -> BatchChanged:
    """Act in portions until nothing is left to do; how many items it changed in all, and which it could not."""
    changed = idle = 0
    refused: dict[TaskId, None] = {}
    while True:
        step = await store.act_on_batch(batch, act, limit=PORTION)
        changed += step.changed
        refused |= dict.fromkeys(step.refused)
        total = BatchChanged(batch=step.batch, changed=changed, refused=tuple(refused))
        told(total)
        # Items that are refused stay where they are: a portion that changes nothing would be repeated for ever.
        idle = 0 if step.changed else idle + 1
        if not step.more or idle > _MOST_IDLE_PORTIONS:
            return total


async def found_batch(client: Client, batch: BatchId) -> Batch:
    """The batch, or `NotFound`."""
    found = await batches_of(client.store).batches([batch])
    if not found:
        raise NotFound(
            f"batch {batch} is not in the store",
            why="it was never put there, or it was deleted, or it ended long ago and was pruned",
            fix="check the id and the store's URL; pitboss batches list shows what there is",
        )
    return found[0]


async def ended_batch(client: Client, batch: BatchId, timeout: Span | None) -> Batch:
    """The batch once it has ended. Polls, less and less often."""
    started = client.clock.now()
    pause = _FIRST_PAUSE
    while True:
        found = await found_batch(client, batch)
        if found.status in OVER:
            return found
        left = None if timeout is None else started + timeout - client.clock.now()
        if left is not None and left <= 0:
            ended = f"it is {found.status}: {found.finished:,} of {found.total:,} items have ended"
            why = await _why(client, found)
            helps = "; ".join(why.helps) if why is not None and why.stuck else ""
            raise TimedOutWaiting(
                f"batch {batch} did not end within {spoken(timeout or 0)}",
                why=ended if why is None else f"{ended}; {why.sentence}",
                fix=helps or f"wait longer; pitboss batches show {batch} says what it waits for",
            )
        await asyncio.sleep(pause if left is None else min(pause, left / SECOND))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def _why(client: Client, batch: Batch) -> Why | None:
    with suppress(PitbossError):
        return (await explain_batches(client.store, [batch], client.store.clock.now())).get(batch.id)
    return None


def _move(to: MoveTo, before: BatchHandle | BatchId | None) -> Move:
    if (to == "before") is (before is None):
        raise InvalidInput(
            f"a move to {to!r:.20} {'needs' if before is None else 'takes no'} other batch",
            why='only "before" names another batch',
            fix='say move("before", other), or one of top, up, down, bottom alone',
        )
    return Move(to, before.id if isinstance(before, BatchHandle) else before)


def _there(changed: BatchChanged) -> Batch:
    assert changed.batch is not None
    return changed.batch
