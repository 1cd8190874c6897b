"""Resource pools as operators make, change and see them. The pool's row is locked first, then members by number."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from pitboss.engines.postgres import members
from pitboss.engines.postgres.control import current
from pitboss.engines.postgres.members import Member
from pitboss.engines.postgres.rows import names, numbers
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.engines.postgres.tally import Tally
from pitboss.engines.postgres.uses import Uses
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


def declare(say: Statements, name: str, rules: PoolRules, now: Moment | None) -> Script[None]:
    """Create the pool or change its rules, within a transaction."""
    known = yield from _locked_pool(say, name, rules)
    if known != rules:
        moment = yield from current(say, now)
        found = [members.member(row) for row in (yield say.ask("member_lock_all", pool=name))]
        yield say.ask("pool_set_rules", name=name, rules=members.rules_text(rules))
        yield from _rewrite(say, found, lambda member, nth: restated(member, rules, nth, moment))
    yield from ring(say, [name])


def listed(say: Statements, now: Moment | None) -> Script[list[ResourcePool]]:
    rows = yield say.ask("pool_list", now)
    return [
        ResourcePool(name=name, rules=members.rules_of(rules), stages=_decode_stages(stages), next_at=next_at)
        for name, rules, stages, next_at in rows
    ]


def add(say: Statements, pool: str, new: Sequence[NewResource], now: Moment | None) -> Script[list[bool]]:
    """New members, and new settings for those that there are, within a transaction."""
    asked = [checked_resource(one) for one in new]
    rules = yield from _locked_pool(say, pool, PoolRules())
    known = yield from members.locked(say, [f"{pool}/{one.name}" for one in asked])
    moment = yield from current(say, now)
    there = {one.resource.name: one for one in known.values()}
    wanted = {one.name: one for one in asked}
    ((turn,),) = yield say.ask("member_lowest_turn", pool=pool)
    fresh = [added(pool, one, rules, turn, moment) for name, one in wanted.items() if name not in there]
    yield from members.insert(say, fresh)
    yield from _rewrite(
        say, there.values(), lambda member, nth: added_again(member, wanted[member.name], rules, nth, moment)
    )
    yield from ring(say, [pool])
    return [one.name not in there for one in asked]


def change(
    say: Statements, pool: str, wanted: Sequence[str] | None, what: ResourceChange | None, now: Moment | None
) -> Script[list[str]]:
    """Change members or remove them, within a transaction; the names of those that there were."""
    locks = yield say.ask("pool_lock", names=names([pool]))
    if not locks:
        return []
    rules = members.rules_of(locks[0][1])
    found = yield from _locked_members(say, pool, wanted)
    moment = yield from current(say, now)
    if what is None:
        yield say.ask("member_remove", members=numbers([one.number for one in found]))
    else:
        yield from _rewrite(say, found, lambda member, nth: changed(member, what, rules, nth, moment))
    yield from ring(say, [pool])
    return sorted(one.resource.name for one in found)


def shown(say: Statements, pool: str, wanted: Sequence[str] | None, now: Moment | None) -> Script[list[Resource]]:
    """Members by name, each with its stage as it is at this moment."""
    rows = yield say.ask("member_list", pool=pool, names=None if wanted is None else names(wanted))
    moment, rules = yield from members.rules_now(say, [pool], now)
    return [placed(members.member(row).resource, rules[pool], moment) for row in rows]


def ring(say: Statements, pools: Iterable[str]) -> Script[None]:
    """Who waits for queues of these pools looks again."""
    tally = Tally()
    tally.pools |= set(pools)
    yield from tally.write(say)


def _locked_pool(say: Statements, name: str, rules: PoolRules) -> Script[PoolRules]:
    """The pool's rules, behind its lock; with these if it is new."""
    rows: list[Row] = yield say.ask("pool_lock", names=names([name]))
    if not rows:
        yield say.ask("pool_create", name=name, rules=members.rules_text(rules))
        rows = yield say.ask("pool_lock", names=names([name]))
    return members.rules_of(rows[0][1])


def _locked_members(say: Statements, pool: str, wanted: Sequence[str] | None) -> Script[list[Member]]:
    if wanted is not None:
        return list((yield from members.locked(say, [f"{pool}/{name}" for name in wanted])).values())
    return [members.member(row) for row in (yield say.ask("member_lock_all", pool=pool))]


def _rewrite(say: Statements, found: Iterable[Member], restate: _Restated) -> Script[None]:
    """Members as they stand after something was changed. Which uses the new limits look at is known only behind the
    change, so all that are remembered are read."""
    known, uses = list(found), Uses()
    all_of_them = [one.number for one in known]
    uses.note_all(all_of_them, (yield say.ask("use_list", members=numbers(all_of_them))))
    yield from members.rewrite(
        say, [Member(one.number, restate(one.resource, uses.nth(one.number, one.resource))) for one in known]
    )
