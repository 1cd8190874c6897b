"""Leases without a task. Members are locked before leases."""

import msgspec

from pitboss.engines.postgres.hands import Hands, Return
from pitboss.engines.postgres.ready_members import MemberGrants, Need
from pitboss.engines.postgres.rows import names
from pitboss.engines.postgres.script import Again, Row, Script, Statements
from pitboss.engines.postgres.tally import Tally
from pitboss.model.duration import Moment, Span
from pitboss.model.picking import leased
from pitboss.model.resource import Leased, Report, Shortage, Want

_RETURNED_AT_ONCE = 5000
_decode = msgspec.json.Decoder(Leased).decode


def acquire(
    say: Statements, pool: str, want: Want, hold: Span, lease: str, now: Moment | None
) -> Script[Leased | Shortage | Again]:
    """A member for a lease outside tasks, within a transaction; `Again` if another transaction is about to take the
    members that are left."""
    yield say.ask("lease_lock", lease=f"{say.channel} {lease}").unheard()
    known: list[Row] = yield say.ask("lease_get", now, id=lease)
    if known and known[0][4]:
        return msgspec.structs.replace(_decode(known[0][5]), expires_at=known[0][3])
    if known:
        yield from _end(say, lease, known[0], None, now)
    yield say.ask("member_wake", now, pools=names([pool]), limit=_RETURNED_AT_ONCE).unheard()
    grants = MemberGrants(say, now)
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
    yield say.ask("lease_put", moment, given=msgspec.json.encode(held).decode(), **values).unheard()
    return held


def release(say: Statements, lease: str, report: Report | None, now: Moment | None) -> Script[bool]:
    """Give it back, within a transaction; False if it is not held."""
    known = yield say.ask("lease_get", now, id=lease)
    return bool(known and known[0][4] and (yield from _end(say, lease, known[0], report, now)))


def extend(say: Statements, lease: str, hold: Span, now: Moment | None) -> Script[Moment | None]:
    rows = yield say.ask("lease_extend", now, id=lease, hold=hold)
    until: Moment | None = rows[0][0] if rows else None
    return until


def _end(say: Statements, lease: str, row: Row, report: Report | None, now: Moment | None) -> Script[bool]:
    """The lease is over; False if somebody else has ended it by now."""
    pool, name, since = row[:3]
    hands = Hands(say)
    back = Return(f"{pool}/{name}", since, report)
    yield from hands.lock([back])
    yield from hands.read_rules(now)
    gone = yield say.ask("lease_end", id=lease, since=since)
    if not gone:
        return False
    yield from hands.take(back)
    yield from hands.write(Tally())
    return True
