"""Reclaims tasks of dead sessions, and releases held tasks. Every manager does it: the first one helps soonest."""

from pitboss.engines.protocol import Store

RECLAIM_SECONDS = 1.0
_CHUNK = 1000


async def reclaim(engine: Store) -> int:
    """Reclaim from all dead sessions; returns how many tasks were moved."""
    moved = 0
    while True:
        done = await engine.reclaim(_CHUNK)
        moved += done.lost + done.cancelled + done.released
        if not done.more:
            return moved
