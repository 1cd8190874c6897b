"""Writes what happened to the store: the one place in which a manager's happenings are made.

They are kept while the store is away and written when it is back, so that the log has both moments. A storm is not
written one by one: the first few of a kind in a minute are rows of their own, and the rest is one row with a count.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Clock
from pitboss.manager import host
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import StoreUnavailable
from pitboss.model.facts import AnyFact, PoolScaled, WorkerCrashed, WorkerGivenUp
from pitboss.model.happening import Happening, HappeningId, Kind, Severity, happening
from pitboss.model.ids import IdMaker
from pitboss.model.session import Lead
from pitboss.model.text import counted, listed

MOST_WAITING = 1000
ONE_BY_ONE = 5
WINDOW: Span = 60 * SECOND
_AT_ONCE = 200
_PAUSE_SECONDS = 1.0


class _Group:
    """What happened of one kind to one subject since a moment: how many rows were made, and how many are summed up."""

    __slots__ = ("last", "more", "rows", "since")

    def __init__(self, since: Moment) -> None:
        self.since, self.rows, self.more = since, 0, 0
        self.last: Happening | None = None


class HappeningLog:
    """`session` is the manager's present session, None while it has none. Without a store that keeps happenings, it
    drops them."""

    def __init__(
        self,
        store: object,
        *,
        clock: Clock,
        luck: Callable[[], float],
        session: Callable[[], int | None],
    ) -> None:
        self._store, self._clock, self._session = capabilities(store).happenings, clock, session
        self._host, self._manager = host.name(), 0
        self._ids = IdMaker(clock.now, lambda bits: int(luck() * (1 << bits)))
        self._waiting: deque[Happening] = deque()
        self._groups: dict[tuple[Kind, str], _Group] = {}
        self._noted = asyncio.Event()
        self._begun: set[str] = set()

    def heard(self, fact: AnyFact) -> None:
        """A fact for hooks: some of them are happenings."""
        match fact:
            case WorkerCrashed():
                message = fact.error.message if fact.error is not None else "it ended unexpectedly"
                # The error is written for the task that it ran.
                why = message.replace(" while it ran this task", "")
                again = len(fact.lost) - len(fact.poisoned)
                lost = f"; {counted(again, 'task')} of it will run again" if again else ""
                if number := len(fact.poisoned):
                    was = "was" if number == 1 else "were"
                    lost += f"; {counted(number, 'task')} {was} set aside (poison: see pitboss dead list)"
                about = {"pid": fact.pid, "code": fact.code, "tasks": fact.lost[:10]}
                self._of_worker(Kind.WORKER_CRASHED, fact.pool, fact.worker, f"{why}{lost}", about)
            case WorkerGivenUp():
                text = f"worker {fact.worker} stays down: {fact.why}"
                self._of_worker(Kind.WORKER_GIVEN_UP, fact.pool, fact.worker, text, {"crashes": fact.crashes})
            case PoolScaled() if fact.before or fact.pool in self._begun:
                text = f"pool {fact.pool} goes from {fact.before} to {counted(fact.after, 'worker')}"
                why = f": {fact.why}" if fact.why else ""
                about = {"before": fact.before, "after": fact.after}
                self.note(Kind.POOL_SCALED, f"pool {fact.pool}", f"{text}{why}", about)
            case PoolScaled():
                # Its first workers come with the start of the manager, which is a happening of its own.
                self._begun.add(fact.pool)

    def started(self, number: int, pools: Sequence[str], release: str) -> None:
        """This manager has its first session, with this number."""
        self._manager = number
        said = f"has started with the pools {listed(pools)}" if pools else "has started without workers"
        self._of_itself(Kind.MANAGER_STARTED, said, {"pid": os.getpid(), "release": release})

    def stopped(self) -> None:
        self._of_itself(Kind.MANAGER_STOPPED, "has stopped")

    def session_lost(self, text: str) -> None:
        """The store or this manager was away for so long that its session is over."""
        self._of_itself(Kind.MANAGER_LOST, f"goes on with a new session: {text}")

    def led_by(self, lead: Lead) -> None:
        """The new leader itself says it, so that it is said once."""
        if lead.mine:
            text = f"manager {lead.session} on {self._host} leads (term {lead.term})"
            self.note(Kind.LEAD_CHANGED, "lead", text, {"term": lead.term})

    def note(
        self,
        kind: Kind,
        subject: str,
        text: str,
        details: Mapping[str, Any] | None = None,
        *,
        severity: Severity | None = None,
        group: str | None = None,
        known: tuple[HappeningId, Moment] | None = None,
    ) -> None:
        """Something happened now. `group`: what it is counted with in a storm, if not its subject. `known` has its id
        and moment: managers that notice the same thing write it once."""
        if self._store is None:
            return
        now = self._clock.now()
        new_id, at = (self._ids(), now) if known is None else known
        about: dict[str, Any] = {} if severity is None else {"severity": severity}
        made = happening(
            new_id, at, kind, subject, text, host=self._host, manager=self._here(), details=dict(details or {}), **about
        )
        place = (kind, group or subject)
        self._end_groups(now)
        found = self._groups.setdefault(place, _Group(now))
        if found.rows < ONE_BY_ONE and len(self._waiting) < MOST_WAITING:
            found.rows += 1
            self._waiting.append(made)
        else:
            found.more, found.last = found.more + 1, made
        self._noted.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            with suppress(TimeoutError):
                # Sums are made even if nothing happens any more.
                async with asyncio.timeout(_PAUSE_SECONDS if self._groups else None):
                    await self._noted.wait()
            self._noted.clear()
            with suppress(StoreUnavailable):
                await self._write()
            # So that what happens together is written together, and a store that is away is left alone for a while.
            await asyncio.sleep(_PAUSE_SECONDS)

    async def close(self, within: float) -> None:
        """Write what is left, sums included, if the store takes it in time."""
        self._end_groups(None)
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(within):
                await self._write()

    async def _write(self) -> None:
        self._end_groups(self._clock.now())
        while self._waiting and self._store is not None:
            some = list(self._waiting)[:_AT_ONCE]
            await self._store.record_happenings(some)
            # What came meanwhile stands behind these.
            for _ in some:
                self._waiting.popleft()
            self._end_groups(self._clock.now())

    def _of_itself(self, kind: Kind, said: str, details: Mapping[str, Any] | None = None) -> None:
        number = self._here()
        self.note(kind, f"manager {number}", f"manager {number} on {self._host} {said}", details)

    def _of_worker(self, kind: Kind, pool: str, worker: str, text: str, details: Mapping[str, Any]) -> None:
        about = {"worker": worker, "pool": pool, **details}
        self.note(kind, f"worker {worker}", text, about, group=f"pool {pool}")

    def _here(self) -> int:
        self._manager = self._session() or self._manager
        return self._manager

    def _end_groups(self, now: Moment | None) -> None:
        """Sum up the groups whose time is over (None: all), as far as there is room."""
        for place, group in list(self._groups.items()):
            if now is not None and now - group.since < WINDOW:
                continue
            if group.last is not None:
                if len(self._waiting) >= MOST_WAITING:
                    continue
                self._waiting.append(self._sum(place[1], group.more, group.last))
            del self._groups[place]

    def _sum(self, subject: str, more: int, last: Happening) -> Happening:
        if more == 1:
            return last
        text = f"{counted(more, 'more time')}, the last: {last.text}"
        return replace(last, subject=subject, text=text[:1000], count=more)
