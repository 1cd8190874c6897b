"""The document's QueueManager, on Pitboss's batches.

The end of its last item ends a batch and promotes the next one, in the same transaction. So `mark_completed` and
`promote_next_batch` only confirm what has already happened. Calling them twice, or in two processes, is harmless.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

from pitboss.model.batch import IN_SLOT, OVER, Batch, BatchStatus
from pitboss.model.states import State
from story_checker.app import LANE, app, database

_PATIENCE, _PAUSE = 130.0, 0.02
_MANY = 10_000
# The document's names for the status of a batch.
_LEGACY: Final = {
    BatchStatus.RUNNING: "in_progress",
    BatchStatus.PAUSING: "in_progress",
    BatchStatus.CANCELLING: "in_progress",
    BatchStatus.DONE_WITH_ERRORS: "done",
}


class BatchStateError(ValueError):
    """The batch's status does not allow this."""


class QueueManager:
    """The queue of batches. It keeps no state: every call reads the store."""

    @staticmethod
    def get_running_batch() -> Batch | None:
        """The batch at position 0, if there is one."""
        return next((batch for batch in _line() if batch.position == 0), None)

    @staticmethod
    def get_queue() -> list[Batch]:
        """The waiting batches in order: positions 1, 2, 3, without a gap."""
        return [batch for batch in _line() if batch.position]

    @staticmethod
    def get_next_position() -> int:
        """The position of a batch that is created now."""
        line = [batch.position for batch in _line() if batch.position is not None]
        return max(line, default=-1) + 1

    @staticmethod
    def mark_completed(batch_id: str) -> Batch:
        """The ended batch; `BatchStateError` if it has open items."""
        batch = app.batch_handle(batch_id).batch()
        if batch.status not in OVER:
            raise BatchStateError(
                f"batch {batch_id} is {batch.status}, with {batch.left} of {batch.total} items open: it is completed "
                "when its last item ends; cancel it to end it sooner"
            )
        return batch

    @staticmethod
    def promote_next_batch() -> Batch | None:
        """Start the next batch if the slot is free; returns the batch in the slot. Never starts a second one."""
        lane = app.lane(LANE)
        app.lane(LANE, max_running=lane.max_running)
        return QueueManager.get_running_batch()

    @staticmethod
    def move_to_end(batch_id: str) -> Batch:
        """Move a batch to the end of the queue. A running batch is paused first. Its results are kept."""
        handle = app.batch_handle(batch_id)
        batch = handle.batch()
        _check(batch, "moved", batch.status not in OVER and batch.status is not BatchStatus.CANCELLING)
        if batch.status not in IN_SLOT:
            return handle.move("bottom")
        handle.pause()
        _until_paused(batch_id)
        return handle.resume(at="bottom")

    @staticmethod
    def reorder(batch_ids: Sequence[str]) -> list[Batch]:
        """Put these batches first, in this order; the others follow in their old order. The running batch stays."""
        for batch_id in reversed(batch_ids):
            batch = app.batch_handle(batch_id).batch()
            _check(batch, "reordered", batch.status in (BatchStatus.QUEUED, BatchStatus.PAUSED))
            app.batch_handle(batch_id).move("top")
        return QueueManager.get_queue()

    @staticmethod
    def pause(batch_id: str) -> Batch:
        """Start no more items. When the running ones have ended, the next batch is promoted. It keeps its place."""
        batch = app.batch_handle(batch_id).batch()
        _check(batch, "paused", batch.status not in OVER and batch.status is not BatchStatus.CANCELLING)
        return app.batch_handle(batch_id).pause()

    @staticmethod
    def resume(batch_id: str) -> Batch:
        """Put it back at its old place. It continues with its remaining items."""
        batch = app.batch_handle(batch_id).batch()
        _check(batch, "resumed", batch.status in (BatchStatus.PAUSED, BatchStatus.PAUSING))
        return app.batch_handle(batch_id).resume()


def as_document(batch: Batch) -> dict[str, Any]:
    """A batch as the document's interface shows it. A check that found no story succeeded."""
    found = [result.username for result in database.results(batch.id) if result.has_story]
    return {
        "id": batch.id,
        "niche": batch.name,
        "status": _LEGACY.get(batch.status, str(batch.status)),
        "queue_position": batch.position,
        "total_profiles": batch.total,
        "completed_profiles": batch.finished,
        "successful_checks": batch.counts.get(State.COMPLETED, 0),
        "failed_checks": batch.counts.get(State.FAILED, 0),
        "completion_rate": 100 * batch.finished / batch.total if batch.total else 100.0,
        "profiles_with_stories": sorted(found),
    }


def _until_paused(batch_id: str) -> None:
    """Wait until the running items have ended. `pausing` lasts no longer than a check may take."""
    ends = time.monotonic() + _PATIENCE
    while app.batch_handle(batch_id).status is BatchStatus.PAUSING:
        if time.monotonic() > ends:
            raise BatchStateError(f"batch {batch_id} still has running checks after {_PATIENCE:g} s")
        time.sleep(_PAUSE)


def _line() -> list[Batch]:
    return [batch for batch in app.batches(*(set(BatchStatus) - OVER), limit=_MANY) if batch.lane == LANE]


def _check(batch: Batch, what: str, allowed: bool) -> None:
    if not allowed:
        raise BatchStateError(f"batch {batch.id} is {batch.status} and cannot be {what}")
