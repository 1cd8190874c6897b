"""`pitboss keys`: create, list and revoke keys of the HTTP API."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    JsonOption,
    Shown,
    StoreOption,
    YesOption,
    ask,
    confirm,
    now,
    operator,
    screen_of,
    show,
)
from pitboss.cli.formatting import ago
from pitboss.cli.screen import Column, Screen
from pitboss.model.access import ApiKey, checked_roles
from pitboss.model.duration import Moment
from pitboss.operate.documents import key_document
from pitboss.operate.keys import create_key, find_key, list_keys, revoke_key

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(help="Create, list and revoke keys of the HTTP API.", no_args_is_help=True, rich_markup_mode=None)
_COLUMNS = (
    Column("Name", fills=True),
    Column("Id"),
    Column("State"),
    Column("Roles"),
    Column("Created", right=True),
    Column("By", drop=1),
)


@app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the audit log calls it.")],
    roles: Annotated[
        list[str],
        typer.Option("--role", metavar="ROLE", help="producer, worker, viewer, operator or admin; may be repeated."),
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. This is the only time that it is shown: the store has only a digest of it.

    \b
    Examples:
      pitboss keys create ci --role producer
      pitboss keys create crawler --role worker --role producer
      KEY=$(pitboss keys create dashboard --role viewer)
    """
    from pitboss import wiring

    screen = screen_of(context)
    wanted = checked_roles(roles)

    async def work(opened: "Store") -> tuple[ApiKey, str]:
        made, secret = wiring.key_id, wiring.key_secret
        return await create_key(opened, name, wanted, by=operator(), make_id=made, make_secret=secret)

    key, text = ask(screen, store, work, create=True, audit=acting(context))
    if as_json:
        screen.document({"key": key_document(key), "text": text})
        return
    screen.line(text)
    screen.note(f'key "{key.name}" ({key.id}) may act as {", ".join(key.roles)}; it is not shown again')


@app.command("list")
def list_all(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List all keys, also the revoked ones.

    \b
    Examples:
      pitboss keys list
    """

    async def read(opened: "Store") -> Shown:
        found, moment = await list_keys(opened), now(opened)
        return Shown({"keys": [key_document(key) for key in found]}, lambda screen: _draw(screen, found, moment))

    show(screen_of(context), store, read, as_json=as_json)


@app.command("revoke")
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME|ID", help="The key.")],
    store: StoreOption = None,
    sure: YesOption = False,
) -> None:
    """Let a key open nothing any more. This cannot be undone.

    \b
    Examples:
      pitboss keys revoke ci --yes
    """
    screen = screen_of(context)

    async def work(opened: "Store") -> tuple[ApiKey, bool]:
        found = await find_key(opened, name)
        if found.revoked_at is not None:
            return found, False
        if not sure:
            confirm(screen, f'Revoke key "{found.name}" ({found.id})?', otherwise="repeat with --yes")
        return await revoke_key(opened, found.id), True

    key, done = ask(screen, store, work, audit=acting(context))
    screen.note(f'key "{key.name}" ({key.id}) is revoked{"" if done else " already"}')


def _draw(screen: Screen, keys: list[ApiKey], moment: Moment) -> None:
    if not keys:
        screen.note("there are no keys; create one with pitboss keys create NAME --role ROLE")
        return
    screen.table(_COLUMNS, [_row(key, moment) for key in keys])


def _row(key: ApiKey, moment: Moment) -> list[str]:
    state = "active" if key.revoked_at is None else "revoked"
    return [key.name, key.id, state, ", ".join(key.roles), ago(key.created_at, moment), key.created_by or ""]
