"""Forgets events that are past their age."""

from pitboss.engines.declared_protocol import LeaderActs
from pitboss.engines.protocol import Clock
from pitboss.model.retention import Retention

_CHUNK = 1000


async def prune_events(store: LeaderActs, retention: Retention, clock: Clock, *, term: int | None = None) -> int:
    """Forget a thousand at a time, so that other writers never wait long; returns how many."""
    pruned, age = 0, retention.events
    while age is not None:
        done = await store.prune_events(clock.now() - age, limit=_CHUNK, term=term)
        pruned += done
        if done < _CHUNK:
            break
    return pruned
