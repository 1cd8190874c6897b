"""Sessions over a `Book`: how long they live, and which of them leads."""

import msgspec

from pitboss.engines.memory.batches import BatchDesk
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.session import Lead, Session, SessionInfo
from pitboss.model.states import State

_HOUR = 3600 * SECOND


class Lives(BatchDesk):
    """Who is alive, and what only the living may do."""

    async def open_session(self, info: SessionInfo) -> Session:
        now = self.clock.now()
        number = max(self.book.sessions, default=0) + 1
        session = Session(number=number, info=info, opened_at=now, expires_at=now + info.ttl)
        self.book.sessions[number] = session
        self.release_held([name for name in info.handlers if name in self.book.handlers], now)
        return session

    async def end_session(self, session: int) -> None:
        known = self.book.sessions.get(session)
        if known and not known.ended:
            self.book.sessions[session] = msgspec.structs.replace(
                known, ended=True, expires_at=min(known.expires_at, self.clock.now())
            )

    async def sessions(self) -> list[Session]:
        now = self.clock.now()
        known = (self.book.sessions[number] for number in sorted(self.book.sessions))
        return [session for session in known if session.expires_at + _HOUR > now]

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
        if self.book.leader == session:
            self.book.leader = None

    def check_term(self, term: int, now: Moment) -> None:
        lead = self._lead(now)
        if lead is None or lead.term != term:
            raise NotLeader(term)

    def _lead(self, now: Moment) -> Lead | None:
        leader = self.book.leader
        if leader is None or not self._alive(leader, now):
            return None
        return Lead(term=self.book.term, session=leader, host=self.book.sessions[leader].info.host)

    def _elect(self, session: int) -> Lead:
        self.book.term += 1
        self.book.leader = session
        return Lead(term=self.book.term, session=session, host=self.book.sessions[session].info.host)

    def _alive(self, session: int, now: Moment) -> bool:
        known = self.book.sessions.get(session)
        return known is not None and not known.ended and known.expires_at > now

    def _served(self, now: Moment) -> set[str]:
        """Registered handlers that a live session knows."""
        return self._known_alive(now) & self.book.handlers.keys()

    def _known_alive(self, now: Moment) -> set[str]:
        live = (one for number, one in self.book.sessions.items() if self._alive(number, now))
        return {handler for session in live for handler in session.info.handlers}

    def _forget_old_sessions(self, now: Moment) -> None:
        held = {task.session for task in self.book.in_state(State.RUNNING)}
        newest = max(self.book.sessions, default=0)
        for number, session in list(self.book.sessions.items()):
            # The newest number stays, so that no number is ever given out twice.
            if session.expires_at + _HOUR <= now and number not in held and number != newest:
                del self.book.sessions[number]
