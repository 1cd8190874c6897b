"""Who leads: one row that a session takes under a new term when the last leader is not alive.

The row is locked before all others of a transaction, and for the transaction only: that works behind a pooler too.
"""

from pitboss.engines.postgres.script import Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.session import Lead


def found(say: Statements, now: Moment | None, session: int | None = None) -> Script[Lead | None]:
    """Who leads, without a lock; `SessionLost` if it is a session that asks and it is not alive."""
    ((term, number, host, alive),) = yield say.ask("leader_get", now, session=session)
    if session is not None and not alive:
        raise SessionLost(session)
    return None if number is None else Lead(term=term, session=number, host=host, mine=number == session)


def elected(say: Statements, now: Moment | None, session: int) -> Script[Lead]:
    """Take the lead, unless somebody else has taken it by now."""
    ((last,),) = yield say.ask("leader_lock")
    if last is not None:
        yield say.ask("session_lock", session=last)
    lead = yield from found(say, now, session)
    if lead is None:
        ((term, host),) = yield say.ask("leader_elect", session=session)
        lead = Lead(term=term, session=session, host=host, mine=True)
    return lead


def check_term(say: Statements, now: Moment | None, term: int) -> Script[None]:
    """Refuse whoever does not lead under this term now. No other term begins before the transaction is over."""
    rows = yield say.ask("leader_lock_term", now)
    if rows != [(term,)]:
        raise NotLeader(term)
