"""Calls that go to the server in groups: those that come while a group is under way make the next group."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pitboss.model.errors import InvalidInput

Q = TypeVar("Q")
A = TypeVar("A")
# One group is judged without a pause, which blocks the event loop.
_MOST = 100
_AT_ONCE = 2


class GroupedCalls(Generic[Q, A]):
    """A call does not wait for others to come: if no group is under way, it goes alone."""

    def __init__(self, answer: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._serving = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, question: Q) -> A:
        """The answer to one call. It may take effect even if the caller stops waiting."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._serving < _AT_ONCE:
            self._serving += 1
            task = asyncio.create_task(self._serve())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _serve(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                await self._serve_group([one for one in group if not one[1].done()])
        finally:
            # No await since the last look: the next call sees that no group is under way, and begins one.
            self._serving -= 1

    async def _serve_group(self, group: list[tuple[Q, asyncio.Future[A]]]) -> None:
        if not group:
            return
        try:
            answers = await self._answer([question for question, _ in group])
        except BaseException as error:
            if isinstance(error, InvalidInput) and len(group) > 1:
                # One of them is refused; ask each alone, so that the others are answered.
                for one in group:
                    await self._serve_group([one])
                return
            for _, future in group:
                _end(future, error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for (_, future), answer in zip(group, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def _end(future: asyncio.Future[A], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    elif not future.done():
        future.set_exception(error)
