"""Reclaims tasks of dead sessions, releases held tasks, and prunes tasks and batches that are past their retention."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from pitboss.client.batch_handle import act_in_portions
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Clock, Store
from pitboss.model.batch import BatchStatus, Delete
from pitboss.model.errors import InvalidInput, NotFound, NotLeader, StoreUnavailable
from pitboss.model.filter import by
from pitboss.model.retention import Retention
from pitboss.model.states import State

RECLAIM_SECONDS = 1.0
PRUNE_SECONDS = 60.0
_CHUNK = 1000
_BATCHES_LOOKED_AT = 10_000
_KEPT_LIKE = {
    BatchStatus.DONE: State.COMPLETED,
    BatchStatus.CANCELLED: State.CANCELLED,
    BatchStatus.DONE_WITH_ERRORS: State.FAILED,
}


async def reclaim(engine: Store) -> int:
    """Reclaim from all dead sessions; returns how many tasks were moved."""
    moved = 0
    while True:
        done = await engine.reclaim(_CHUNK)
        moved += done.lost + done.cancelled + done.released
        if not done.more:
            return moved


async def prune(engine: Store, retention: Retention, clock: Clock, *, term: int | None = None) -> int:
    """Delete finished tasks past their age, a thousand at a time, so that other writers never wait long.

    Raises `NotLeader` if `term` is given and over.
    """
    pruned = 0
    for state, age in retention.ages().items():
        while True:
            done = await engine.prune(by(state=state), before=clock.now() - age, limit=_CHUNK, term=term)
            pruned += done.changed
            if not done.more:
                break
    return pruned


async def prune_batches(engine: object, retention: Retention, clock: Clock) -> int:
    """Delete ended batches past the age at which tasks with the same end are deleted; returns how many.

    No term is needed: a batch that is deleted or requeued at the same time is skipped.
    """
    store = capabilities(engine).batches
    if store is None:
        return 0
    pruned, ages = 0, retention.ages()
    kept = {status: ages[state] for status, state in _KEPT_LIKE.items() if state in ages}
    for batch in await store.batches(statuses=list(kept), limit=_BATCHES_LOOKED_AT) if kept else ():
        if batch.finished_at is not None and batch.finished_at < clock.now() - kept[batch.status]:
            with suppress(NotFound, InvalidInput):
                await act_in_portions(store, batch.id, Delete())
                pruned += 1
    return pruned


async def sweep_forever(
    engine: Store, retention: Retention, clock: Clock, *, term: Callable[[], int | None] | None = None
) -> None:
    """Reclaim and prune until cancelled. If the store is down, continue when it is back.

    Every manager reclaims: that is harmless, and the first one helps soonest. With `term`, only the leader prunes,
    under the term that it returns.
    """
    loop = asyncio.get_running_loop()
    pruned_at = loop.time()
    while True:
        await asyncio.sleep(RECLAIM_SECONDS)
        try:
            await reclaim(engine)
            leading = None if term is None else term()
            if loop.time() - pruned_at >= PRUNE_SECONDS and (term is None or leading is not None):
                pruned_at = loop.time()
                await prune(engine, retention, clock, term=leading)
                await prune_batches(engine, retention, clock)
        except (StoreUnavailable, NotLeader):
            continue
