"""The leader: one row that a session takes under a new term when the last leader is not alive.

The row is locked before all others of a transaction, and only for the transaction: that works behind a pooler too.
"""

from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.session import Lead


def found(sql: Statements, now: Moment | None, session: int | None = None) -> Script[Lead | None]:
    """The leader, read without a lock; `SessionLost` if a session asks that is not alive."""
    ((term, number, host, alive),) = yield sql.ask("leader_get", now, session=session)
    if session is not None and not alive:
        raise SessionLost(session)
    return None if number is None else Lead(term=term, session=number, host=host, mine=number == session)


def elected(sql: Statements, now: Moment | None, session: int) -> Script[Lead]:
    """Take the lead, unless another session has taken it meanwhile."""
    ((last,),) = yield sql.ask("leader_lock")
    if last is not None:
        yield sql.ask("session_lock", session=last)
    lead = yield from found(sql, now, session)
    if lead is None:
        ((term, host),) = yield sql.ask("leader_elect", session=session)
        lead = Lead(term=term, session=session, host=host, mine=True)
    return lead


def check_term(sql: Statements, now: Moment | None, term: int) -> Script[None]:
    """Refuse a caller that does not lead under this term. No other term begins before the transaction is over."""
    check((yield locking_term(sql, now)), term)


def locking_term(sql: Statements, now: Moment | None) -> Ask:
    """Its rows are for `check`."""
    return sql.ask("leader_lock_term", now)


def check(rows: list[Row], term: int) -> None:
    if rows != [(term,)]:
        raise NotLeader(term)
