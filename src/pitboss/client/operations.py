"""Performs operations, portion by portion: as a duty of the leader, and in a command where no manager lives.

It needs no term: two performers do each portion once, because the store compares the cursor in the same act.
"""

import asyncio
from collections.abc import Callable

from pitboss.engines.operation_protocol import Operations
from pitboss.engines.protocol import Clock
from pitboss.model.duration import SECOND
from pitboss.model.errors import StoreUnavailable
from pitboss.model.operation import Operation, OperationChange, OperationId, OperationStatus
from pitboss.model.text import one_line

# Small enough that a claim waits for a portion a few milliseconds at most, with room for claims between two portions:
# see benchmarks/operations.py.
PORTION = 100
_SHARE = 0.25
# How often operations that were begun elsewhere are noticed, and how many are performed in turns.
_LOOK_SECONDS = 1.0
_AT_ONCE = 100


class OperationPerformer:
    """Does one portion of each operation that runs, in turns. `only` this one, if it is given. `ended` gets those
    that are over by what this performer did."""

    def __init__(
        self,
        store: Operations,
        clock: Clock,
        *,
        only: OperationId | None = None,
        portion: int = PORTION,
        ended: Callable[[Operation], None] = lambda _: None,
    ) -> None:
        self._ended = ended
        self._store, self._clock, self._only, self._portion = store, clock, only, portion
        self._running: dict[OperationId, Operation] = {}
        self._looked_at: float | None = None

    async def perform(self) -> float | None:
        """One round; seconds until the next one, None if no operation runs."""
        loop = asyncio.get_running_loop()
        await self._look(loop.time())
        began = loop.time()
        for operation in list(self._running.values()):
            if operation.next_at <= self._clock.now():
                await self._advance(operation)
        if not self._running:
            return None
        due = min(operation.next_at for operation in self._running.values()) - self._clock.now()
        rest = (loop.time() - began) * (1 / _SHARE - 1)
        return min(_LOOK_SECONDS, max(rest, due / SECOND))

    async def _look(self, time: float) -> None:
        if self._running and self._looked_at is not None and time - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time
        if self._only is not None:
            found = await self._store.operations([self._only])
        else:
            found = await self._store.operations(statuses=[OperationStatus.RUNNING], limit=_AT_ONCE)
        self._running = {one.id: one for one in found if one.status is OperationStatus.RUNNING}

    async def _advance(self, operation: Operation) -> None:
        try:
            after = await self._store.advance_operation(operation.id, operation.cursor, limit=self._portion)
        except StoreUnavailable:
            raise
        except Exception as error:
            # A command says so itself. The leader must go on with the others.
            if self._only is not None:
                raise
            trouble = f"a portion could not be done, and is tried again: {type(error).__name__}: {one_line(str(error))}"
            after = await self._store.change_operation(operation.id, OperationChange(trouble=trouble))
        if after is None or after.status is not OperationStatus.RUNNING:
            del self._running[operation.id]
            if after is not None:
                self._ended(after)
        else:
            self._running[operation.id] = after
