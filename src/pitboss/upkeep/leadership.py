"""A manager's part in the election of a leader: it campaigns every second, and knows its term while it leads."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from pitboss.engines.protocol import Clock, Leader
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import SessionLost, StoreUnavailable
from pitboss.model.session import Lead

CAMPAIGN_SECONDS = 1.0
# Older answers do not count: the manager was halted, or the store was down.
BELIEVED: Span = 5 * SECOND


class Leadership:
    """`session` returns the manager's present session, None while it has none. `told` gets each new leader or term.

    This is only a hint that saves useless calls: a leader's duty carries the term, and the store compares it.
    """

    def __init__(
        self,
        engine: Leader,
        session: Callable[[], int | None],
        *,
        clock: Clock,
        told: Callable[[Lead], None] = lambda lead: None,
    ) -> None:
        self._engine, self._session, self._clock, self._told = engine, session, clock, told
        self._lead: Lead | None = None
        self._heard_at: Moment = 0
        self._last: tuple[int, int] | None = None
        self._retired = asyncio.Event()

    def lead(self) -> Lead | None:
        """The present leader; None if the last answer is too old."""
        fresh = 0 <= self._clock.now() - self._heard_at < BELIEVED
        return self._lead if fresh else None

    def term(self) -> int | None:
        """The term of this manager; None while it does not lead."""
        lead = self.lead()
        return lead.term if lead is not None and lead.mine and lead.session == self._session() else None

    async def campaign(self) -> None:
        """Campaign once. If the store is down, the next call tries again."""
        session, asked_at = self._session(), self._clock.now()
        if session is None or self._retired.is_set():
            self._lead = None
            return
        try:
            lead = await self._engine.campaign(session)
        except StoreUnavailable:
            return
        except SessionLost:
            self._lead = None
            return
        if self._retired.is_set():
            # It retired while this was under way, so the store may have made it the leader again.
            await self._resign(session)
            return
        # The time of the question: a slow answer must not look fresh.
        self._lead, self._heard_at = lead, asked_at
        if self._last != (lead.term, lead.session):
            self._last = (lead.term, lead.session)
            self._told(lead)

    async def retire(self) -> None:
        """Lead no more: the manager stops, and what it would put now would wait for the next one."""
        self._retired.set()
        self._lead = None
        session = self._session()
        if session is not None:
            await self._resign(session)

    async def _resign(self, session: int) -> None:
        with suppress(StoreUnavailable):
            await self._engine.resign(session)

    async def campaign_forever(self) -> None:
        """Campaign every second until cancelled. When the leader ends its session, another leads soon."""
        while True:
            await self.campaign()
            await asyncio.sleep(CAMPAIGN_SECONDS)


def described(lead: Lead) -> str:
    """Who leads, as a sentence for people."""
    who = "this manager" if lead.mine else f"the manager on {lead.host} (session {lead.session})"
    return f"{who} leads (term {lead.term})"
