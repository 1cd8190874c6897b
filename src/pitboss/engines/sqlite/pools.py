"""Resource pools as operators see and change them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.members import STAGES, member_from, rules_of, rules_text, stored_members, whole
from pitboss.engines.sqlite.shelf import Shelf
from pitboss.model.duration import Moment
from pitboss.model.leasing import placed, restated
from pitboss.model.picking import added, added_again, changed
from pitboss.model.queue import checked_name
from pitboss.model.resource import NewResource, PoolRules, Resource, ResourceChange, ResourcePool, Stage

Rows = Callable[..., Iterable[Any]]


def declare(act: Act, name: str, rules: PoolRules) -> None:
    """As the contract says."""
    shelf = Shelf(act, checked_name(name, "resource pool"))
    if act.one("pool_rules", name) is None or shelf.rules != rules:
        act.run("pool_put", name, rules_text(rules))
        shelf.rules = rules
        shelf.keep(act.decoded("member_read_all", stored_members, name))
        _recall(shelf)
        for number, member in list(shelf.members.items()):
            shelf.change(number, restated(member, rules, shelf.uses.nth(number, member), act.now))
        shelf.write()
    shelf.ring()


def add(act: Act, pool: str, members: Sequence[NewResource]) -> list[bool]:
    """As the contract says."""
    shelf = Shelf(act, checked_name(pool, "resource pool"))
    if act.one("pool_rules", pool) is None:
        act.run("pool_put", pool, rules_text(shelf.rules))
    wanted = {new.name: new for new in members}
    shelf.keep(act.decoded("member_read_named", stored_members, pool, json_list(wanted)))
    _recall(shelf)
    lowest: Any = act.one("member_lowest_turn", pool)
    rows = [whole(_added(shelf, new, lowest[0])) for new in wanted.values()]
    act.bulk("member_put", rows)
    shelf.ring()
    return [new.name not in shelf.numbers for new in members]


def change(act: Act, pool: str, names: Sequence[str] | None, wanted: ResourceChange | None) -> list[str]:
    """As the contract says."""
    shelf = Shelf(act, pool)
    if names is None:
        shelf.keep(act.decoded("member_read_all", stored_members, pool))
    else:
        shelf.keep(act.decoded("member_read_named", stored_members, pool, json_list(names)))
    if wanted is None:
        gone = json_list(shelf.members)
        act.run("member_remove", gone)
        act.run("use_forget_all", gone)
    else:
        _recall(shelf)
        rows = [
            whole(changed(member, wanted, shelf.rules, shelf.uses.nth(number, member), act.now))
            for number, member in shelf.members.items()
        ]
        act.bulk("member_put", rows)
    shelf.ring()
    return sorted(shelf.numbers)


def pools(rows: Rows, now: Moment) -> list[ResourcePool]:
    """Every pool by name, as it stands now."""
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
    """Members by name, as they stand now."""
    rules = next((rules_of(row[0]) for row in rows("pool_rules", pool)), PoolRules())
    found = rows("member_list", pool) if names is None else rows("member_list_named", pool, json_list(names))
    return [placed(member_from(pool, row), rules, now) for row in found]


def _recall(shelf: Shelf) -> None:
    shelf.uses.foresee(((number, one, shelf.limits(one)) for number, one in shelf.members.items()), used=False)


def _added(shelf: Shelf, new: NewResource, lowest_turn: int) -> Resource:
    number = shelf.numbers.get(new.name)
    if number is None:
        return added(shelf.pool, new, shelf.rules, lowest_turn, shelf.act.now)
    member = shelf.members[number]
    return added_again(member, new, shelf.rules, shelf.uses.nth(number, member), shelf.act.now)
