"""`pitboss views`: list, save and remove saved views."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import JsonOption, Shown, StoreOption, ask, operator, screen_of, show
from pitboss.cli.screen import Column, Screen
from pitboss.operate.views import SavedView, list_views, remove_view, save_view, view_document

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(help="List, save and remove saved views of tasks.", no_args_is_help=True, rich_markup_mode=None)
_COLUMNS = (Column("Name"), Column("Of"), Column("Filter", fills=True))
OwnerOption = Annotated[
    str, typer.Option("--of", metavar="KEY", help="Of the person with this key, instead of shared by all.")
]


@app.command("list")
def list_all(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List all saved views.

    \b
    Examples:
      pitboss views list
    """

    async def read(opened: "Store") -> Shown:
        found = await list_views(opened)
        return Shown({"views": [view_document(one) for one in found]}, lambda screen: _draw(screen, found))

    show(screen_of(context), store, read, as_json=as_json)


@app.command("save")
def save(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the dashboard calls it.")],
    wanted: Annotated[list[str], typer.Argument(metavar="FILTER", help="See: pitboss help filters.")],
    owner: OwnerOption = "",
    store: StoreOption = None,
) -> None:
    """Save a filter of tasks under a name. A view of the same name is replaced.

    \b
    Examples:
      pitboss views save "Refused by shop" state:failed error:403
    """

    async def work(opened: "Store") -> SavedView:
        return await save_view(opened, name, " ".join(word.strip() for word in wanted), owner=owner, by=operator())

    done = ask(screen_of(context), store, work, audit=acting(context))
    screen_of(context).note(f'view "{done.name}" is saved: {done.filter}')


@app.command("remove")
def remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The view.")],
    owner: OwnerOption = "",
    store: StoreOption = None,
) -> None:
    """Remove a saved view.

    \b
    Examples:
      pitboss views remove "Refused by shop"
    """

    async def work(opened: "Store") -> SavedView:
        return await remove_view(opened, name, owner=owner, by=operator())

    done = ask(screen_of(context), store, work, audit=acting(context))
    screen_of(context).note(f'view "{done.name}" is removed; it was: {done.filter}')


def _draw(screen: Screen, views: list[SavedView]) -> None:
    if not views:
        screen.note('no view is saved; save one with pitboss views save "NAME" FILTER')
        return
    screen.table(_COLUMNS, [[one.name, one.owner or "all", one.filter] for one in views])
