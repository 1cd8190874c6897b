"""The asking side of a store with resources: members, leases, and waiting until a member is free."""

import asyncio
import logging
import os
import shlex
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple, TypeVar
from zlib import crc32

import msgspec

from pitboss.engines.capabilities import capabilities, resources_of
from pitboss.engines.protocol import Clock
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.errors import BudgetSpent, InvalidInput, PitbossError, TimedOutWaiting
from pitboss.model.ids import TaskId
from pitboss.model.leasing import grew_old
from pitboss.model.pool_rules import differences, key_text, with_keys
from pitboss.model.resource import (
    Declaration,
    KeyValue,
    Leased,
    NewResource,
    Report,
    Resource,
    ResourceChange,
    Shortage,
    UseEnd,
    Want,
)
from pitboss.model.resource_keys import rules_of
from pitboss.model.sealed import MissingKey, sealing_keys, told
from pitboss.model.task import Token

T = TypeVar("T")
# Without a handler of its own, a process shows warnings on stderr.
_log = logging.getLogger("pitboss")
_GROUP = 500
_FIRST_PAUSE: Span = 2_000
_LONGEST_PAUSE: Span = 250_000
_LONGEST_SLEEP: Span = SECOND
# Callers that wait for the same moment wake up spread over this span, or over a part of a shorter nap.
_SPREAD: Span = 20_000
_SPREAD_PART = 4
# A store that is late this often in a row is slow, and asking again does not make it faster.
_LATE_ANSWERS = 8


class Grant(NamedTuple):
    """A use: its moment by the store's clock, and when it was asked for by this host's monotonic clock.

    The store granted it after `asked`. So a request that leaves at `sent` is made at `moment + (sent - asked)` at the
    latest, by the store's clock, however long the answer took.
    """

    moment: Moment
    asked: float


class ResourceClient:
    """The async core. `clock` only measures waiting; the store's own clock decides, and says how long to wait."""

    def __init__(self, store: object, clock: Clock, introduced: set[str] | None = None) -> None:
        self._store, self._clock = resources_of(store), clock
        self._store_clock: Clock = getattr(store, "clock", clock)
        self._engine = capabilities(store).engine
        # Clients of one app share it, so that each pool is introduced once.
        self._introduced: set[str] = set() if introduced is None else introduced

    async def introduce(self, pool: str, keys: Mapping[str, KeyValue]) -> None:
        """Declare a pool that is not declared yet; without keys, only create it if it does not exist.

        Never changes what is declared: if these keys differ from it, that is logged once.
        """
        if pool in self._introduced:
            return
        rules = rules_of(keys) if keys else None
        known = await self._store.declare_pool(pool, rules, by=_who(), replace=False)
        self._introduced.add(pool)
        if known is not None and keys:
            _tell_differences(pool, known, keys)

    async def add(self, pool: str, members: Sequence[NewResource]) -> int:
        """How many of them are new."""
        new = 0
        for start in range(0, len(members), _GROUP):
            new += sum(await self._store.add_resources(pool, members[start : start + _GROUP]))
        return new

    async def check_new_key(self, where: str) -> None:
        """Refuse to begin with a new key while members are sealed with one that is not in `where`."""
        lost: list[MissingKey] = []
        for pool in await self._store.resource_pools():
            lost += sealing_keys(await self._store.resources(pool.name), disabled=True)
        if lost:
            raise InvalidInput(
                f"{where} has no key to seal the secret with",
                why=f"it is missing: this store needs {told(lost)}; a new key would not open these secrets",
                fix="put the key back; if it is lost, begin a new one with pitboss resources add … --new-key, or set "
                "PITBOSS_SECRET_KEYS. If the old file turns up later, append its lines to the new one",
            )

    async def change(self, pool: str, names: Sequence[str] | None, change: ResourceChange | None) -> list[str]:
        return await self._store.change_resources(pool, names, change)

    async def members(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        return await self._store.resources(pool, names)

    async def acquire(self, pool: str, want: Want, *, lease: str, hold: Span, wait: Span) -> Leased:
        began, sent, started = _steady(), monotonic(), self._clock.now()
        swept_at: Moment = 0

        async def asked() -> Leased | Shortage:
            nonlocal began, sent, swept_at
            began, sent = _steady(), monotonic()
            found = await self._store.acquire(pool, want, hold, lease=lease)
            now = self._clock.now()
            if isinstance(found, Shortage) and now - swept_at >= SECOND:
                swept_at = now
                if await self._swept():
                    began, sent = _steady(), monotonic()
                    return await self._store.acquire(pool, want, hold, lease=lease)
            return found

        leased = await self._waited(asked, wait, lease, TimedOutWaiting)
        if grew_old(_steady() - began, leased.guard or leased.open_for):
            left = min(hold, max(0, started + wait - self._clock.now()))
            grant = await self._afresh(leased, lease, left)
            return msgspec.structs.replace(leased, leased_at=grant.moment, asked=grant.asked)
        return msgspec.structs.replace(leased, asked=sent)

    async def use(
        self,
        holder: Token | str,
        task: TaskId | None,
        *,
        wait: Span,
        guard: Span = 0,
        open_for: Span = 0,
        instead: Moment | None = None,
        ends: UseEnd | None = None,
    ) -> Grant:
        """One more use, open for `open_for`. With `instead`, the use that is remembered at that moment and was not made
        yet moves to now. `ends` ends an earlier open one first.

        An answer that came too late may break the limits at the far side (see `Limits`). Such a use is moved to the
        moment of another answer, which costs nothing.
        """
        place, over, within = instead, ends, guard or open_for

        async def asked() -> Grant | Shortage:
            nonlocal place, over
            began, sent, late = _steady(), monotonic(), 0
            answer = await self._store.use(holder, task, instead=place, ends=over)
            over = None
            while not isinstance(answer, Shortage) and late < _LATE_ANSWERS and grew_old(_steady() - began, within):
                place, began, sent, late = answer + open_for, _steady(), monotonic(), late + 1
                answer = await self._store.use(holder, task, instead=place)
            return answer if isinstance(answer, Shortage) else Grant(answer, sent)

        # Other holders can only end open uses. What keeps the member away for longer does not end within the wait.
        return await self._waited(asked, wait, str(holder), BudgetSpent, hopeless=open_for + SECOND)

    async def end_use(self, holder: Token | str, task: TaskId | None, end: UseEnd) -> None:
        await self._store.end_use(holder, task, end)

    async def _afresh(self, leased: Leased, lease: str, wait: Span) -> Grant:
        """Count the use of a lease that came late from now on, or give the lease back."""
        try:
            return await self.use(
                lease, None, wait=wait, guard=leased.guard, open_for=leased.open_for, instead=leased.use_at
            )
        except BaseException as error:
            with suppress(PitbossError):
                await asyncio.shield(self._store.release(lease, None))
            if isinstance(error, BudgetSpent):
                raise TimedOutWaiting(error.what, why=error.why, fix=error.fix) from error
            raise

    async def release(self, lease: str, report: Report | None, use_end: UseEnd | None = None) -> bool:
        return await self._store.release(lease, report, use_end)

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        return await self._store.extend(lease, hold)

    async def _swept(self) -> bool:
        """Give back leases past their time; True if there were any. Managers do it too, but none may be running."""
        return self._engine is not None and (await self._engine.reclaim()).leases > 0

    async def _waited(
        self,
        ask: Callable[[], Awaitable[T | Shortage]],
        wait: Span,
        who: str,
        late: type[TimedOutWaiting],
        hopeless: Span | None = None,
    ) -> T:
        """Ask until there is no shortage; `late` if that takes longer than `wait`, or at once if the shortage lasts
        longer than the wait by more than `hopeless`."""
        started, pause = self._clock.now(), _FIRST_PAUSE
        while True:
            found = await ask()
            if not isinstance(found, Shortage):
                return found
            left, now = started + wait - self._clock.now(), self._store_clock.now()
            lasts = hopeless is not None and found.until is not None and found.until - now > left + hopeless
            if left <= 0 or lasts:
                raise _too_late(late, found, wait, now)
            # Look earlier than `until`: a member may be given back, or its limits changed, before that.
            nap = pause if found.until is None else _nap(found.until - now, who)
            await asyncio.sleep(min(nap, left) / SECOND)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _who() -> str:
    """This process, as stored with what it declares."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _tell_differences(pool: str, known: Declaration, keys: Mapping[str, KeyValue]) -> None:
    different = differences(known.rules, with_keys(known.rules, keys))
    if different:
        _log.warning(
            'resource pool "%s": this process says %s, but %s is declared%s, and stays. To change it, run the '
            "manager with this code, or say: pitboss resources limit %s %s",
            pool,
            ", ".join(key_text(one.key, one.other) for one in different),
            ", ".join(key_text(one.key, one.one) for one in different),
            f" by {known.by}" if known.by else "",
            pool,
            shlex.join(key_text(one.key, one.other) for one in different),
        )


def _steady() -> float:
    """Seconds by a clock that is never set."""
    return asyncio.get_running_loop().time()


def _nap(ahead: Span, who: str) -> Span:
    """How long to sleep for a moment that others may wait for too, so that not all of them ask at once."""
    nap = min(max(ahead, _FIRST_PAUSE), _LONGEST_SLEEP)
    return nap + min(crc32(who.encode()) % _SPREAD, nap // _SPREAD_PART)


def _too_late(late: type[TimedOutWaiting], short: Shortage, wait: Span, now: Moment) -> TimedOutWaiting:
    until = "" if short.until is None else f"; the next one may be used in {spoken(max(0, short.until - now))}"
    return late(
        f"no member of {short.pool} could be used within {spoken(wait) if wait else '0s'}",
        why=f"{short.why}{until}",
        fix="wait longer with wait=…, add members, or raise the limits of the pool",
    )
