"""The keys of the store as one server knows them."""

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
        self._read_at: Moment | None = None
        self._known: dict[str, ApiKey] = {}
        self._any = False

    @property
    def any(self) -> bool:
        """Whether any key was ever created: then every request needs one."""
        return self._any

    async def refresh(self) -> None:
        """Read the keys if they are old. Only one request reads; the others go on with what is known."""
        now = self._now()
        if self._read_at is None:
            await self.read()
        elif now - self._read_at >= _FRESH:
            self._read_at = now
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
