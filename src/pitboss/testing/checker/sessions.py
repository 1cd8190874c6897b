"""How long sessions surely lived, and since when they were surely dead."""

from collections import defaultdict
from collections.abc import Iterable

from pitboss.model.duration import Moment
from pitboss.testing import history as acts
from pitboss.testing.history import FOREVER, Call


class SessionLife:
    """What the calls prove about one session."""

    def __init__(self) -> None:
        self.opened: list[Call] = []
        self.confirmed_until: Moment = 0
        self.end_begun = FOREVER
        self.end_asked_at: Moment | None = None
        self.dead_since = FOREVER
        self.renewal_unknown = False
        self.revived = False

    def may_be_dead(self, at: Moment | None, before: int) -> bool:
        """Whether the session may have been over at that moment, which is before that place in the order."""
        return self.end_begun < before or at is None or at >= self.confirmed_until

    def surely_dead(self, at: Moment | None, after: int) -> bool:
        """Whether the session was over at that moment, which is after that place in the order."""
        if self.dead_since < after:
            return True
        return at is not None and bool(self.opened) and not self.renewal_unknown and at >= self.confirmed_until


class SessionLives:
    """All sessions of a history."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.by_number: dict[int, SessionLife] = defaultdict(SessionLife)
        for call in calls:
            self._file(call)

    def __getitem__(self, number: int) -> SessionLife:
        return self.by_number[number]

    def _file(self, call: Call) -> None:
        match call.act:
            case acts.OpenSession(session=session) if session is not None:
                life = self.by_number[session.number]
                life.opened.append(call)
                life.confirmed_until = max(life.confirmed_until, session.expires_at)
            case acts.EndSession(session=number):
                self._ended(self.by_number[number], call)
            case acts.Renew(session=number, renewal=renewal):
                life = self.by_number[number]
                life.renewal_unknown |= call.unknown
                if renewal is not None and renewal.alive:
                    life.revived |= life.surely_dead(call.asked_at, call.begun)
                    life.confirmed_until = max(life.confirmed_until, renewal.expires_at)
                elif renewal is not None:
                    life.dead_since = min(life.dead_since, call.ended)
            case acts.Claim(request=request) if call.error == "SessionLost":
                self._told_dead(request.session, call)
            case acts.Campaign(session=number) if call.error == "SessionLost":
                self._told_dead(number, call)
            case _:
                pass

    def _told_dead(self, session: int, call: Call) -> None:
        life = self.by_number[session]
        life.dead_since = min(life.dead_since, call.ended)

    def _ended(self, life: SessionLife, call: Call) -> None:
        if call.begun < life.end_begun:
            life.end_begun, life.end_asked_at = call.begun, call.asked_at
        if call.answered:
            life.dead_since = min(life.dead_since, call.ended)
