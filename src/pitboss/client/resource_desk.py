"""Asking a store about resources: members, leases, and waiting for what is not to be had yet."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, runtime_checkable
from zlib import crc32

from pitboss.engines.protocol import Clock, Engine, Leases
from pitboss.engines.protocol import Resources as ResourcesProtocol
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.errors import BudgetSpent, PitbossError, TimedOutWaiting, Unsupported
from pitboss.model.ids import TaskId
from pitboss.model.leasing import grew_old
from pitboss.model.resource import (
    Leased,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    Shortage,
    Want,
)
from pitboss.model.task import Token

T = TypeVar("T")
_GROUP = 500
_FIRST_PAUSE: Span = 2_000
_LONGEST_PAUSE: Span = 250_000
_LONGEST_SLEEP: Span = SECOND
# Those who wait for one moment are spread over this, or over a part of a short nap: haste is wanted there.
_SPREAD: Span = 20_000
_SPREAD_PART = 4
# A store that is late so many times in a row is as slow as that: no further asking makes it faster.
_LATE_ANSWERS = 8


@runtime_checkable
class ResourceStore(ResourcesProtocol, Leases, Protocol):
    """The part of an engine that resources need."""


class ResourceDesk:
    """The async core. `clock` only measures waiting, the store's own clock decides the rest."""

    def __init__(self, store: Any, clock: Clock) -> None:
        self._store, self._clock = resources_of(store), clock
        self._swept_at: Moment = 0

    async def declare(self, pool: str, rules: PoolRules) -> None:
        await self._store.declare_pool(pool, rules)

    async def introduce(self, pool: str, rules: PoolRules) -> None:
        """Make a pool known. Never replaces what a manager wrote."""
        if pool not in {known.name for known in await self._store.resource_pools()}:
            await self._store.declare_pool(pool, rules)

    async def add(self, pool: str, members: Sequence[NewResource]) -> int:
        """How many of them are new."""
        new = 0
        for start in range(0, len(members), _GROUP):
            new += sum(await self._store.add_resources(pool, members[start : start + _GROUP]))
        return new

    async def change(self, pool: str, names: Sequence[str] | None, change: ResourceChange | None) -> list[str]:
        return await self._store.change_resources(pool, names, change)

    async def members(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        return await self._store.resources(pool, names)

    async def acquire(self, pool: str, want: Want, *, lease: str, hold: Span, wait: Span) -> Leased:
        began, started = _steady(), self._clock.now()

        async def asked() -> Leased | Shortage:
            nonlocal began
            began = _steady()
            found = await self._store.acquire(pool, want, hold, lease=lease)
            if isinstance(found, Shortage) and await self._swept():
                began = _steady()
                return await self._store.acquire(pool, want, hold, lease=lease)
            return found

        leased = await self._waited(asked, wait, lease, TimedOutWaiting)
        if grew_old(_steady() - began, leased.guard):
            await self._afresh(leased, lease, min(hold, max(0, started + wait - self._clock.now())))
        return leased

    async def use(
        self, holder: Token | str, task: TaskId | None, *, wait: Span, guard: Span = 0, instead: Moment | None = None
    ) -> Moment:
        """One more use, or one in the place of another that was granted at `instead` and has not been made.

        An answer that took so much of the guard that the limits may not hold at the far side is not made use of: the
        use is moved to the moment of another answer, which costs nothing.
        """
        place = instead

        async def asked() -> Moment | Shortage:
            nonlocal place
            began, late = _steady(), 0
            answer = await self._store.use(holder, task, instead=place)
            while not isinstance(answer, Shortage) and late < _LATE_ANSWERS and grew_old(_steady() - began, guard):
                place, began, late = answer, _steady(), late + 1
                answer = await self._store.use(holder, task, instead=place)
            return answer

        return await self._waited(asked, wait, str(holder), BudgetSpent)

    async def _afresh(self, leased: Leased, lease: str, wait: Span) -> None:
        """A lease that came late is used from now on, or given back."""
        try:
            await self.use(lease, None, wait=wait, guard=leased.guard, instead=leased.leased_at)
        except BaseException as error:
            with suppress(PitbossError):
                await asyncio.shield(self._store.release(lease, None))
            if isinstance(error, BudgetSpent):
                raise TimedOutWaiting(error.what, why=error.why, fix=error.fix) from error
            raise

    async def release(self, lease: str, report: Report | None) -> bool:
        return await self._store.release(lease, report)

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        return await self._store.extend(lease, hold)

    async def _swept(self) -> bool:
        """Give back what others let lie past its time; True if there was any. Managers do it, but none may be there."""
        now = self._clock.now()
        if not isinstance(self._store, Engine) or now - self._swept_at < SECOND:
            return False
        self._swept_at = now
        return (await self._store.reclaim()).leases > 0

    async def _waited(
        self, ask: Callable[[], Awaitable[T | Shortage]], wait: Span, who: str, late: type[TimedOutWaiting]
    ) -> T:
        """What is asked for, as soon as there is some; `late` if there is none in time."""
        started, pause = self._clock.now(), _FIRST_PAUSE
        while True:
            found = await ask()
            if not isinstance(found, Shortage):
                return found
            now = self._clock.now()
            left = started + wait - now
            if left <= 0:
                raise _too_late(late, found, wait, now)
            # Somebody may give one back, or change the limits, before the moment that is known.
            nap = pause if found.until is None else _nap(found.until - now, who)
            await asyncio.sleep(min(nap, left) / SECOND)
            pause = min(pause * 2, _LONGEST_PAUSE)


def resources_of(store: object) -> ResourceStore:
    """The store itself, if it has resources."""
    if not isinstance(store, ResourceStore):
        raise Unsupported(
            f"the {getattr(store, 'name', 'present')} engine has no resources",
            why="resource pools need a store that takes a task and its resource in one act",
            fix="use SQLite or PostgreSQL",
        )
    return store


def _steady() -> float:
    """Seconds by a clock that nobody sets."""
    return asyncio.get_running_loop().time()


def _nap(ahead: Span, who: str) -> Span:
    """How long to sleep for a moment that others may wait for too: not all of them should ask at once."""
    nap = min(max(ahead, _FIRST_PAUSE), _LONGEST_SLEEP)
    return nap + min(crc32(who.encode()) % _SPREAD, nap // _SPREAD_PART)


def _too_late(late: type[TimedOutWaiting], short: Shortage, wait: Span, now: Moment) -> TimedOutWaiting:
    until = "" if short.until is None else f"; the next one may be used in {spoken(max(0, short.until - now))}"
    return late(
        f"no member of {short.pool} could be used within {spoken(wait) if wait else '0s'}",
        why=f"{short.why}{until}",
        fix="wait longer with wait=…, add members, or raise the limits of the pool",
    )
