"""Leases without a task, and further uses of a member that is held. Members are locked before leases."""

import msgspec

from pitboss.engines.postgres import members
from pitboss.engines.postgres.hands import Hands, Return
from pitboss.engines.postgres.members import Member, Uses
from pitboss.engines.postgres.rows import known_id, names, numbers
from pitboss.engines.postgres.script import Again, Row, Script, Statements
from pitboss.engines.postgres.stock import Need, Stock
from pitboss.engines.postgres.tally import Tally
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import StaleLease
from pitboss.model.ids import TaskId
from pitboss.model.leasing import Moved, moved, used
from pitboss.model.picking import leased, same_member
from pitboss.model.resource import Leased, PoolRules, Report, Shortage, Want
from pitboss.model.task import Token

_RETURNED_AT_ONCE = 5000
_decode = msgspec.json.Decoder(Leased).decode


class Contended(Again):
    """Somebody else is about to take the members that are left; nothing was written."""


def acquire(
    say: Statements, pool: str, want: Want, hold: Span, lease: str, now: Moment | None
) -> Script[Leased | Shortage]:
    """A member for who has a loop of his own, within a transaction; `Contended` to be tried again."""
    yield say.ask("lock_lease", lease=f"{say.channel} {lease}")
    known: list[Row] = yield say.ask("lease", now, id=lease)
    if known and known[0][4]:
        return msgspec.structs.replace(_decode(known[0][5]), expires_at=known[0][3])
    if known:
        yield from _end(say, lease, known[0], None, now)
    yield say.ask("return_members", now, pools=names([pool]), limit=_RETURNED_AT_ONCE)
    stock = Stock(say, now)
    need = Need(pool, want)
    yield from stock.load([need], 1)
    given = yield from stock.give(need)
    if given is None:
        shortages = yield from stock.shortages()
        if stock.contended or not shortages:
            raise Contended
        return shortages[0]
    yield from stock.write()
    moment = stock.now or 0
    held = leased(given, stock.rules[pool], moment, lease=lease, expires_at=moment + hold)
    values = {"id": lease, "pool": pool, "name": given.name, "expires_at": held.expires_at}
    yield say.ask("insert_lease", moment, given=msgspec.json.encode(held).decode(), **values)
    return held


def release(say: Statements, lease: str, report: Report | None, now: Moment | None) -> Script[bool]:
    """Give it back, within a transaction; False if it is not held."""
    known = yield say.ask("lease", now, id=lease)
    return bool(known and known[0][4] and (yield from _end(say, lease, known[0], report, now)))


def extend(say: Statements, lease: str, hold: Span, now: Moment | None) -> Script[Moment | None]:
    rows = yield say.ask("extend_lease", now, id=lease, hold=hold)
    until: Moment | None = rows[0][0] if rows else None
    return until


def use(
    say: Statements, holder: Token | str, task: TaskId | None, instead: Moment | None, now: Moment | None
) -> Script[Moment | Shortage]:
    """One more use of a member that a claim or a lease holds, or instead of one, within a transaction."""
    stale = StaleLease(str(holder) if task is None else f"{holder} of task {task}")
    if task is not None and not known_id(task):
        raise stale
    held = yield from _holding(say, holder, task, now)
    found = {} if held is None else (yield from members.locked(say, [held.resource]))
    one = None if held is None else found.get(held.resource)
    # Whoever gives it back locks the member first: what is held behind that lock stays held.
    if held is None or one is None or held != (yield from _holding(say, holder, task, now)):
        raise stale
    if not same_member(one.resource, held.since):
        raise stale
    return (yield from _use(say, one, instead, now))


def _use(say: Statements, one: Member, instead: Moment | None, now: Moment | None) -> Script[Moment | Shortage]:
    pool = one.resource.pool
    moment, rules = yield from members.rules_now(say, [pool], now)
    change = None if instead is None else (yield from _move(say, one, rules[pool], instead, moment))
    if isinstance(change, Moved):
        yield from members.write(say, [Member(one.number, change.member)], rules)
        return moment
    if change is not None or one.resource.available_at > moment:
        return Shortage(pool=pool, why="all away", until=one.resource.available_at if change is None else change)
    uses = Uses()
    yield from members.read_uses(say, uses, [one], rules)
    given = used(one.resource, rules[pool], uses.nth(one.number, one.resource), moment)
    uses.add(one.number, given, rules[pool])
    yield from members.write(say, [Member(one.number, given)], rules, uses)
    return moment


def _move(say: Statements, one: Member, rules: PoolRules, at: Moment, now: Moment) -> Script[Moved | Moment | None]:
    """Have a use that was granted count from now on. Uses are numbered: those between the two moments move up."""
    rows = yield say.ask("all_uses", members=numbers([one.number]))
    known = {number: moment for _, number, moment in sorted(rows)}
    change = moved(one.resource, rules, list(known.values()), at, now)
    if isinstance(change, Moved) and known:
        later = [(number, new) for (number, old), new in zip(known.items(), change.uses, strict=True) if new != old]
        yield say.ask(
            "move_uses", resource=one.number, numbers=numbers([n for n, _ in later]), ats=numbers([a for _, a in later])
        )
    return change


def _holding(say: Statements, holder: Token | str, task: TaskId | None, now: Moment | None) -> Script[Return | None]:
    """What a lease or a claim holds at this moment."""
    if isinstance(holder, str):
        rows = yield say.ask("lease", now, id=holder)
        return Return(f"{rows[0][0]}/{rows[0][1]}", rows[0][2]) if rows and rows[0][4] else None
    rows = yield say.ask("claim_held", now, task=task, session=holder.session, claim=holder.claim)
    return Return(rows[0][0], rows[0][1] or 0) if rows else None


def _end(say: Statements, lease: str, row: Row, report: Report | None, now: Moment | None) -> Script[bool]:
    """The lease is over; False if somebody else has ended it by now."""
    pool, name, since = row[:3]
    hands = Hands(say)
    back = Return(f"{pool}/{name}", since, report)
    yield from hands.lock([back])
    yield from hands.read_rules(now)
    gone = yield say.ask("delete_lease", id=lease, since=since)
    if not gone:
        return False
    yield from hands.take(back)
    yield from hands.write(Tally())
    return True
