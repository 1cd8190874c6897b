"""Whether a server is set up to keep what it acknowledges, and in good health."""

from collections.abc import Sequence
from typing import NamedTuple

from pitboss.engines.postgres.script import Row
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.finding import Finding, fine, problem, warning
from pitboss.model.text import counted

# The oldest release that still gets fixes.
_OLDEST = 140_000
# From these on, a writer that waited for a row looks again whether it is the row that it had seen.
_SOUND = {14: 140_020, 15: 150_015, 16: 160_011, 17: 170_007, 18: 180_001}
_CROWDED_SHARE = 0.9
_LONG_WAIT: Span = 2 * SECOND


class Server(NamedTuple):
    """What the statement `diagnose` answers, in its order."""

    version: str
    number: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    max_connections: int
    recovering: bool
    connections: int
    now: Moment


def server(row: Row) -> Server:
    return Server(*row)


def of_server(found: Server) -> list[Finding]:
    return [_durability(found), _version(found), _vacuum(found), _connections(found), *_standby(found)]


def of_locks(rows: Sequence[Row]) -> Finding:
    """Transactions that wait for a lock: how many, how long the first of them has waited, and who holds it. Short waits
    are normal: claims on one queue take turns."""
    for number, wait, holder, state in rows:
        who = "" if holder is None else f"; process {holder} ({state or 'its state is hidden'}) holds it"
        said = f"{counted(number, 'transaction')} {'waits' if number == 1 else 'wait'} for a lock"
        if wait < _LONG_WAIT:
            return fine("locks", f"{said}, none for longer than {spoken(_LONG_WAIT)}")
        return warning(
            "locks",
            f"{said}, one for {spoken(wait)}{who}",
            why="until the lock is free, tasks may not be claimed or settled",
            fix=("" if holder is None else f"end that transaction: SELECT pg_terminate_backend({holder}); ")
            + "all waits: SELECT * FROM pg_locks WHERE NOT granted",
        )
    return fine("locks", "no transaction waits for a lock")


def _durability(found: Server) -> Finding:
    switches = {
        "fsync": found.fsync,
        "full_page_writes": found.full_page_writes,
        "synchronous_commit": found.synchronous_commit,
    }
    said = ", ".join(f"{name}={value}" for name, value in switches.items())
    off = [name for name, value in switches.items() if value == "off"]
    if not off:
        return fine("durability", f"PostgreSQL with {said}")
    return problem(
        "durability",
        f"PostgreSQL with {said}",
        why="tasks that were acknowledged may be lost when the server crashes or loses power",
        fix=f"set {' and '.join(f'{name} = on' for name in off)} for the server, the database or the role",
    )


def _version(found: Server) -> Finding:
    said = f"PostgreSQL {found.version.partition(' ')[0]}"
    sound = _SOUND.get(found.number // 10_000, _OLDEST)
    if _OLDEST <= found.number < sound:
        return problem(
            "server",
            said,
            why="this release may write to a row that changed while it waited for it: a task could be settled twice",
            fix=f"install its update {sound // 10_000}.{sound % 10_000} or a later one",
        )
    if found.number >= _OLDEST:
        return fine("server", said)
    return warning(
        "server", said, why="this release gets no fixes any more", fix=f"upgrade to {_OLDEST // 10_000} or newer"
    )


def _vacuum(found: Server) -> Finding:
    if found.autovacuum == "on":
        return fine("vacuum", "autovacuum is on")
    return problem(
        "vacuum",
        "autovacuum is off",
        why="old versions of rows are never cleared away: claims get slower, and the tables grow without end",
        fix="set autovacuum = on",
    )


def _connections(found: Server) -> Finding:
    said = f"{found.connections} of {found.max_connections} connections in use"
    if found.connections < found.max_connections * _CROWDED_SHARE:
        return fine("connections", said)
    return warning(
        "connections",
        said,
        why="a manager that finds no free connection cannot renew its session",
        fix="raise max_connections, or put PgBouncer in front",
    )


def _standby(found: Server) -> list[Finding]:
    if not found.recovering:
        return []
    return [
        problem(
            "server",
            "this server is a standby and takes no writes",
            why="it follows another server",
            fix="name the primary in the store's URL, or add target_session_attrs=read-write",
        )
    ]
