"""Who leads: one row that a session takes under a new term when the last leader is not alive."""

from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.rows import lead_of
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.session import Lead


def campaign(act: Act, session: int) -> Lead:
    """As the contract says."""
    if not act.one("session_alive", session, act.now):
        raise SessionLost(session)
    row: Any = act.one("leader_get", act.now) or act.one("leader_elect", session)
    lead = lead_of(row)
    return msgspec.structs.replace(lead, mine=lead.session == session)


def resign(act: Act, session: int) -> None:
    act.run("leader_resign", session)


def check_term(act: Act, term: int) -> None:
    """Refuse whoever does not lead under this term now; nobody else writes before this act is over."""
    row: Any = act.one("leader_get", act.now)
    if row is None or lead_of(row).term != term:
        raise NotLeader(term)
