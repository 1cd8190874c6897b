"""Refuses new tasks while the store is too large or its disk is nearly full. What runs goes on."""

from collections.abc import Callable

from pitboss.engines.protocol import Usage
from pitboss.model.usage import refusal

SIZE_SECONDS = 10.0


async def watch_size(
    store: Usage, *, max_size: int | None, min_free: int | None, term: int, warn: Callable[[str], None]
) -> None:
    """Look once. `warn` hears when refusing begins and when it ends."""
    usage = await store.usage()
    reason = refusal(usage, max_size=max_size, min_free=min_free)
    if (reason is None) == (usage.refusing is None):
        return
    await store.refuse_new(reason, term=term)
    warn("the store takes new tasks again" if reason is None else f"new tasks are refused: {reason}; what runs goes on")
