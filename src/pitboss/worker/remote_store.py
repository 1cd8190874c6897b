"""The client's store inside a worker: every call goes over the worker's socket to its manager, which has the store."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from pitboss.engines.protocol import Page
from pitboss.model import errors
from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.errors import InvalidInput, PitbossError, StaleLease, StoreUnavailable
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo
from pitboss.model.task import NewTask, Placed, Task
from pitboss.worker.frames import MAX_FRAME, AnswerMessage, AskMessage
from pitboss.worker.remote_resources import ManagedResources

T = TypeVar("T")
# Other messages may go out in the same frame, and one that is too long would cut the worker off.
_LARGEST = MAX_FRAME // 2
_MOST_FOUND = 100
_NOTHING = msgspec.msgpack.encode(None)


class ManagedStore(ManagedResources):
    """What the client needs of a store, by asking the manager. Callable from any loop of the process."""

    name = "manager"

    def __init__(self, say: Callable[[AskMessage], None]) -> None:
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, asyncio.Future[AnswerMessage]] = {}
        self._number = 0

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        return await self._ask("put", (list(tasks),), list[Placed])

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self._ask("get", (list(ids),), list[Task | None])

    async def find(
        self, wanted: Filter, *, limit: int = 50, after: str | None = None, oldest_first: bool = False
    ) -> Page:
        """As the ledger's, a hundred at a time at most: the answer must fit one message."""
        return await self._ask("find", (wanted, min(limit, _MOST_FOUND), after, oldest_first), Page)

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        return await self._ask("cancel", (wanted, reason, limit), Changed)

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        await self._ask("register", (list(handlers),), type(None))

    async def handlers(self) -> list[HandlerInfo]:
        return await self._ask("handlers", (), list[HandlerInfo])

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        return await self._ask("create_batch", (batch, list(items)), Batch)

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        return await self._ask("act_on_batch", (batch, act, limit), BatchChanged)

    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        return await self._ask("batches", (None if ids is None else list(ids), list(statuses), limit), list[Batch])

    async def lanes(self) -> list[Lane]:
        return await self._ask("lanes", (), list[Lane])

    async def change_lane(self, name: str, max_running: int) -> Lane:
        return await self._ask("change_lane", (name, max_running), Lane)

    async def ask_manager(self, verb: str, arguments: tuple[Any, ...], kind: type[T]) -> T:
        return await self._ask(verb, arguments, kind)

    def hear(self, answer: AnswerMessage) -> None:
        future = self._asked.pop(answer.number, None)
        if future is not None and not future.done():
            future.set_result(answer)

    async def _ask(self, verb: str, arguments: tuple[Any, ...], kind: type[T]) -> T:
        work = self._exchange(verb, arguments)
        answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        if answer.error is not None:
            raise _error(*answer.error)
        return msgspec.msgpack.decode(answer.value or _NOTHING, type=kind)

    async def _exchange(self, verb: str, arguments: tuple[Any, ...]) -> AnswerMessage:
        data = msgspec.msgpack.encode(arguments)
        if len(data) > _LARGEST:
            raise _too_large(verb, len(data))
        self._number += 1
        number = self._number
        future: asyncio.Future[AnswerMessage] = self._loop.create_future()
        self._asked[number] = future
        self._say(AskMessage(number, verb, data))
        try:
            return await future
        finally:
            self._asked.pop(number, None)


def _too_large(verb: str, size: int) -> InvalidInput:
    return InvalidInput(
        f"{verb} with {size:,} bytes cannot be asked from inside a worker",
        why=f"what a worker asks goes to its manager in one message of at most {_LARGEST:,} bytes",
        fix="put the tasks in several portions, or from a process that has the store itself",
    )


def _error(code: str, what: str, why: str, fix: str) -> PitbossError:
    """The error that the manager met, as the same class where that can be made from its text."""
    for kind in (errors.InvalidInput, errors.NotFound, errors.Unsupported, errors.SchemaMismatch, StoreUnavailable):
        if kind.code == code:
            return kind(what, why=why, fix=fix)
    if code == StaleLease.code:
        return StaleLease(what.split()[1])
    error = PitbossError(what, why=why, fix=fix)
    error.code = code
    return error
