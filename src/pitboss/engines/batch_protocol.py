"""Batches and their lanes."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pitboss.engines.verb_marks import open_to_workers
from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.task import NewTask


@runtime_checkable
class Batches(Protocol):
    """Batches, and the lanes in which they wait. `model.batching` decides their status.

    Items are tasks with a `batch`. They are held (reason "batch") until they are drawn. A claim draws before it looks
    for tasks. From each running batch it draws until as many of its items are pending in the requested queues that are
    not paused as the request wants in all (`free` and `ahead` of all slots), and `batching.PASSED_BY` more while the
    batch has held items in a queue that is bound to a pool, because some may be passed by there. It draws the first
    held items (reason "batch") of these queues, lowest priority number first, then smallest id; they become pending, or
    scheduled if they are due later. If it drew items, none became pending, and more are left, `next_due` is now. So
    starting or stopping a batch costs the same however many items it has.

    An item that would go back to waiting (settled, lost, retried, its handler known again) while its batch is not
    running becomes held (reason "batch") instead, and keeps its due time. The act that ends the last unfinished item of
    a batch, whatever it is, also ends the batch: cancelled if it was being cancelled, else done, or done with errors if
    items failed. The same act puts the batch's `on_complete` task (`batching.completion`: `batch`, `status` and perhaps
    `run` in its params, and an id of its own for each run) and promotes the next batch of the lane. The act that ends
    the last running item of a pausing batch pauses the batch and promotes the next. Promoting takes the queued batch
    with the lowest rank (then the smallest id) as long as fewer than `max_running` have a slot. If an operator retries
    an item of an ended batch, the item is held (reason "batch"), and the batch goes back to the end of the line, with
    the next number of `run`. `on_complete` is put as a follow-up is: it may overfill its queue, and it meets a task
    that exists, so that no run puts two. Prune leaves items of batches alone: they are deleted with their batch.
    """

    @open_to_workers
    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        """Store a batch with its items in one act, at the end of its lane's line, and promote it if there is a slot.
        The same id again changes nothing and returns the existing batch. Items that meet existing tasks are left out; a
        batch without items is over at once. Capacity counts, as for `put`."""

    @open_to_workers
    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        """Do what an operator wants, as `model.batch` says for each act. `NotFound` if there is no such batch,
        `InvalidInput` if its status does not allow the act (`check_act`). An act that is already done changes nothing.
        Acts on items change at most `limit` of them per call; `more` says that a repeat, which is harmless, would
        change others. Requeueing treats unique keys as `Control.retry` does."""

    @open_to_workers
    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        """The batches with these ids (unknown ones left out), or the first `limit` with these statuses (none given:
        all). First those that have a slot, then the queued in their order, the paused, and the ended, newest first."""

    @open_to_workers
    async def lanes(self) -> list[Lane]:
        """Every lane by name."""

    @open_to_workers
    async def change_lane(self, name: str, max_running: int) -> Lane:
        """Set how many batches of a lane run at a time; a new lane is created. A higher number promotes at once, a
        lower one stops no running batch."""
