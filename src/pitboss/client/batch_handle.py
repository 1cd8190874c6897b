"""What making a batch returns: the way to its end, to its items, and to what operators may do to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from pitboss.client.batch_store import acted, batches_of
from pitboss.client.client import Client
from pitboss.engines.protocol import Page
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
from pitboss.model.errors import InvalidInput, NotFound, TimedOutWaiting
from pitboss.model.filter import Filter, parsed
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo
from pitboss.model.states import State
from pitboss.model.task import Task

T = TypeVar("T")
_PAGE = 2000
_LIMIT = 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0
Place = Literal["top", "up", "down", "bottom", "before"]
At = Literal["place", "top", "bottom"]


class Home(Protocol):
    """What batches need of their app."""

    @property
    def handlers(self) -> Mapping[str, Any]: ...

    def new_id(self) -> str: ...

    def describe(self) -> list[HandlerInfo]: ...

    def ask(self, work: Callable[[Client], Coroutine[Any, Any, T]], *, limit: float, what: str) -> T: ...

    async def aask(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T: ...


class ItemResult(NamedTuple):
    """What an item was given, and what it returned."""

    params: dict[str, Any]
    value: Any
    task: TaskId


class BatchHandle:
    """The way to a batch. Nothing is kept here: each call asks the store. Async twins begin with `a`."""

    def __init__(self, home: Home, batch: BatchId) -> None:
        self._home = home
        self.id: BatchId = batch

    def __repr__(self) -> str:
        return f"<BatchHandle {self.id}>"

    def batch(self) -> Batch:
        """The batch as it is now, with the number of its items by state."""
        return self._ask(lambda client: looked_up(client, self.id), what="reading the batch")

    async def abatch(self) -> Batch:
        return await self._home.aask(lambda client: looked_up(client, self.id))

    @property
    def status(self) -> BatchStatus:
        return self.batch().status

    async def astatus(self) -> BatchStatus:
        return (await self.abatch()).status

    def wait(self, timeout: Time | None = None) -> Batch:
        """The batch once it has ended; `TimedOutWaiting` if that takes longer."""
        limit = None if timeout is None else span(timeout, what="timeout")
        seconds = float("inf") if limit is None else limit / SECOND + _LIMIT
        return self._home.ask(lambda client: ended(client, self.id, limit), limit=seconds, what="waiting for the batch")

    async def awaited(self, timeout: Time | None = None) -> Batch:
        """As `wait`, for async callers: `await handle.awaited()`."""
        limit = None if timeout is None else span(timeout, what="timeout")
        return await self._home.aask(lambda client: ended(client, self.id, limit))

    def pause(self) -> Batch:
        """Start nothing more of it. What runs may end, and it keeps its place in line."""
        return _there(self._act(Pause()))

    async def apause(self) -> Batch:
        return _there(await self._aact(Pause()))

    def resume(self, at: At = "place") -> Batch:
        """Back in line at its old place, or at an end of the line."""
        return _there(self._act(Resume(at)))

    async def aresume(self, at: At = "place") -> Batch:
        return _there(await self._aact(Resume(at)))

    def start(self) -> Batch:
        """Run it now, whether or not its lane has a free slot."""
        return _there(self._act(Start()))

    async def astart(self) -> Batch:
        return _there(await self._aact(Start()))

    def cancel(self, reason: str = "") -> Batch:
        """Cancel what waits, and ask what runs to stop. Results are kept."""
        return _there(self._act(Cancel(reason)))

    async def acancel(self, reason: str = "") -> Batch:
        return _there(await self._aact(Cancel(reason)))

    def move(self, to: Place, before: "BatchHandle | BatchId | None" = None) -> Batch:
        """Another place in line: top, up, down, bottom, or before another batch."""
        return _there(self._act(_move(to, before)))

    async def amove(self, to: Place, before: "BatchHandle | BatchId | None" = None) -> Batch:
        return _there(await self._aact(_move(to, before)))

    def requeue(
        self, error: str | None = None, *, cancelled: bool = False, keep_attempts: bool = False
    ) -> BatchChanged:
        """Run again what failed, or only failures of this category, exception type or fingerprint."""
        return self._act(Requeue(error, cancelled, keep_attempts))

    async def arequeue(
        self, error: str | None = None, *, cancelled: bool = False, keep_attempts: bool = False
    ) -> BatchChanged:
        return await self._aact(Requeue(error, cancelled, keep_attempts))

    def delete(self, *, force: bool = False) -> None:
        """Forget it with its items. Only when it has ended, or with `force` when nothing of it runs."""
        self._act(Delete(force))

    async def adelete(self, *, force: bool = False) -> None:
        await self._aact(Delete(force))

    def items(self, text: str = "", /, **fields: str | Iterable[str]) -> Iterator[Task]:
        """Its items, or those of a filter, oldest first: `handle.items(state="failed")`."""
        wanted, after = self._filter(text, fields), None
        while True:
            page = self._ask(_page(wanted, after), what="reading the items")
            yield from page.tasks
            after = page.next
            if after is None:
                return

    async def aitems(self, text: str = "", /, **fields: str | Iterable[str]) -> AsyncIterator[Task]:
        wanted, after = self._filter(text, fields), None
        while True:
            page = await self._home.aask(_page(wanted, after))
            for task in page.tasks:
                yield task
            after = page.next
            if after is None:
                return

    def results(self) -> Iterator[ItemResult]:
        """What its completed items were given and returned, oldest first."""
        return (self._result(task) for task in self.items(state=State.COMPLETED))

    async def aresults(self) -> AsyncIterator[ItemResult]:
        async for task in self.aitems(state=State.COMPLETED):
            yield self._result(task)

    def _filter(self, text: str, fields: Mapping[str, str | Iterable[str]]) -> Filter:
        return parsed(text).also(batch=self.id, **fields)

    def _result(self, task: Task) -> ItemResult:
        handler = self._home.handlers.get(task.handler)
        text = task.result or "null"
        value = handler.params.unpack_result(text) if handler is not None else from_json(text)
        return ItemResult(from_json(task.params), value, task.id)

    def _ask(self, work: Callable[[Client], Coroutine[Any, Any, T]], *, what: str) -> T:
        return self._home.ask(work, limit=_LIMIT, what=what)

    def _act(self, act: BatchAct) -> BatchChanged:
        work = _acting(self.id, act)
        # In portions, however many there are: only the store's answers are waited for with a limit.
        return self._home.ask(work, limit=float("inf"), what=f"{type(act).__name__.lower()} of the batch")

    async def _aact(self, act: BatchAct) -> BatchChanged:
        return await self._home.aask(_acting(self.id, act))


async def looked_up(client: Client, batch: BatchId) -> Batch:
    """The batch, or `NotFound`."""
    found = await batches_of(client.store).batches([batch])
    if not found:
        raise _missing(batch)
    return found[0]


async def ended(client: Client, batch: BatchId, timeout: Span | None) -> Batch:
    """The batch once it has ended, waited for by looking ever less often."""
    started = client.clock.now()
    pause = _FIRST_PAUSE
    while True:
        found = await looked_up(client, batch)
        if found.status in OVER:
            return found
        left = None if timeout is None else started + timeout - client.clock.now()
        if left is not None and left <= 0:
            raise TimedOutWaiting(
                f"batch {batch} did not end within {spoken(timeout or 0)}",
                why=f"it is {found.status}: {found.finished:,} of {found.total:,} items have ended",
                fix=f"wait longer; pitboss batches show {batch} says what it waits for",
            )
        await asyncio.sleep(pause if left is None else min(pause, left / SECOND))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _acting(batch: BatchId, act: BatchAct) -> Callable[[Client], Coroutine[Any, Any, BatchChanged]]:
    return lambda client: acted(batches_of(client.store), batch, act)


def _page(wanted: Filter, after: str | None) -> Callable[[Client], Coroutine[Any, Any, Page]]:
    async def work(client: Client) -> Page:
        return await client.store.find(wanted, limit=_PAGE, after=after, oldest_first=True)

    return work


def _move(to: Place, before: BatchHandle | BatchId | None) -> Move:
    if (to == "before") is (before is None):
        raise InvalidInput(
            f"a move to {to!r:.20} {'needs' if before is None else 'takes no'} other batch",
            why='only "before" is a place beside another one',
            fix='say move("before", other), or one of top, up, down, bottom alone',
        )
    return Move(to, before.id if isinstance(before, BatchHandle) else before)


def _there(changed: BatchChanged) -> Batch:
    assert changed.batch is not None
    return changed.batch


def _missing(batch: BatchId) -> NotFound:
    return NotFound(
        f"batch {batch} is not in the store",
        why="it was never put there, or it was deleted, or it ended long ago and was pruned",
        fix="check the id and the store's URL; pitboss batches list shows what there is",
    )
