"""Deletes ended batches that are past the age at which tasks with the same end are deleted."""

from contextlib import suppress

from pitboss.client.batch_handle import act_in_portions
from pitboss.engines.batch_protocol import Batches
from pitboss.engines.protocol import Clock
from pitboss.model.batch import BatchStatus, Delete
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.retention import Retention
from pitboss.model.states import State

_LOOKED_AT = 10_000
_KEPT_LIKE = {
    BatchStatus.DONE: State.COMPLETED,
    BatchStatus.CANCELLED: State.CANCELLED,
    BatchStatus.DONE_WITH_ERRORS: State.FAILED,
}


async def prune_batches(store: Batches, retention: Retention, clock: Clock) -> int:
    """Returns how many were deleted. No term is needed: a batch that is deleted or requeued meanwhile is skipped."""
    pruned, ages = 0, retention.ages()
    kept = {status: ages[state] for status, state in _KEPT_LIKE.items() if state in ages}
    for batch in await store.batches(statuses=list(kept), limit=_LOOKED_AT) if kept else ():
        if batch.finished_at is not None and batch.finished_at < clock.now() - kept[batch.status]:
            with suppress(NotFound, InvalidInput):
                await act_in_portions(store, batch.id, Delete())
                pruned += 1
    return pruned
