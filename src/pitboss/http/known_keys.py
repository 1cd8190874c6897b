"""The keys of the store as one server knows them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from pitboss.engines.access_protocol import Access
from pitboss.model.access import ApiKey, key_parts
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import StoreUnavailable

# A revoked key opens nothing after this time, at the latest.
_FRESH: Span = SECOND


class KnownKeys:
    """Read again when they are older than a second. While the store is away, those that were read last count."""

    def __init__(self, store: Access, now: Callable[[], Moment]) -> None:
        self._store, self._now = store, now
        self._read_at: Moment = 0
        self._reading: asyncio.Task[None] | None = None
        self._known: dict[str, ApiKey] = {}
        self._any = False

    @property
    def any(self) -> bool:
        """Whether any key was ever created: then every request needs one."""
        return self._any

    def refresh(self) -> None:
        """Read the keys again if they are old, on the side: no request waits for it."""
        now = self._now()
        if now - self._read_at >= _FRESH and (self._reading is None or self._reading.done()):
            self._read_at = now
            self._reading = asyncio.create_task(self._read_quietly())

    async def stop(self) -> None:
        if self._reading is not None:
            await self._reading

    async def _read_quietly(self) -> None:
        with suppress(StoreUnavailable):
            await self.read()

    async def read(self) -> None:
        began = self._now()
        found = await self._store.api_keys()
        self._known = {key.id: key for key in found}
        # A store whose keys are all revoked stays closed.
        self._any, self._read_at = bool(found), began

    def find(self, text: str) -> ApiKey | None:
        """The key that this text opens; None if there is none."""
        parts = key_parts(text)
        known = None if parts is None else self._known.get(parts[0])
        return known if known is not None and parts is not None and known.opened_by(parts[1]) else None
