"""Engines that are wrong about who leads."""

import asyncio

import msgspec

from pitboss.model.duration import Moment
from pitboss.model.errors import NotLeader
from pitboss.model.session import Lead
from tests.races.planted import Planted

_LEADS, _FENCED = "one session leads", "current term"


class PlantedLead(Planted):
    """A bug in the lead."""


class LeadRace(PlantedLead):
    """Looks for a leader, then takes the lead: two sessions at once both get it."""

    breaks = _LEADS

    async def campaign(self, session: int) -> Lead:
        now = self.clock.now()
        free, term = self._lead(now) is None and self._alive(session, now), self.tables.term
        await asyncio.sleep(0)
        if free:
            self.tables.leader, self.tables.term = None, term
        return await super().campaign(session)


class TermReused(PlantedLead):
    """A takeover goes on under the term of the one before."""

    breaks = _LEADS

    def _elect(self, session: int) -> Lead:
        lead = super()._elect(session)
        self.tables.term = 1
        return msgspec.structs.replace(lead, term=1)


class LastCampaignerLeads(PlantedLead):
    """A live leader loses the lead to any session that asks."""

    breaks = _LEADS

    async def campaign(self, session: int) -> Lead:
        if self.tables.leader != session:
            self.tables.leader = None
        return await super().campaign(session)


class TheDeadLead(PlantedLead):
    """That the leader's session has expired is not looked at."""

    breaks = _LEADS

    def _lead(self, now: Moment) -> Lead | None:
        leader = self.tables.leader
        known = None if leader is None else self.tables.sessions.get(leader)
        return super()._lead(now if known is None or known.ended else min(now, known.expires_at - 1))


class ResigningIsNothing(PlantedLead):
    """Who resigns leads on."""

    breaks = _LEADS

    async def resign(self, session: int) -> None:
        return None


class NoFenceOnDuties(PlantedLead):
    """Every term may prune."""

    breaks = _FENCED

    def check_term(self, term: int, now: Moment) -> None:
        return None


class FenceLooksAtTheNumberOnly(PlantedLead):
    """A leader that is dead, and that has no successor yet, may prune."""

    breaks = _FENCED

    def check_term(self, term: int, now: Moment) -> None:
        if term != self.tables.term:
            raise NotLeader(term)


class FenceShutsTheLeaderOut(PlantedLead):
    """No session may prune, not even the leader."""

    breaks = _FENCED

    def check_term(self, term: int, now: Moment) -> None:
        raise NotLeader(term)


LEADING_BUGS: list[type[Planted]] = [*PlantedLead.__subclasses__()]
