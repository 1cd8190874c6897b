"""Gives back the work of dead sessions, releases held tasks, and prunes what is older than its retention: tasks, and
batches with their items."""

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
    """One full sweep of dead sessions; how many tasks it moved."""
    moved = 0
    while True:
        done = await engine.reclaim(_CHUNK)
        moved += done.lost + done.cancelled + done.released
        if not done.more:
            return moved


async def prune(engine: Store, retention: Retention, clock: Clock, *, term: int | None = None) -> int:
    """Delete finished tasks past their age, a thousand at a time, so that nobody waits long for the store. With a term,
    as the leader under that term: `NotLeader` when it is over."""
    pruned = 0
    for state, age in retention.ages().items():
        while True:
            done = await engine.prune(by(state=state), before=clock.now() - age, limit=_CHUNK, term=term)
            pruned += done.changed
            if not done.more:
                break
    return pruned


async def prune_batches(engine: object, retention: Retention, clock: Clock) -> int:
    """Delete batches that ended longer ago than tasks of that end are kept; how many. One that somebody deletes or
    requeues at the same time is left to him: no term is needed."""
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
    """Both, until cancelled. A store that is away is swept when it is back.

    Everybody reclaims: that is harmless, and the first to look helps soonest. With `term`, only the leader prunes,
    under the term that this answers at the time; a new leader begins as soon as a prune is due.
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
