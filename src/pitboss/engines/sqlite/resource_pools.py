"""Resource pools as operators see and change them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.member_rows import STAGES, member_from, member_rows, rules_of, rules_text, whole
from pitboss.engines.sqlite.pool_members import PoolMembers
from pitboss.model.duration import Moment
from pitboss.model.leasing import placed, restated
from pitboss.model.picking import Departed, added, added_again, changed, departed
from pitboss.model.pool_rules import declared, effective, limited
from pitboss.model.queue import checked_name
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
)

Rows = Callable[..., Iterable[Any]]
_declaration = msgspec.json.Decoder(Declaration)
_limits = msgspec.json.Decoder(OperatorLimits)
_kept = msgspec.json.Decoder(Departed)


def declare(
    act: Act, name: str, rules: PoolRules | None, by: str | None = None, *, replace: bool = True
) -> Declaration | None:
    """As the contract says."""
    stored = PoolMembers(act, checked_name(name, "resource pool"))
    known = _sources(act, name) or Sources()
    after = declared(known.declared, rules, by, act.now, replace=replace)
    _set_rules(stored, known, Sources(after, known.limited))
    return known.declared


def limit(act: Act, name: str, values: dict[str, KeyValue], by: str | None, *, reset: bool) -> bool:
    """As the contract says."""
    known = _sources(act, name)
    if known is None:
        return False
    after = limited(known.limited, values, by, act.now, reset=reset)
    _set_rules(PoolMembers(act, name), known, Sources(known.declared, after))
    return True


def add(act: Act, pool: str, members: Sequence[NewResource]) -> list[bool]:
    """As the contract says."""
    stored = PoolMembers(act, checked_name(pool, "resource pool"))
    if act.one("pool_rules", pool) is None:
        act.run("pool_put", pool, rules_text(stored.rules), None, None)
    wanted = {new.name: new for new in members}
    stored.keep(act.decoded("member_read_named", member_rows, pool, json_list(wanted)))
    _prefetch_uses(stored)
    lowest: Any = act.one("member_lowest_turn", pool)
    back = _departed(stored, [name for name in wanted if name not in stored.numbers])
    rows = [whole(_added(stored, new, lowest[0], back.get(new.name))) for new in wanted.values()]
    fresh = wanted.keys() - stored.numbers.keys()
    act.bulk("member_put", rows)
    _restore_uses(stored, back)
    stored.ring()
    return [new.name in fresh for new in members]


def change(act: Act, pool: str, names: Sequence[str] | None, wanted: ResourceChange | None) -> list[str]:
    """As the contract says."""
    stored = PoolMembers(act, pool)
    if names is None:
        stored.keep(act.decoded("member_read_all", member_rows, pool))
    else:
        stored.keep(act.decoded("member_read_named", member_rows, pool, json_list(names)))
    if wanted is None:
        _remove(stored)
    else:
        _prefetch_uses(stored)
        rows = [
            whole(changed(member, wanted, stored.rules, stored.uses.nth(number, member), act.now))
            for number, member in stored.known.items()
        ]
        act.bulk("member_put", rows)
    stored.ring()
    return sorted(stored.numbers)


def pools(rows: Rows, now: Moment) -> list[ResourcePool]:
    """Every pool by name, with its number of members in each stage at this moment."""
    stages: dict[str, dict[Stage, int]] = {}
    next_at: dict[str, Moment] = {}
    for pool, stage, n, moment in rows("pool_stages", now):
        stages.setdefault(pool, {})[STAGES[stage]] = n
        if moment is not None:
            next_at[pool] = moment
    return [
        ResourcePool(
            name=name,
            rules=rules_of(rules),
            stages=stages.get(name, {}),
            next_at=next_at.get(name),
            declared=None if declared is None else _declaration.decode(declared),
            limited=None if limited is None else _limits.decode(limited),
        )
        for name, rules, declared, limited in rows("pool_list")
    ]


def resources(rows: Rows, pool: str, names: Sequence[str] | None, now: Moment) -> list[Resource]:
    """Members by name, each with its stage at this moment."""
    rules = next((rules_of(row[0]) for row in rows("pool_rules", pool)), PoolRules())
    listed = rows("member_list", pool) if names is None else rows("member_list_named", pool, json_list(names))
    return [placed(member_from(pool, row), rules, now) for row in listed]


class Sources(NamedTuple):
    """Where the rules of a pool come from."""

    declared: Declaration | None = None
    limited: OperatorLimits | None = None


def _sources(act: Act, name: str) -> Sources | None:
    row: Any = act.one("pool_get", name)
    if row is None:
        return None
    return Sources(
        None if row[0] is None else _declaration.decode(row[0]), None if row[1] is None else _limits.decode(row[1])
    )


def _set_rules(stored: PoolMembers, before: Sources, after: Sources) -> None:
    """Create the pool, or change where its rules come from, and its members with them."""
    act, rules = stored.act, effective(*after)
    if before != after or act.one("pool_rules", stored.pool) is None:
        texts = [None if one is None else msgspec.json.encode(one).decode() for one in after]
        act.run("pool_put", stored.pool, rules_text(rules), *texts)
    if stored.rules != rules:
        stored.rules = rules
        stored.keep(act.decoded("member_read_all", member_rows, stored.pool))
        _prefetch_uses(stored)
        for number, member in list(stored.known.items()):
            stored.change(number, restated(member, rules, stored.uses.nth(number, member), act.now))
        stored.write()
    stored.ring()


def _remove(stored: PoolMembers) -> None:
    act, gone = stored.act, json_list(stored.known)
    for number, member in stored.known.items():
        left = departed(member, stored.rules, stored.uses.nth(number, member), act.now)
        if left is not None:
            act.run("departed_put", stored.pool, member.name, left.until, msgspec.json.encode(left).decode())
    act.run("member_remove", gone)
    act.run("use_forget_all", gone)


def _departed(stored: PoolMembers, names: list[str]) -> dict[str, Departed]:
    """What is remembered of removed members of these names, and is forgotten from now on."""
    act = stored.act
    found: Iterable[Any] = act.rows("departed_list", stored.pool, act.now, json_list(names))
    back = {name: _kept.decode(text) for name, text in found}
    act.run("departed_end", stored.pool, json_list(names))
    return back


def _restore_uses(stored: PoolMembers, back: dict[str, Departed]) -> None:
    act = stored.act
    if back:
        stored.keep(act.decoded("member_read_named", member_rows, stored.pool, json_list(back)))
    rows = [
        (stored.numbers[name], number, at)
        for name, before in back.items()
        for number, at in enumerate(before.uses, start=before.number - len(before.uses) + 1)
    ]
    if rows:
        act.bulk("use_add", rows)


def _prefetch_uses(stored: PoolMembers) -> None:
    stored.uses.prefetch(((number, one, stored.limits(one)) for number, one in stored.known.items()), used=False)


def _added(stored: PoolMembers, new: NewResource, lowest_turn: int, before: Departed | None) -> Resource:
    number = stored.numbers.get(new.name)
    if number is None:
        return added(stored.pool, new, stored.rules, lowest_turn, stored.act.now, before)
    member = stored.known[number]
    return added_again(member, new, stored.rules, stored.uses.nth(number, member), stored.act.now)
