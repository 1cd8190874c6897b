"""`pitboss resources`: list and limit resource pools; add, import, enable, disable, reset, remove, test members."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from pitboss.cli import resource_adding, resource_testing
from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    AllOption,
    JsonOption,
    Shown,
    StoreOption,
    WatchOption,
    YesOption,
    ask,
    confirm,
    now,
    operator,
    screen_of,
    show,
)
from pitboss.cli.resource_page import draw_member, draw_members, draw_pool, draw_pools, draw_rules
from pitboss.cli.screen import Screen
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.figures import RAW
from pitboss.model.resource import ResourceChange, ResourcePool
from pitboss.model.text import counted
from pitboss.operate.documents import member_document, member_page_document, resource_pool_document
from pitboss.operate.figures import Destination, read_destinations
from pitboss.operate.pool_rules import limit_resource_pool, rule_readings
from pitboss.operate.resources import (
    change_members,
    find_members,
    find_resource_pool,
    holders_of,
    limits_text,
    list_resource_pools,
    read_member,
    read_resource_pool,
)

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List and limit resource pools; add, import, enable, disable and test their members.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("add")(resource_adding.add)
app.command("import")(resource_adding.import_file)
app.command("test")(resource_testing.check_members)
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="The resource pool.")]
NamesArgument = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Names of members.")]
_NAMES_SHOWN = 5


@app.command("list")
def list_resources(
    context: typer.Context,
    pool: Annotated[str | None, typer.Argument(metavar="POOL", help="List its members instead of the pools.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List the resource pools, or the members of one with their condition.

    \b
    Examples:
      pitboss resources list
      pitboss resources list proxies --watch 2s
    """

    async def read(opened: "Store") -> Shown:
        moment = now(opened)
        if pool is None:
            pools = await list_resource_pools(opened, moment)
            document = {"pools": [resource_pool_document(one) for one in pools]}
            return Shown(document, lambda screen: draw_pools(screen, pools, moment))
        found = await read_resource_pool(opened, pool, moment)
        members = {"pool": pool, "members": [member_document(one) for one in found.members]}
        return Shown(members, lambda screen: draw_members(screen, found, moment))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_resources(
    context: typer.Context,
    pool: PoolArgument,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of its members.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show a resource pool, its uses of the last hour by destination, or one of its members; secrets by name only.

    \b
    Examples:
      pitboss resources show proxies
      pitboss resources show proxies 10.0.0.7:8080 --watch 1s
    """

    places: dict[str, Destination] = {}
    read_at: Moment = 0

    async def read(opened: "Store") -> Shown:
        nonlocal places, read_at
        moment = now(opened)
        if name is not None:
            page = await read_member(opened, pool, name, moment)
            return Shown(member_page_document(page), lambda screen: draw_member(screen, page, moment))
        found = await read_resource_pool(opened, pool, moment)
        # Managers tell of them every ten seconds.
        if moment - read_at >= RAW:
            places, read_at = await read_destinations(opened, moment, pool), moment
        document = {
            "pool": resource_pool_document(found) | {"queues": list(found.queues)},
            "members": [member_document(one) for one in found.members],
            "destinations": to_builtins(places),
        }
        return Shown(document, lambda screen: draw_pool(screen, found, places, moment))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("limit")
def limit(
    context: typer.Context,
    pool: PoolArgument,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Such as per_hour=20; none takes a limit away.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget what operators set before: what is declared holds again.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Set rules of a pool above what the app declares, until --reset; without keys, show who set its rules.

    \b
    Examples:
      pitboss resources limit proxies per_hour=20 min_delay=3s
      pitboss resources limit proxies --reset
    """
    screen = screen_of(context)

    async def work(opened: "Store") -> tuple[ResourcePool, Moment]:
        after = await limit_resource_pool(opened, pool, keys or (), by=operator(), reset=reset)
        return after, now(opened)

    found, moment = ask(screen, store, work, audit=acting(context) if keys or reset else None)
    if keys or reset:
        screen.note(f"{pool} now has {limits_text(found.rules.limits)}" + ("" if keys else ", as declared"))
    rules = rule_readings(found)
    draw_rules(screen, rules, moment)
    if not rules:
        screen.note(f"no rule of {pool} is set: the defaults hold")


@app.command("enable")
def enable(
    context: typer.Context,
    pool: PoolArgument,
    names: NamesArgument = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept in the member's history.")] = None,
    everything: AllOption = False,
    store: StoreOption = None,
) -> None:
    """Allow members to be used again.

    \b
    Examples:
      pitboss resources enable proxies 10.0.0.7:8080
      pitboss resources enable proxies --all
    """
    change = ResourceChange(enabled=True, reason=reason)
    _change(context, store, pool, _named(names, everything=everything), change, "enabled")


@app.command("disable")
def disable(
    context: typer.Context,
    pool: PoolArgument,
    names: NamesArgument = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Shown with the member.")] = None,
    everything: AllOption = False,
    store: StoreOption = None,
) -> None:
    """Give members to no task until they are enabled again. Tasks that hold one continue.

    \b
    Examples:
      pitboss resources disable proxies 10.0.0.7:8080 --reason 'bill not paid'
    """
    change = ResourceChange(enabled=False, reason=reason)
    _change(context, store, pool, _named(names, everything=everything), change, "disabled")


@app.command("reset")
def reset(
    context: typer.Context,
    pool: PoolArgument,
    names: NamesArgument = None,
    everything: AllOption = False,
    store: StoreOption = None,
) -> None:
    """Reset failures, cooldown and blacklist of members, but not the uses that limits count.

    \b
    Examples:
      pitboss resources reset proxies 10.0.0.7:8080
      pitboss resources reset proxies --all
    """
    _change(context, store, pool, _named(names, everything=everything), ResourceChange(reset=True), "reset")


@app.command("remove")
def remove(
    context: typer.Context,
    pool: PoolArgument,
    names: NamesArgument = None,
    everything: AllOption = False,
    store: StoreOption = None,
    sure: YesOption = False,
) -> None:
    """Remove members from a pool, with their secrets and history. Tasks that hold one continue until they use it again.

    The uses that limits still count are remembered under its name.

    \b
    Examples:
      pitboss resources remove proxies 10.0.0.7:8080 --yes
    """
    chosen = _named(names, everything=everything)
    _change(context, store, pool, chosen, None, "removed", sure=sure)


def _change(
    context: typer.Context,
    store: str | None,
    pool: str,
    names: Sequence[str] | None,
    change: ResourceChange | None,
    done: str,
    *,
    sure: bool = True,
) -> None:
    screen = screen_of(context)

    async def work(opened: "Store") -> list[str]:
        members = find_members(await find_resource_pool(opened, pool), names)
        if change is None:
            _tell_holders(screen, pool, await holders_of(opened, members))
        if not sure and members:
            confirm(screen, f"Remove {counted(len(members), 'member')} of {pool}?", otherwise="repeat with --yes")
        return await change_members(opened, pool, members, change)

    changed = ask(screen, store, work, audit=acting(context))
    few = len(changed) <= _NAMES_SHOWN
    screen.note(
        f"{', '.join(f'{pool}/{name}' for name in changed)} {done}"
        if few and changed
        else f"{counted(len(changed), 'member')} of {pool} {done}"
    )


def _tell_holders(screen: Screen, pool: str, held: Mapping[str, Sequence[str]]) -> None:
    for name, tasks in list(held.items())[:_NAMES_SHOWN]:
        whom = f"task {', '.join(tasks)}; that task's" if tasks else "a lease outside tasks; its holder's"
        after = ", and the task is run again with another member" if tasks else ""
        screen.note(f"{pool}/{name} is in use by {whom} next use() will be refused{after}")
    if len(held) > _NAMES_SHOWN:
        screen.note(f"… and {len(held) - _NAMES_SHOWN:,} more are in use")


def _named(names: Sequence[str] | None, *, everything: bool) -> Sequence[str] | None:
    if bool(names) is not everything:
        return names or None
    raise InvalidInput(
        "no members selected" if not names else "names and --all cannot be mixed",
        why="without names it would be all members" if not names else "each of them selects the members",
        fix="name them, or say --all",
    )
