"""How much room a store takes, and when it refuses new tasks for that."""

import msgspec

from pitboss.model.errors import StoreFull
from pitboss.model.pool import spoken_size

# Once refused, new tasks are taken again below this part of the limit, so that it does not flicker.
_AGAIN = 0.95


class StoreUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that the store uses, bytes that its disk has left (None: not known), and why it refuses new tasks now."""

    size: int
    free: int | None = None
    refusing: str | None = None


def check_taking(refusing: str | None) -> None:
    """Raise `StoreFull` while there is a reason to refuse new tasks."""
    if refusing is not None:
        raise StoreFull(refusing)


def refusal(usage: StoreUsage, *, max_size: int | None, min_free: int | None) -> str | None:
    """Why new tasks must be refused; None: they need not be."""
    part = 1.0 if usage.refusing is None else _AGAIN
    if max_size is not None and usage.size > max_size * part:
        return f"the store has {spoken_size(usage.size)}, and max_store_size is {spoken_size(max_size)}"
    if min_free is not None and usage.free is not None and usage.free < min_free / part:
        return f"its disk has {spoken_size(usage.free)} left, and min_free_disk is {spoken_size(min_free)}"
    return None
