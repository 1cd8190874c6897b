"""How much room the store takes, and refusing new tasks."""

from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.script import Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.usage import StoreUsage


def usage(sql: Statements) -> Script[StoreUsage]:
    """The disk is the server's: how much it has left is not known."""
    ((refusing, size),) = yield sql.ask("usage_get", schema=sql.schema)
    return StoreUsage(size=size, refusing=refusing)


def refuse_new(sql: Statements, reason: str | None, term: int, now: Moment | None) -> Script[None]:
    """As the contract says, within a transaction."""
    yield from check_term(sql, now, term)
    yield sql.ask("refusing_set", reason=reason)
