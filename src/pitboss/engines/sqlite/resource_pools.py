"""Resource pools as operators see and change them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.member_rows import STAGES, member_from, member_rows, rules_of, rules_text, whole
from pitboss.engines.sqlite.pool_members import PoolMembers
from pitboss.model.duration import Moment
from pitboss.model.leasing import placed, restated
from pitboss.model.picking import added, added_again, changed
from pitboss.model.queue import checked_name
from pitboss.model.resource import NewResource, PoolRules, Resource, ResourceChange, ResourcePool, Stage

Rows = Callable[..., Iterable[Any]]


def declare(act: Act, name: str, rules: PoolRules) -> None:
    """As the contract says."""
    stored = PoolMembers(act, checked_name(name, "resource pool"))
    if act.one("pool_rules", name) is None or stored.rules != rules:
        act.run("pool_put", name, rules_text(rules))
        stored.rules = rules
        stored.keep(act.decoded("member_read_all", member_rows, name))
        _prefetch_uses(stored)
        for number, member in list(stored.known.items()):
            stored.change(number, restated(member, rules, stored.uses.nth(number, member), act.now))
        stored.write()
    stored.ring()


def add(act: Act, pool: str, members: Sequence[NewResource]) -> list[bool]:
    """As the contract says."""
    stored = PoolMembers(act, checked_name(pool, "resource pool"))
    if act.one("pool_rules", pool) is None:
        act.run("pool_put", pool, rules_text(stored.rules))
    wanted = {new.name: new for new in members}
    stored.keep(act.decoded("member_read_named", member_rows, pool, json_list(wanted)))
    _prefetch_uses(stored)
    lowest: Any = act.one("member_lowest_turn", pool)
    rows = [whole(_added(stored, new, lowest[0])) for new in wanted.values()]
    act.bulk("member_put", rows)
    stored.ring()
    return [new.name not in stored.numbers for new in members]


def change(act: Act, pool: str, names: Sequence[str] | None, wanted: ResourceChange | None) -> list[str]:
    """As the contract says."""
    stored = PoolMembers(act, pool)
    if names is None:
        stored.keep(act.decoded("member_read_all", member_rows, pool))
    else:
        stored.keep(act.decoded("member_read_named", member_rows, pool, json_list(names)))
    if wanted is None:
        gone = json_list(stored.known)
        act.run("member_remove", gone)
        act.run("use_forget_all", gone)
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
        ResourcePool(name=name, rules=rules_of(rules), stages=stages.get(name, {}), next_at=next_at.get(name))
        for name, rules in rows("pool_list")
    ]


def resources(rows: Rows, pool: str, names: Sequence[str] | None, now: Moment) -> list[Resource]:
    """Members by name, each with its stage at this moment."""
    rules = next((rules_of(row[0]) for row in rows("pool_rules", pool)), PoolRules())
    listed = rows("member_list", pool) if names is None else rows("member_list_named", pool, json_list(names))
    return [placed(member_from(pool, row), rules, now) for row in listed]


def _prefetch_uses(stored: PoolMembers) -> None:
    stored.uses.prefetch(((number, one, stored.limits(one)) for number, one in stored.known.items()), used=False)


def _added(stored: PoolMembers, new: NewResource, lowest_turn: int) -> Resource:
    number = stored.numbers.get(new.name)
    if number is None:
        return added(stored.pool, new, stored.rules, lowest_turn, stored.act.now)
    member = stored.known[number]
    return added_again(member, new, stored.rules, stored.uses.nth(number, member), stored.act.now)
