"""Sessions: how long they live, and which of them leads."""

import msgspec

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.session import Lead, Session, SessionInfo
from pitboss.model.states import State


class SessionVerbs(Verbs):
    """The protocols `Sessions` and `Leader`."""

    async def open_session(self, info: SessionInfo) -> Session:
        now = self.clock.now()
        number = max(self.tables.sessions, default=0) + 1
        session = Session(number=number, info=info, opened_at=now, expires_at=now + info.ttl)
        self.tables.sessions[number] = session
        self.tables.release_held([name for name in info.handlers if name in self.tables.handlers], now)
        return session

    async def end_session(self, session: int) -> None:
        known = self.tables.sessions.get(session)
        if known and not known.ended:
            self.tables.sessions[session] = known.closed(self.clock.now())

    async def sessions(self) -> list[Session]:
        now = self.clock.now()
        known = (self.tables.sessions[number] for number in sorted(self.tables.sessions))
        return [session for session in known if session.shown(now)]

    async def campaign(self, session: int) -> Lead:
        self._reach("campaign.before")
        now = self.clock.now()
        if not self._alive(session, now):
            raise SessionLost(session)
        lead = self._lead(now) or self._elect(session)
        self._reach("campaign.after")
        return msgspec.structs.replace(lead, mine=lead.session == session)

    async def leader(self) -> Lead | None:
        return self._lead(self.clock.now())

    async def resign(self, session: int) -> None:
        if self.tables.leader == session:
            self.tables.leader = None

    def _elect(self, session: int) -> Lead:
        self.tables.term += 1
        self.tables.leader = session
        return Lead(term=self.tables.term, session=session, host=self.tables.sessions[session].info.host)

    def _forget_old_sessions(self, now: Moment) -> None:
        held = {task.session for task in self.tables.in_state(State.RUNNING)}
        newest = max(self.tables.sessions, default=0)
        for number, session in list(self.tables.sessions.items()):
            # The newest number stays, so that no number is given out twice.
            if not session.shown(now) and number not in held and number != newest:
                del self.tables.sessions[number]
