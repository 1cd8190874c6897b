"""Keeps a manager in the running for the lead: asks every two seconds, and knows the term while it leads."""

import asyncio
from collections.abc import Callable

from pitboss.engines.protocol import Clock, Leader
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import SessionLost, StoreUnavailable
from pitboss.model.session import Lead

CAMPAIGN_SECONDS = 2.0
# An answer that is older than this is not believed: the manager stood still, or the store has been away.
BELIEVED: Span = 5 * SECOND


class Leadership:
    """One manager's part in it. `session` is its session at the time, None while it has none.

    `told` hears who leads, each time that it is somebody else or another term. What is known here is a hint, which
    spares useless calls: whether a duty is done is decided by the store, which is given the term and compares it.
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

    def lead(self) -> Lead | None:
        """Who leads, as far as is known; None if nothing is known that is fresh enough."""
        fresh = 0 <= self._clock.now() - self._heard_at < BELIEVED
        return self._lead if fresh else None

    def term(self) -> int | None:
        """The term under which this manager leads; None while it does not."""
        lead = self.lead()
        return lead.term if lead is not None and lead.mine and lead.session == self._session() else None

    async def campaign(self) -> None:
        """Ask once. A store that is away is asked again the next time."""
        session, asked_at = self._session(), self._clock.now()
        if session is None:
            self._lead = None
            return
        try:
            lead = await self._engine.campaign(session)
        except StoreUnavailable:
            return
        except SessionLost:
            self._lead = None
            return
        # From before the question: how long the answer took must not make it look fresher than it is.
        self._lead, self._heard_at = lead, asked_at
        if self._last != (lead.term, lead.session):
            self._last = (lead.term, lead.session)
            self._told(lead)

    async def campaign_forever(self) -> None:
        """Every two seconds, until cancelled. A leader that ends its session is followed within that time."""
        while True:
            await self.campaign()
            await asyncio.sleep(CAMPAIGN_SECONDS)


def spoken(lead: Lead) -> str:
    """Who leads, in a sentence for people."""
    who = "this manager" if lead.mine else f"the manager on {lead.host} (session {lead.session})"
    return f"{who} leads (term {lead.term})"
