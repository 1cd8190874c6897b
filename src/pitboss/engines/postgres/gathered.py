"""Questions that go to the server by the group: what is asked while others are under way makes the next group."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pitboss.model.errors import InvalidInput

Q = TypeVar("Q")
A = TypeVar("A")
# What is judged at a stretch keeps the event loop from everything else.
_MOST = 100
_AT_ONCE = 2


class Gathered(Generic[Q, A]):
    """Nobody waits for others to come: whoever finds nothing under way is answered alone."""

    def __init__(self, answer: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._serving = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, question: Q) -> A:
        """The answer to one. Who stops waiting for it may be answered all the same."""
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
            # In the same breath as the last look: whoever asks next finds that nobody serves, and begins.
            self._serving -= 1

    async def _serve_group(self, group: list[tuple[Q, asyncio.Future[A]]]) -> None:
        if not group:
            return
        try:
            answers = await self._answer([question for question, _ in group])
        except BaseException as error:
            if isinstance(error, InvalidInput) and len(group) > 1:
                # One of them cannot be asked; the others are not to suffer for it.
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
