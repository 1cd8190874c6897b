"""Bulk acts that are stored with their progress."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pitboss.model.duration import Moment
from pitboss.model.operation import NewOperation, Operation, OperationChange, OperationId, OperationStatus


@runtime_checkable
class Operations(Protocol):
    """Beginning, performing and watching operations. `model.operation` has the rules.

    Any process may perform an operation, and several may try: each portion happens once. None of this is open to
    workers.
    """

    async def begin_operation(self, new: NewOperation) -> Operation:
        """Store an operation that begins now; nothing is done to tasks yet. The same id again changes nothing and
        returns the existing one. `InvalidInput` if it makes no sense (`operation.begun`)."""

    async def operations(
        self,
        ids: Sequence[OperationId] | None = None,
        *,
        statuses: Sequence[OperationStatus] = (),
        limit: int = 100,
    ) -> list[Operation]:
        """Those with these ids (unknown ones left out), or the newest with these statuses (none given: all), newest
        first. `failed_again` is as of now, or as it was when the operation ended if that is more."""

    async def advance_operation(self, operation: OperationId, cursor: str, *, limit: int) -> Operation | None:
        """Do the next portion in one act, and return the operation after it; None if there is none.

        Nothing happens if the operation does not run, its cursor is another one, or its next portion is not due
        (`Operation.may_advance`). If too many of its tasks failed again, it stops (`too_many_failed`). Otherwise the
        act reads on from the cursor, in the order of ids, at most `READ_PER_TASK` times `limit` tasks: of those that
        are failed or cancelled if it is only about these, else of all. The first `Operation.allowed` that count
        (`counts_in`) are retried, cancelled or deleted, as `Control` does it; then `operation.advanced` says what is
        written. A task that would be deleted, but has to stay, is refused. The cost does not depend on how many tasks
        the operation is about, or on how many completed (unless it is about these)."""

    async def change_operation(self, operation: OperationId, change: OperationChange) -> Operation:
        """Do what an operator wants (`operation.changed_operation`); returns the operation after that. `NotFound` if
        there is none."""

    async def forget_operations(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        """Forget operations that ended before this moment, at most `limit`; returns how many. With a term, only the
        leader of that term may do it: any other call raises `NotLeader` and forgets nothing."""
