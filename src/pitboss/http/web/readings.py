"""What several pages and tabs read: each reading is made once, and shared for a moment."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
_SECONDS = 1.0
_MOST = 500


class Readings:
    """One for each server process. A reading that failed is not kept."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]], seconds: float = _SECONDS) -> T:
        """The reading with this key, if it is younger than that; otherwise a new one. Who comes while it is made waits
        for the same one."""
        now = asyncio.get_running_loop().time()
        at, kept = self._kept.get(key, (0.0, None))
        if kept is None or now - at > seconds or _failed(kept):
            # A task of its own: a browser that hangs up must not end what others wait for.
            kept = asyncio.ensure_future(read())
            self._kept[key] = now, kept
            self._forget(now)
        found: T = await asyncio.shield(kept)
        return found

    def clear(self) -> None:
        """After an act, its page must show what it did."""
        self._kept.clear()

    def _forget(self, now: float) -> None:
        if len(self._kept) > _MOST:
            for key in [key for key, (at, kept) in self._kept.items() if kept.done() and now - at > _SECONDS]:
                del self._kept[key]


def _failed(kept: "asyncio.Future[Any]") -> bool:
    return kept.done() and (kept.cancelled() or kept.exception() is not None)
