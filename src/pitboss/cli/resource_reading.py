"""Finds resource pools and members, and says what was probably meant by one that is not there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pitboss.cli.words import close_to
from pitboss.engines.capabilities import resources_of
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.resource import Resource
from pitboss.model.supply import PoolView

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_SHOWN = 5


def now_here() -> Moment:
    from pitboss import wiring

    return wiring.SystemClock().now()


async def views_of(store: "Store") -> list[PoolView]:
    """Every pool with its members."""
    desk = resources_of(store)
    return [PoolView(pool.name, pool.rules, await desk.resources(pool.name)) for pool in await desk.resource_pools()]


async def view_of(store: "Store", name: str) -> PoolView:
    """The pool of that name with its members."""
    desk = resources_of(store)
    known = {pool.name: pool for pool in await desk.resource_pools()}
    if name not in known:
        close = close_to(name, known)
        raise NotFound(
            f'there is no resource pool "{name}"',
            why=f"the pools are {', '.join(known)}" if known else "no app has declared one, and no member was added",
            fix=f"did you mean {close}?" if close else "check the name; pitboss resources list shows the pools",
        )
    return PoolView(name, known[name].rules, await desk.resources(name))


def members_of(view: PoolView, names: Sequence[str] | None) -> list[Resource]:
    """The members of these names (None: all); a name that the pool has not stops it before anything is done."""
    if names is None:
        return list(view.members)
    known = {member.name: member for member in view.members}
    unknown = [name for name in names if name not in known]
    if unknown:
        close = close_to(unknown[0], known)
        few = ", ".join(sorted(known)[:_SHOWN]) + (" …" if len(known) > _SHOWN else "")
        raise NotFound(
            f"{view.name} has no member {', '.join(unknown)}",
            why=f"its members are {few}" if known else "it has no members",
            fix=f"did you mean {close}? Nothing was changed" if close else "check the name; nothing was changed",
        )
    return [known[name] for name in dict.fromkeys(names)]
