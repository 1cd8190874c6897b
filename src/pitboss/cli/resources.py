"""`pitboss resources`: pools of scarce things and their members; look at them, switch them on and off, test them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli import resource_adding, resource_testing
from pitboss.cli.bulk import confirm
from pitboss.cli.options import AllOption, JsonOption, StoreOption, WatchOption, YesOption, screen_of
from pitboss.cli.store import Shown, ask, show
from pitboss.cli.words import counted
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import by
from pitboss.model.resource import ResourceChange
from pitboss.model.states import State

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="Look at scarce resources; add, import, switch and test their members.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("add")(resource_adding.add)
app.command("import")(resource_adding.import_file)
app.command("test")(resource_testing.try_members)
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="The resource pool.")]
NamesArgument = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Names of members.")]
_HOLDERS = 5


@app.command("list")
def list_resources(
    context: typer.Context,
    pool: Annotated[str | None, typer.Argument(metavar="POOL", help="Its members; without it, the pools.")] = None,
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

    from pitboss.cli.resource_page import draw_members, draw_pools, member_document, pool_document
    from pitboss.cli.resource_reading import now_here, view_of, views_of

    async def read(opened: "Store") -> Shown:
        now = now_here()
        if pool is None:
            views = await views_of(opened)
            return Shown(
                {"pools": [pool_document(view, now) for view in views]}, lambda screen: draw_pools(screen, views, now)
            )
        view = await view_of(opened, pool)
        document = {"pool": pool, "members": [member_document(view, one, now) for one in view.members]}
        return Shown(document, lambda screen: draw_members(screen, view, view.members, now))

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
    """Show a pool, or one of its members; secrets only by name.

    \b
    Examples:
      pitboss resources show proxies
      pitboss resources show proxies 10.0.0.7:8080 --watch 1s
    """

    from pitboss.cli.resource_page import draw_member, draw_pool, member_document, pool_document
    from pitboss.cli.resource_reading import members_of, now_here, view_of

    async def read(opened: "Store") -> Shown:
        view, now = await view_of(opened, pool), now_here()
        if name is None:
            queues = [queue.name for queue in await opened.queues() if queue.resources == pool]
            document = {
                "pool": pool_document(view, now) | {"queues": queues},
                "members": [member_document(view, one, now) for one in view.members],
            }
            return Shown(document, lambda screen: draw_pool(screen, view, queues, now))
        (member,) = members_of(view, [name])
        holders = (await opened.find(by(resource=member.id, state=State.RUNNING), limit=_HOLDERS)).tasks
        found = member_document(view, member, now) | {"held_by": [task.id for task in holders]}
        return Shown({"member": found}, lambda screen: draw_member(screen, view, member, holders, now))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("enable")
def enable(
    context: typer.Context,
    pool: PoolArgument,
    names: NamesArgument = None,
    everything: AllOption = False,
    store: StoreOption = None,
) -> None:
    """Let members be used again.

    \b
    Examples:
      pitboss resources enable proxies 10.0.0.7:8080
      pitboss resources enable proxies --all
    """
    _change(context, store, pool, _named(names, everything=everything), ResourceChange(enabled=True), "enabled")


@app.command("disable")
def disable(
    context: typer.Context,
    pool: PoolArgument,
    names: NamesArgument = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Shown wherever the member is.")] = None,
    everything: AllOption = False,
    store: StoreOption = None,
) -> None:
    """Give members to nobody until they are enabled. What holds one goes on.

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
    """Forget failures, cooldown and blacklist of members; never the uses that limits count.

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
    """Take members out of a pool, with their secrets and history. What holds one goes on.

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
    from pitboss.cli.resource_reading import members_of, view_of
    from pitboss.engines.capabilities import resources_of

    screen = screen_of(context)

    async def work(opened: "Store") -> list[str]:
        view = await view_of(opened, pool)
        meant = members_of(view, names)
        if not sure and meant:
            confirm(screen, f"Remove {counted(len(meant), 'member')} of {pool}?", otherwise="repeat with --yes")
        return await resources_of(opened).change_resources(pool, [member.name for member in meant], change)

    changed = ask(screen, store, work)
    few = len(changed) <= _HOLDERS
    screen.note(
        f"{', '.join(f'{pool}/{name}' for name in changed)} {done}"
        if few and changed
        else f"{counted(len(changed), 'member')} of {pool} {done}"
    )


def _named(names: Sequence[str] | None, *, everything: bool) -> Sequence[str] | None:
    if bool(names) is not everything:
        return names or None
    raise InvalidInput(
        "it is not said which members are meant" if not names else "names and --all cannot be mixed",
        why="without names it would be all of them" if not names else "either says which members are meant",
        fix="name them, or say --all",
    )
