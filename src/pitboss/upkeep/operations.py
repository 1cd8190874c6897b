"""Performs operations as long as this manager leads, and forgets those that ended long ago."""

from pitboss.client.operations import OperationPerformer
from pitboss.engines.operation_protocol import Operations
from pitboss.engines.protocol import Clock
from pitboss.model.duration import Span, span
from pitboss.model.happening import Kind
from pitboss.model.operation import Operation, OperationStatus
from pitboss.upkeep.duties import Duty, Pause
from pitboss.upkeep.notice import Note

# How soon one that was begun elsewhere is noticed, and how often old ones are forgotten.
_LOOK_SECONDS = 1.0
_FORGET_SECONDS = 60.0
_KEPT: Span = span("30d")


class OperationDuty:
    """Both duties. Performing needs no term: the store compares the cursor."""

    def __init__(self, store: Operations, clock: Clock, note: Note | None = None) -> None:
        self._store, self._clock, self._note = store, clock, note
        self._performer = OperationPerformer(store, clock, ended=self._ended)

    async def perform(self, _: int) -> Pause | None:
        pause = await self._performer.perform()
        return None if pause is None else Pause(pause)

    async def forget(self, term: int) -> int:
        """Returns how many were forgotten."""
        return await self._store.forget_operations(self._clock.now() - _KEPT, term=term)

    def _ended(self, operation: Operation) -> None:
        if self._note is not None and operation.status is OperationStatus.STOPPED:
            text = f"operation {operation.id} ({operation.verb} by {operation.by}) was stopped: {operation.why}"
            details = {"operation": operation.id, "done": operation.done}
            self._note(Kind.OPERATION_STOPPED, f"operation {operation.id}", text, details)


def operation_duties(store: Operations | None, clock: Clock, note: Note | None = None) -> list[Duty]:
    """None for a store without operations."""
    if store is None:
        return []
    duty = OperationDuty(store, clock, note)
    return [Duty("operations", _LOOK_SECONDS, duty.perform), Duty("forget operations", _FORGET_SECONDS, duty.forget)]
