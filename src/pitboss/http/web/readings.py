"""What several pages and tabs read: each reading is made once, and shared for a moment."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
_SECONDS = 1.0
# A reading that takes long is used for longer: all pages together spend at most this share of the time on it.
_SHARE = 0.1
_MOST = 500


class Readings:
    """One for each server process. A reading that failed is not kept."""

    def __init__(self) -> None:
        # When each was begun, how long it is used, and what it has read.
        self._kept: dict[Hashable, tuple[float, float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]], seconds: float = _SECONDS) -> T:
        """The reading with this key, if it is younger than that; otherwise a new one. Who comes while it is made waits
        for the same one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        at, long, kept = self._kept.get(key, (0.0, 0.0, None))
        if kept is None or now - at > max(long, seconds) or _failed(kept):
            # A task of its own: a browser that hangs up must not end what others wait for.
            kept = asyncio.ensure_future(read())
            kept.add_done_callback(lambda done: self._took(key, done, loop.time() - now))
            self._kept[key] = now, 0.0, kept
            self._forget(now)
        found: T = await asyncio.shield(kept)
        return found

    def _took(self, key: Hashable, done: "asyncio.Future[Any]", seconds: float) -> None:
        at, _, kept = self._kept.get(key, (0.0, 0.0, None))
        if kept is done:
            self._kept[key] = at, seconds / _SHARE, done

    def clear(self) -> None:
        """After an act, its page must show what it did."""
        self._kept.clear()

    def _forget(self, now: float) -> None:
        if len(self._kept) > _MOST:
            for key in [key for key, (at, _, kept) in self._kept.items() if kept.done() and now - at > _SECONDS]:
                del self._kept[key]


def _failed(kept: "asyncio.Future[Any]") -> bool:
    return kept.done() and (kept.cancelled() or kept.exception() is not None)
