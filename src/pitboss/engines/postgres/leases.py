"""Leases outside tasks. Members are locked before leases."""

import msgspec

from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.ready_members import MemberGrants, Need
from pitboss.engines.postgres.returns import Return, Returns
from pitboss.engines.postgres.rows import names
from pitboss.engines.postgres.script import Again, Row, Script, Statements
from pitboss.model.duration import Moment, Span
from pitboss.model.picking import leased
from pitboss.model.resource import Leased, Report, Shortage, UseEnd, Want

_RETURNED_AT_ONCE = 5000
_decode = msgspec.json.Decoder(Leased).decode


def acquire(
    sql: Statements, pool: str, want: Want, hold: Span, lease: str, now: Moment | None
) -> Script[Leased | Shortage | Again]:
    """A member for a lease outside tasks, within a transaction; `Again` if another transaction is about to take the
    members that are left."""
    yield sql.ask("lease_lock", lease=f"{sql.channel} {lease}").unheard()
    known: list[Row] = yield sql.ask("lease_get", now, id=lease)
    if known and known[0][4]:
        return msgspec.structs.replace(_decode(known[0][5]), expires_at=known[0][3])
    if known:
        yield from _end(sql, lease, known[0], None, now)
    yield sql.ask("member_wake", now, pools=names([pool]), limit=_RETURNED_AT_ONCE).unheard()
    grants = MemberGrants(sql, now)
    need = Need(pool, want)
    yield from grants.load([need], 1)
    given = yield from grants.give(need)
    if given is None:
        shortages = yield from grants.shortages()
        if grants.contended or not shortages:
            return Again()
        return shortages[0]
    yield from grants.write()
    moment = grants.now or 0
    held = leased(given, grants.rules[pool], moment, lease=lease, expires_at=moment + hold)
    values = {"id": lease, "pool": pool, "name": given.name, "expires_at": held.expires_at}
    yield sql.ask("lease_put", moment, given=msgspec.json.encode(held).decode(), **values).unheard()
    return held


def release(
    sql: Statements, lease: str, report: Report | None, use_end: UseEnd | None, now: Moment | None
) -> Script[bool]:
    """Give it back, within a transaction; False if it is not held."""
    known = yield sql.ask("lease_get", now, id=lease)
    return bool(known and known[0][4] and (yield from _end(sql, lease, known[0], report, now, use_end)))


def extend(sql: Statements, lease: str, hold: Span, now: Moment | None) -> Script[Moment | None]:
    rows = yield sql.ask("lease_extend", now, id=lease, hold=hold)
    until: Moment | None = rows[0][0] if rows else None
    return until


def _end(
    sql: Statements, lease: str, row: Row, report: Report | None, now: Moment | None, use_end: UseEnd | None = None
) -> Script[bool]:
    """End the lease; False if another call has ended it meanwhile."""
    pool, name, since = row[:3]
    returns = Returns(sql)
    back = Return(f"{pool}/{name}", since, report, use_end=use_end)
    yield from returns.lock([back], now=now)
    yield from returns.read_rules(now)
    yield from returns.read_uses([back])
    gone = yield sql.ask("lease_end", id=lease, since=since)
    if not gone:
        return False
    if gone[0][0]:
        returns.note_strikes(pool)
    yield from returns.take(back)
    yield from returns.write(CountChanges())
    return True
