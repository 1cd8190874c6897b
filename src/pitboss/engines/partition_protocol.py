"""Partitions: which slot of which worker owns which key of a queue."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from pitboss.engines.verb_marks import open_to_workers
from pitboss.model.partition import Partition, PartitionChange
from pitboss.model.pool_slot import PoolSlot


@runtime_checkable
class Partitions(Protocol):
    """The slots of workers, and the keys of queues with partitions (`Queue.partitions`).

    A put, of whatever kind, gives each task in such a queue its key (`partition_key`), and creates the key's row. Tasks
    that were put before the queue had partitions, or whose parameters make no key, have none.

    A claim gives tasks of such a queue only as follows. `own` keys of a slot with a number, which must be a slot of
    this session (`take_slots`), are those that it owns and that move to no other; tasks without a key count as its own
    too. A slot is filled in up to three steps, each only if it is not full yet:

    1. in their common order: tasks of its own keys and without a key, among the first `LOOK` pending tasks of each
       queue, and those of queues without partitions;
    2. the other pending tasks of its own keys, key by key, by queue and key;
    3. of the other keys, in their common order, among the first `LOOK`: where the mode is `affinity`, of all keys;
       where `on_missing` is "steal", of those whose owner is no kept slot (`is_kept`).

    An engine may look once for all slots of a request: then tasks that one slot takes still count for the next. A slot
    without a number owns nothing: it gets tasks without a key, and step 3. A slot with an `order` goes through the
    first `ORDERED` tasks that these steps allow it, in that order, wherever they stand (an engine may stop after the
    first ten times `LOOK`). Nothing of such a queue is claimed ahead. Not more tasks of a key run at once than
    `Queue.max_per_key`, if that is set; then each end of a claim on a task with a key rings the queue.

    Items of batches in such a queue are drawn for each slot in turn, just before it is filled (see `Batches`): from
    each running batch and each such queue of the slot that is not paused, until as many of its items as the slot has
    `free` are pending there that the slot may take (owned or step 3, wherever they stand in line, and their key not
    full), and `PASSED_BY` more while the queue is bound to a pool and the batch has held items in it. It draws the
    slot's own first.

    `Claimed.partitioned` says that a queue of the request that is not paused has partitions, so that slots need
    numbers.
    """

    async def take_slots(
        self,
        session: int,
        pool: str,
        node: str,
        places: Sequence[int],
        *,
        queues: tuple[str, ...] | None = None,
        exact: bool = False,
    ) -> list[PoolSlot]:
        """The slots of this session's workers at these places of that worker pool (`pool_slot.seated`), by place. They
        are the session's from now on; slots that it has at other places of the pool are given up, and those that belong
        to no node any more are forgotten. `exact`: the numbers are those of the places; `Refused`, and nothing changes,
        if another living session has one. `SessionLost` if the session is not alive. Give up a place only when none of
        its tasks runs: another session may get its number, and its keys with it."""

    @open_to_workers
    async def slots(self) -> list[PoolSlot]:
        """The slots that belong to a node (`is_kept`), by pool and number."""

    @open_to_workers
    async def partitions(self, queue: str, *, counts: bool = True) -> list[Partition]:
        """The keys of a queue by name, in the order of code points, with their unfinished tasks; `counts` False leaves
        these out, which is cheap."""

    async def assign(self, queue: str, owners: Mapping[str, str], *, term: int) -> int:
        """First let the moves arrive whose key has no running task (`partition.arrived`), then give each of these keys
        to its slot (`partition.given_to`), in one act; returns how many keys have another epoch now. An unknown key
        gets a row. Rings the queue if any row has changed. Only the leader of that term may do it: any other call
        raises `NotLeader` and changes nothing."""

    @open_to_workers
    async def change_partition(self, queue: str, key: str, change: PartitionChange) -> Partition:
        """Do what an operator wants (`partition.changed_partition`), and ring the queue. An unknown key gets a row."""
