"""Compares the keys of this host with those that members of resource pools are sealed with.

A queue whose pool has a member that cannot be opened here is left out of claims, so that no member is given to a task
that cannot use it.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.model.errors import InvalidInput, PitbossError, StoreUnavailable
from pitboss.model.queue import remote_queues
from pitboss.model.resource import Leased
from pitboss.model.sealed import MissingKey, keys_of, missing, sealing_keys, told
from pitboss.secrets import KeyRing

# How often the members of pools with missing keys are read again, in checks.
_READ_EVERY = 5


class KeyWatch:
    """Knows which keys are missing. Members are read at the start, whenever the keys of this host change, and while a
    key is missing; a member that came with a key of another host is noticed when it is granted (`opens`)."""

    def __init__(
        self, store: Store, ring: KeyRing | None, *, warn: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        self._store, self.ring, self._warn, self._say = store, ring, warn, say
        self._known: frozenset[str] = frozenset()
        self._unreadable = ""
        self._needed: dict[str, tuple[MissingKey, ...]] = {}
        self._suspects: set[str] = set()
        self._suspected = asyncio.Event()
        self._checks = 0
        self.missing: tuple[MissingKey, ...] = ()

    async def watch_pools(self, names: Iterable[str]) -> None:
        """These pools are used by handlers of this manager from now on."""
        if self.ring is not None and capabilities(self._store).resources is not None:
            self._needed = {name: self._needed.get(name, ()) for name in names}
            self._suspects = set(self._needed)
            await self.check()

    def opens(self, leased: Leased) -> bool:
        """Whether this host can open its secrets."""
        if self.ring is None or not leased.secrets:
            return True
        needed = keys_of(leased.secrets.values())
        if not needed <= self._known:
            # A worker makes the first key, and operators add others.
            self._read_keys(self.ring)
        if needed <= self._known:
            return True
        self._suspects.add(leased.pool)
        self._suspected.set()
        return False

    async def run(self, seconds: float, checked: Callable[[frozenset[str] | None, bool], None]) -> None:
        """Check at least so often, until cancelled. `checked` gets the queues that may be claimed from, and whether the
        set of missing keys has changed."""
        while True:
            await self.suspicion(seconds)
            # If the store is down, the next check tries again.
            with suppress(PitbossError):
                changed = await self.check()
                checked(await self.queues(), changed)

    async def suspicion(self, seconds: float) -> None:
        """Returns when a member came that cannot be opened, or after that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._suspected.wait()
        self._suspected.clear()

    async def check(self) -> bool:
        """Read the keys, and members if need be; whether the set of missing keys has changed. Tells of changes."""
        if self.ring is None or not self._needed:
            return False
        self._read_keys(self.ring)
        self._checks += 1
        if self.missing and self._checks % _READ_EVERY == 0:
            self._suspects |= {one.pool for one in self.missing}
        for pool in sorted(self._suspects):
            await self._read_members(pool)
        before = self.missing
        needed = (one for pool in sorted(self._needed) for one in self._needed[pool])
        self.missing = missing(needed, self._known)
        if self.missing != before:
            self._tell(before)
        return self.missing != before

    async def queues(self) -> frozenset[str] | None:
        """The queues that may be claimed from; None for all."""
        if not self.missing:
            return None
        closed, remote = {one.pool for one in self.missing}, remote_queues(await self._store.handlers())
        queues = await self._store.queues()
        return frozenset(one.name for one in queues if one.resources not in closed and one.name not in remote)

    def _read_keys(self, ring: KeyRing) -> None:
        before = self._known
        try:
            self._known, self._unreadable = ring.names(), ""
        except InvalidInput as error:
            self._known, self._unreadable = frozenset(), f"{error.what}: {error.why}"
        if self._known != before:
            # Members may have been added since they were read.
            self._suspects |= self._needed.keys()

    async def _read_members(self, pool: str) -> None:
        resources = capabilities(self._store).resources
        assert resources is not None
        try:
            self._needed[pool] = sealing_keys(await resources.resources(pool))
        except StoreUnavailable:
            return  # the next check tries again
        self._suspects.discard(pool)

    def _tell(self, before: tuple[MissingKey, ...]) -> None:
        pools = sorted({one.pool for one in before} - {one.pool for one in self.missing})
        if pools:
            self._say(f"the keys of the secrets in {', '.join(pools)} are there again; their tasks go on")
        if self.missing:
            cause = self._unreadable or f"{self.ring.where if self.ring else 'this host'} lacks {told(self.missing)}"
            self._warn(
                f"a secrets key is missing: {cause}. Tasks that need these pools wait, at no attempt, and go on when "
                "the key is back; if it is lost, add the members again with their secrets, or disable them"
            )
