"""Batches as a store has them: look one up, wait for its end, and do to it what must be done in portions."""

import asyncio
from collections.abc import Callable

from pitboss.client.client import Client
from pitboss.engines.protocol import Batches
from pitboss.model.batch import OVER, Batch, BatchAct, BatchChanged, BatchId, BatchStatus
from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.errors import InvalidInput, NotFound, TimedOutWaiting, Unsupported
from pitboss.model.ids import TaskId

PORTION = 1000
_IDLE = 2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0


def batches_of(store: object) -> Batches:
    """The store itself, if it has batches."""
    if isinstance(store, Batches):
        return store
    raise Unsupported(
        f"the {getattr(store, 'name', 'present')} engine has no batches",
        why="a batch and its items must change in one act, which that store cannot do",
        fix="use SQLite or PostgreSQL",
    )


async def looked_up(client: Client, batch: BatchId) -> Batch:
    """The batch, or `NotFound`."""
    found = await batches_of(client.store).batches([batch])
    if not found:
        raise _missing(batch)
    return found[0]


async def ended(client: Client, batch: BatchId, timeout: Span | None) -> Batch:
    """The batch once it has ended, waited for by looking ever less often."""
    started = client.clock.now()
    pause = _FIRST_PAUSE
    while True:
        found = await looked_up(client, batch)
        if found.status in OVER:
            return found
        left = None if timeout is None else started + timeout - client.clock.now()
        if left is not None and left <= 0:
            raise TimedOutWaiting(
                f"batch {batch} did not end within {spoken(timeout or 0)}",
                why=f"it is {found.status}: {found.finished:,} of {found.total:,} items have ended",
                fix=f"wait longer; pitboss batches show {batch} says what it waits for",
            )
        await asyncio.sleep(pause if left is None else min(pause, left / SECOND))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


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


def _missing(batch: BatchId) -> NotFound:
    return NotFound(
        f"batch {batch} is not in the store",
        why="it was never put there, or it was deleted, or it ended long ago and was pruned",
        fix="check the id and the store's URL; pitboss batches list shows what there is",
    )
