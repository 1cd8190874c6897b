"""The keys of the store as one server knows them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from pitboss.engines.access_protocol import Access
from pitboss.model.access import ApiKey, key_parts
from pitboss.model.errors import StoreUnavailable

# A key that was revoked opens nothing after this time, and one that was created opens, whether or not requests come.
_EVERY_SECONDS = 0.5
# Requests with unknown keys cannot make the server read more often than this.
_AT_MOST_EVERY = 0.1


class KnownKeys:
    """Read again all the time. While the store is away, those that were read last count."""

    def __init__(self, store: Access) -> None:
        self._store = store
        self._known: dict[str, ApiKey] = {}
        self._reading: asyncio.Task[None] | None = None
        self._read_at = 0.0
        # Since when the present one of the regular reads has had no answer.
        self.reading_since: float | None = None
        # Set while the store is known to be away: then no request waits for it.
        self.away: Callable[[], bool] = lambda: False
        # Whether any key was ever created: then every request needs one. A store whose keys are revoked stays closed.
        self.any = False

    async def start(self) -> None:
        await self.read()
        self._reading = asyncio.create_task(self._read_forever())

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def read(self) -> None:
        self._read_at = asyncio.get_running_loop().time()
        found = await self._store.api_keys()
        self._known, self.any = {key.id: key for key in found}, bool(found)

    def has(self, key_id: str) -> bool:
        """Whether a key has this id, which is its first part."""
        return key_id in self._known

    async def find(self, text: str) -> ApiKey | None:
        """The key that this text opens; None if there is none. One that is not known may have just been created."""
        found = self._opened(text)
        stale = asyncio.get_running_loop().time() - self._read_at >= _AT_MOST_EVERY
        if found is None and stale and not self.away():
            with suppress(StoreUnavailable):
                await self.read()
            found = self._opened(text)
        return found

    def _opened(self, text: str) -> ApiKey | None:
        parts = key_parts(text)
        known = None if parts is None else self._known.get(parts[0])
        return known if known is not None and parts is not None and known.opened_by(parts[1]) else None

    async def _read_forever(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            self.reading_since = asyncio.get_running_loop().time()
            with suppress(StoreUnavailable):
                await self.read()
            self.reading_since = None
