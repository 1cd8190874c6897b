"""Batches as a store has them, and doing to them what is done in portions. Loads little: every command needs it."""

from collections.abc import Callable

from pitboss.engines.protocol import Batches
from pitboss.model.batch import BatchAct, BatchChanged, BatchId, BatchStatus
from pitboss.model.errors import InvalidInput, Unsupported
from pitboss.model.ids import TaskId

PORTION = 1000
_IDLE = 2


def batches_of(store: object) -> Batches:
    """The store itself, if it has batches."""
    if isinstance(store, Batches):
        return store
    raise Unsupported(
        f"the {getattr(store, 'name', 'present')} engine has no batches",
        why="a batch and its items must change in one act, which that store cannot do",
        fix="use SQLite or PostgreSQL",
    )


async def acted(
    store: Batches, batch: BatchId, act: BatchAct, told: Callable[[BatchChanged], None] = lambda _: None
) -> BatchChanged:
    """Do it in portions until nothing is left to do; how many items it changed in all, and which it could not."""
    changed = idle = 0
    refused: dict[TaskId, None] = {}
    while True:
        step = await store.act_on_batch(batch, act, limit=PORTION)
        changed += step.changed
        refused |= dict.fromkeys(step.refused)
        total = BatchChanged(batch=step.batch, changed=changed, refused=tuple(refused))
        told(total)
        # What is refused stays where it is: a portion that changes nothing would be repeated for ever.
        idle = 0 if step.changed else idle + 1
        if not step.more or idle > _IDLE:
            return total


def status_of(text: str) -> BatchStatus:
    """The status of that name."""
    try:
        return BatchStatus(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r:.60} is not a status of a batch",
            why=f"the statuses are {', '.join(BatchStatus)}",
            fix="use one of these",
        ) from None


def checked_room(max_running: int) -> int:
    if max_running < 1:
        raise InvalidInput(
            f"max_running={max_running} cannot be",
            why="a lane in which nothing may run would never move",
            fix="say 1 or more; to stop a batch, pause it",
        )
    return max_running
