"""What the driver's errors mean to a caller."""

import psycopg
from psycopg import conninfo

from pitboss.model.errors import InvalidInput, PitbossError, SchemaMismatch, StoreUnavailable

# Rolled back by the server because of a conflict; the whole call can simply run again.
RETRIED = frozenset({"40001", "40P01"})
# A prepared statement is missing: a pooler gives each transaction another server connection.
PREPARED_GONE = frozenset({"26000", "42P05", "08P01"})
# The server takes no writes any more, or ends the connection: do not use it again.
BREAKS = frozenset({"25006", "57P01", "57P02", "57P03"})
_MISSING = frozenset({"3F000", "42P01", "42703"})
_PASSING = ("starting up", "shutting down", "recovery", "too many", "reserved for", "no more connections")
_SLOW = frozenset({"57014", "55P03"})


def translated(error: psycopg.Error) -> Exception:
    """The error that the engine raises in its place."""
    state = error.sqlstate or ""
    if isinstance(error, psycopg.DataError) or state.startswith("22"):
        return unstorable(_first_line(error))
    if state in _MISSING:
        return SchemaMismatch(
            "the store's tables are not there, or not as this version knows them",
            why=_first_line(error),
            fix="open the engine first, which creates them; check the schema's name and the user's rights",
        )
    if state in RETRIED:
        return StoreUnavailable(
            "the transaction met a conflict with another one",
            why=f"{_first_line(error)}; nothing of this call was stored",
            fix="roll your transaction back and repeat it as a whole",
        )
    if state in _SLOW:
        return StoreUnavailable(
            "the store did not answer in time",
            why=f"{_first_line(error)}; the call was undone",
            fix="look for long transactions and locks on the server; the call may be repeated",
        )
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
        return _lost(error)
    return error


def unstorable(why: str) -> InvalidInput:
    return InvalidInput(
        "the store cannot hold a value of this call",
        why=why,
        fix="check ids, texts (no NUL, no lone surrogates) and numbers (64 bits)",
    )


def unreachable(dsn: str, error: psycopg.Error) -> PitbossError:
    known = conninfo.conninfo_to_dict(dsn)
    place = f"{known.get('host') or 'the local socket'}:{known.get('port') or 5432}/{known.get('dbname') or ''}"
    return StoreUnavailable(
        f"PostgreSQL at {place} cannot be reached",
        why=_first_line(error),
        fix="check that the server runs and that address, user and password are right; then repeat the call",
    )


def ended() -> StoreUnavailable:
    return StoreUnavailable(
        "PostgreSQL closed the connection",
        why="the server restarts, or an administrator ended its connections",
        fix="nothing: calls connect again by themselves",
    )


def is_refused_option(error: psycopg.Error) -> bool:
    """A pooler that does not pass settings on refuses the connection with this."""
    return "startup parameter" in str(error)


def may_pass(error: psycopg.Error) -> bool:
    """Whether connecting again soon may succeed. A server that refuses us for good says FATAL and why."""
    text = str(error)
    return "FATAL" not in text or any(sign in text for sign in _PASSING)


def _lost(error: psycopg.Error) -> PitbossError:
    return StoreUnavailable(
        "the connection to PostgreSQL was lost during a call",
        why=f"{_first_line(error)}; whether the call happened is not known",
        fix="repeat the call: that is harmless, and connects again",
    )


def _first_line(error: psycopg.Error) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
