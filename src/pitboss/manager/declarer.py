"""Declares the app's queues, schedules and subscriptions for each session of the manager."""

import asyncio
from collections.abc import Callable

from pitboss.engines.capabilities import capabilities
from pitboss.model.declared import Declared
from pitboss.model.errors import StoreUnavailable

AGAIN_SECONDS = 10.0


class Declarer:
    """Knows what the code declares, and whether that counts. While a newer version of the app runs, it does not."""

    def __init__(self, engine: object, declared: Declared | None, *, say: Callable[[str], None]) -> None:
        self._store, self._declared, self._say = capabilities(engine).declarations, declared, say
        self._session: int | None = None
        self._outdated = False

    async def open(self, session: int) -> None:
        """Declare for a new session, before it claims: a queue's limits must be there first."""
        self._session = session
        await self._declare()

    async def change(self, declared: Declared | None) -> None:
        """Declare what the code says now."""
        self._declared, self._outdated = declared, False
        if self._session is not None:
            await self._declare()

    async def run(self) -> None:
        """Try again while a newer version of the app runs: it may be taken back."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            if self._outdated:
                try:
                    await self._declare()
                except StoreUnavailable:
                    continue

    async def _declare(self) -> None:
        if self._store is None or self._declared is None:
            return
        counts = await self._store.declare(self._declared, session=self._session)
        if not counts and not self._outdated:
            self._say("a newer version of this app runs: its schedules and subscriptions count")
        elif counts and self._outdated:
            self._say("the newer version of this app has ended: the schedules and subscriptions of this one count")
        self._outdated = not counts
