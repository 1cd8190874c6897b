"""Forgets what is past its age in the logs: events, happenings, and entries of the audit log."""

from collections.abc import Awaitable, Callable

from pitboss.engines.declared_protocol import LeaderActs
from pitboss.engines.happening_protocol import Happenings
from pitboss.engines.protocol import Clock
from pitboss.model.happening import MOST_KEPT
from pitboss.model.retention import Retention

_CHUNK = 1000


async def prune_events(store: LeaderActs, retention: Retention, clock: Clock, *, term: int | None = None) -> int:
    """Returns how many."""
    age = retention.events
    if age is None:
        return 0
    return await _all(lambda: store.prune_events(clock.now() - age, limit=_CHUNK, term=term))


async def prune_happenings(store: Happenings, retention: Retention, clock: Clock, *, term: int) -> int:
    """Happenings, of which there are also never too many, and entries of the audit log; returns how many."""
    age, kept = retention.happenings, retention.audit
    before = None if age is None else clock.now() - age
    pruned = await _all(lambda: store.prune_happenings(before, keep=MOST_KEPT, limit=_CHUNK, term=term))
    if kept is not None:
        pruned += await _all(lambda: store.prune_audit(clock.now() - kept, limit=_CHUNK, term=term))
    return pruned


async def _all(prune: Callable[[], Awaitable[int]]) -> int:
    """A thousand at a time, so that other writers never wait long."""
    pruned = 0
    while True:
        done = await prune()
        pruned += done
        if done < _CHUNK:
            return pruned
