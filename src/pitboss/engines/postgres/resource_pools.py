"""Resource pools as operators make, change and see them. Lock order: the pool's row, then members by number."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from pitboss.engines.postgres import members
from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.members import Member
from pitboss.engines.postgres.rows import names, numbers
from pitboss.engines.postgres.script import Row, Script, Statements, current
from pitboss.engines.postgres.use_history import UseHistory
from pitboss.model.duration import Moment
from pitboss.model.leasing import Nth, placed, restated
from pitboss.model.picking import added, added_again, changed
from pitboss.model.resource import (
    NewResource,
    PoolRules,
    Resource,
    ResourceChange,
    ResourcePool,
    Stage,
    checked_resource,
)

_decode_stages = msgspec.json.Decoder(dict[Stage, int]).decode
_Restated = Callable[[Resource, Nth], Resource]


def declare(sql: Statements, name: str, rules: PoolRules, now: Moment | None) -> Script[None]:
    """Create the pool or change its rules, within a transaction."""
    known = yield from _locked_pool(sql, name, rules)
    if known != rules:
        moment = yield from current(sql, now)
        found = [members.member(row) for row in (yield sql.ask("member_lock_all", pool=name))]
        yield sql.ask("pool_set_rules", name=name, rules=members.rules_text(rules))
        yield from _rewrite(sql, found, lambda member, nth: restated(member, rules, nth, moment))
    yield from ring(sql, [name])


def listed(sql: Statements, now: Moment | None) -> Script[list[ResourcePool]]:
    rows = yield sql.ask("pool_list", now)
    return [
        ResourcePool(name=name, rules=members.rules_of(rules), stages=_decode_stages(stages), next_at=next_at)
        for name, rules, stages, next_at in rows
    ]


def add(sql: Statements, pool: str, new: Sequence[NewResource], now: Moment | None) -> Script[list[bool]]:
    """Add new members and change the settings of known ones, within a transaction; which were new."""
    asked = [checked_resource(one) for one in new]
    rules = yield from _locked_pool(sql, pool, PoolRules())
    known = yield from members.locked(sql, [f"{pool}/{one.name}" for one in asked])
    moment = yield from current(sql, now)
    there = {one.resource.name: one for one in known.values()}
    wanted = {one.name: one for one in asked}
    ((turn,),) = yield sql.ask("member_lowest_turn", pool=pool)
    fresh = [added(pool, one, rules, turn, moment) for name, one in wanted.items() if name not in there]
    yield from members.insert(sql, fresh)
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
        yield sql.ask("member_remove", members=numbers([one.number for one in found]))
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


def _locked_pool(sql: Statements, name: str, rules: PoolRules) -> Script[PoolRules]:
    """Lock the pool, and create it with these rules if it is new; its rules."""
    rows: list[Row] = yield sql.ask("pool_lock", names=names([name]))
    if not rows:
        yield sql.ask("pool_create", name=name, rules=members.rules_text(rules))
        rows = yield sql.ask("pool_lock", names=names([name]))
    return members.rules_of(rows[0][1])


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
