"""Resource pools as operators make, change and see them. Lock order: the pool's row, then members by number."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from pitboss.engines.postgres import members
from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.members import Member
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements, current
from pitboss.engines.postgres.use_history import UseHistory
from pitboss.model.duration import Moment
from pitboss.model.leasing import Nth, placed, restated
from pitboss.model.picking import Departed, added, added_again, changed, departed
from pitboss.model.pool_rules import declared, effective, limited
from pitboss.model.resource import (
    Declaration,
    KeyValue,
    NewResource,
    OperatorLimits,
    PoolRules,
    Resource,
    ResourceChange,
    ResourcePool,
    Stage,
    checked_resource,
)

_decode_stages = msgspec.json.Decoder(dict[Stage, int]).decode
_decode_declaration = msgspec.json.Decoder(Declaration).decode
_decode_limits = msgspec.json.Decoder(OperatorLimits).decode
_decode_departed = msgspec.json.Decoder(Departed).decode
_Restated = Callable[[Resource, Nth], Resource]


def declare(
    sql: Statements, name: str, rules: PoolRules | None, by: str | None, replace: bool, now: Moment | None
) -> Script[Declaration | None]:
    """Create the pool, and declare its rules, within a transaction."""
    known = yield from _locked_pool(sql, name)
    moment = yield from current(sql, now)
    after = declared(known.declared, rules, by, moment, replace=replace)
    yield from _set_rules(sql, known, _Pool(name, effective(after, known.limited), after, known.limited), moment)
    return known.declared


def limit(
    sql: Statements, name: str, values: dict[str, KeyValue], by: str | None, reset: bool, now: Moment | None
) -> Script[bool]:
    """Set an operator's keys, within a transaction; False if there is no such pool."""
    locks = yield sql.ask("pool_lock", names=names([name]))
    if not locks:
        return False
    known, moment = _pool(locks[0]), (yield from current(sql, now))
    after = limited(known.limited, values, by, moment, reset=reset)
    yield from _set_rules(sql, known, _Pool(name, effective(known.declared, after), known.declared, after), moment)
    return True


def listed(sql: Statements, now: Moment | None) -> Script[list[ResourcePool]]:
    rows = yield sql.ask("pool_list", now)
    return [ResourcePool(**_pool(row)._asdict(), stages=_decode_stages(row[4]), next_at=row[5]) for row in rows]


def add(sql: Statements, pool: str, new: Sequence[NewResource], now: Moment | None) -> Script[list[bool]]:
    """Add new members and change the settings of known ones, within a transaction; which were new."""
    asked = [checked_resource(one) for one in new]
    rules = (yield from _locked_pool(sql, pool)).rules
    known = yield from members.locked(sql, [f"{pool}/{one.name}" for one in asked])
    moment = yield from current(sql, now)
    there = {one.resource.name: one for one in known.values()}
    wanted = {one.name: one for one in asked}
    ((turn,),) = yield sql.ask("member_lowest_turn", pool=pool)
    fresh = [one for name, one in wanted.items() if name not in there]
    back = yield from _departed(sql, pool, fresh, moment)
    yield from members.insert(sql, [added(pool, one, rules, turn, moment, back.get(one.name)) for one in fresh])
    yield from _restore_uses(sql, pool, back)
    yield from _rewrite(
        sql, there.values(), lambda member, nth: added_again(member, wanted[member.name], rules, nth, moment)
    )
    yield from ring(sql, [pool])
    return [one.name not in there for one in asked]


def change(
    sql: Statements, pool: str, wanted: Sequence[str] | None, what: ResourceChange | None, now: Moment | None
) -> Script[list[str]]:
    """Change members or remove them, within a transaction; the names of those that exist."""
    locks = yield sql.ask("pool_lock", names=names([pool]))
    if not locks:
        return []
    rules = members.rules_of(locks[0][1])
    found = yield from _locked_members(sql, pool, wanted)
    moment = yield from current(sql, now)
    if what is None:
        yield from _remove(sql, pool, found, rules, moment)
    else:
        yield from _rewrite(sql, found, lambda member, nth: changed(member, what, rules, nth, moment))
    yield from ring(sql, [pool])
    return sorted(one.resource.name for one in found)


def shown(sql: Statements, pool: str, wanted: Sequence[str] | None, now: Moment | None) -> Script[list[Resource]]:
    """Members by name, each with its stage at this moment."""
    rows = yield sql.ask("member_list", pool=pool, names=None if wanted is None else names(wanted))
    moment, rules = yield from members.rules_now(sql, [pool], now)
    return [placed(members.member(row).resource, rules[pool], moment) for row in rows]


def ring(sql: Statements, pools: Iterable[str]) -> Script[None]:
    """Wake waiters on queues of these pools."""
    counts = CountChanges()
    counts.pools |= set(pools)
    yield from counts.write(sql)


class _Pool(NamedTuple):
    """A pool's row: its rules, and where they come from."""

    name: str
    rules: PoolRules
    declared: Declaration | None
    limited: OperatorLimits | None


def _pool(row: Row) -> _Pool:
    name, rules, declared, limited = row[:4]
    return _Pool(
        name,
        members.rules_of(rules),
        None if declared is None else _decode_declaration(declared),
        None if limited is None else _decode_limits(limited),
    )


def _locked_pool(sql: Statements, name: str) -> Script[_Pool]:
    """Lock the pool, and create it if it is new."""
    rows: list[Row] = yield sql.ask("pool_lock", names=names([name]))
    if not rows:
        yield sql.ask("pool_create", name=name, rules=members.rules_text(PoolRules()))
        rows = yield sql.ask("pool_lock", names=names([name]))
    return _pool(rows[0])


def _set_rules(sql: Statements, before: _Pool, after: _Pool, now: Moment) -> Script[None]:
    """Write where the rules come from, and what they change of the members."""
    if before != after:
        found: list[Member] = []
        if before.rules != after.rules:
            found = [members.member(row) for row in (yield sql.ask("member_lock_all", pool=after.name))]
        sources = {
            "declared": None if after.declared is None else msgspec.json.encode(after.declared).decode(),
            "limited": None if after.limited is None else msgspec.json.encode(after.limited).decode(),
        }
        yield sql.ask("pool_set_rules", name=after.name, rules=members.rules_text(after.rules), **sources)
        yield from _rewrite(sql, found, lambda member, nth: restated(member, after.rules, nth, now))
    yield from ring(sql, [after.name])


def _remove(sql: Statements, pool: str, found: Sequence[Member], rules: PoolRules, now: Moment) -> Script[None]:
    gone = numbers([one.number for one in found])
    uses = UseHistory()
    uses.note_all([one.number for one in found], (yield sql.ask("use_list", members=gone)))
    left: dict[str, Departed] = {}
    for number, member in found:
        kept = departed(member, rules, uses.nth(number, member), now)
        left |= {} if kept is None else {member.name: kept}
    if left:
        yield sql.ask(
            "departed_put",
            pool=pool,
            names=texts(list(left)),
            untils=numbers([one.until for one in left.values()]),
            kept=texts([msgspec.json.encode(one).decode() for one in left.values()]),
        )
    yield sql.ask("member_remove", members=gone)


def _departed(sql: Statements, pool: str, new: Sequence[NewResource], now: Moment) -> Script[dict[str, Departed]]:
    """What is remembered of removed members of these names."""
    rows = yield sql.ask("departed_take", now, pool=pool, names=texts([one.name for one in new]))
    return {name: _decode_departed(text) for name, text in rows if text is not None}


def _restore_uses(sql: Statements, pool: str, back: dict[str, Departed]) -> Script[None]:
    uses = [
        (name, number, at)
        for name, before in back.items()
        for number, at in enumerate(before.uses, start=before.number - len(before.uses) + 1)
    ]
    if uses:
        yield sql.ask(
            "use_restore",
            pool=pool,
            names=texts([name for name, _, _ in uses]),
            numbers=numbers([number for _, number, _ in uses]),
            ats=numbers([at for _, _, at in uses]),
        )


def _locked_members(sql: Statements, pool: str, wanted: Sequence[str] | None) -> Script[list[Member]]:
    if wanted is not None:
        return list((yield from members.locked(sql, [f"{pool}/{name}" for name in wanted])).values())
    return [members.member(row) for row in (yield sql.ask("member_lock_all", pool=pool))]


def _rewrite(sql: Statements, found: Iterable[Member], restate: _Restated) -> Script[None]:
    """Write members after a change. Which uses the new limits look at is known only after the change, so all stored
    uses are read."""
    known, uses = list(found), UseHistory()
    all_numbers = [one.number for one in known]
    uses.note_all(all_numbers, (yield sql.ask("use_list", members=numbers(all_numbers))))
    yield from members.rewrite(
        sql, [Member(one.number, restate(one.resource, uses.nth(one.number, one.resource))) for one in known]
    )
