"""Gives back the work of dead sessions, releases held tasks, and prunes what is older than its retention."""

import asyncio
from typing import Protocol

from pitboss.engines.protocol import Clock, Control, Engine
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import by
from pitboss.model.retention import Retention

RECLAIM_SECONDS = 1.0
PRUNE_SECONDS = 60.0
_CHUNK = 1000


class Store(Engine, Control, Protocol):
    """What a sweep needs of an engine."""


async def reclaim(engine: Store) -> int:
    """One full sweep of dead sessions; how many tasks it moved."""
    moved = 0
    while True:
        done = await engine.reclaim(_CHUNK)
        moved += done.lost + done.cancelled + done.released
        if not done.more:
            return moved


async def prune(engine: Store, retention: Retention, clock: Clock) -> int:
    """Delete finished tasks past their age, a thousand at a time, so that nobody waits long for the store."""
    pruned = 0
    for state, age in retention.ages().items():
        while True:
            done = await engine.prune(by(state=state), before=clock.now() - age, limit=_CHUNK)
            pruned += done.changed
            if not done.more:
                break
    return pruned


async def sweep_forever(engine: Store, retention: Retention, clock: Clock) -> None:
    """Both, until cancelled. A store that is away is swept when it is back."""
    loop = asyncio.get_running_loop()
    pruned_at = loop.time()
    while True:
        await asyncio.sleep(RECLAIM_SECONDS)
        try:
            await reclaim(engine)
            if loop.time() - pruned_at >= PRUNE_SECONDS:
                pruned_at = loop.time()
                await prune(engine, retention, clock)
        except StoreUnavailable:
            continue
