"""Whether the store answers, found by one probe for all requests: while it is away, none waits for a connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from pitboss.model.errors import StoreUnavailable

_LOOK_SECONDS = 0.25
# A small read that takes so long makes the watch ask by a connection of its own.
_SUSPECT_SECONDS = 0.75
_PROBE_SECONDS = 1.75
# A restart of the server is waited out for as long as engines do that.
_PATIENCE_SECONDS = 2.75


class StoreWatch:
    """`reading_since` says since when a small read, which is made all the time, has had no answer; None if none is
    under way. `error` is set while the store is away; never, if it has no `probe`."""

    def __init__(self, probe: Callable[[], Awaitable[None]] | None, reading_since: Callable[[], float | None]) -> None:
        self._probe, self._reading_since = probe, reading_since
        self._running: set[asyncio.Timeout] = set()
        self._watching: asyncio.Task[None] | None = None
        self.error: StoreUnavailable | None = None

    def start(self) -> None:
        if self._probe is not None:
            self._watching = asyncio.create_task(self._watch(self._probe))

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[asyncio.Timeout]:
        """Around the work of a request: it ends with `StoreUnavailable` as soon as the store is known to be away. What
        has begun its answer takes itself out with `release`."""
        self._raise_if_away()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._running.add(limit)
                try:
                    yield limit
                finally:
                    self._running.discard(limit)
        except TimeoutError:
            if limit.expired():
                raise _again(self.error or _silent()) from None
            raise

    def release(self, limit: asyncio.Timeout) -> None:
        """This request is not ended any more."""
        self._running.discard(limit)

    def _raise_if_away(self) -> None:
        if self.error is not None:
            raise _again(self.error)

    async def _watch(self, probe: Callable[[], Awaitable[None]]) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            since = self._reading_since()
            if self.error is None and (since is None or clock() - since < _SUSPECT_SECONDS):
                continue
            found = await _asked(probe)
            if self.error is None and found is not None and since is not None:
                await asyncio.sleep(max(0.0, since + _PATIENCE_SECONDS - clock()))
                if self._reading_since() != since:
                    continue
                for limit in self._running:
                    limit.reschedule(clock())
            self.error = found


async def _asked(probe: Callable[[], Awaitable[None]]) -> StoreUnavailable | None:
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await probe()
    except StoreUnavailable as error:
        return error
    except TimeoutError:
        return _silent()
    return None


def _again(error: StoreUnavailable) -> StoreUnavailable:
    return StoreUnavailable(error.what, why=error.why, fix=error.fix)


def _silent() -> StoreUnavailable:
    return StoreUnavailable(
        "the store does not answer",
        why="neither an open connection nor a new one got an answer",
        fix="check that its server runs and can be reached",
    )
