"""`pitboss resources test`: whether members can be reached, how fast, and from which address the far side sees them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.exits import Exit
from pitboss.cli.options import JsonOption, StoreOption, screen_of
from pitboss.cli.resource_keeping import keeper
from pitboss.cli.screen import Column, Screen
from pitboss.cli.store import ask
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import InvalidInput

if TYPE_CHECKING:
    from pitboss.cli.resource_trial import Tried

_COLUMNS = (
    Column("Name", fills=True),
    Column("Result"),
    Column("Latency", right=True),
    Column("Status", right=True),
    Column("Address"),
    Column("Error"),
)
_MOST_AT_ONCE = 200


def try_members(
    context: typer.Context,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The resource pool.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these members.")] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="Fetch this through each; one that answers with the caller's address."
        ),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Wait no longer for each.")] = "10s",
    at_once: Annotated[int, typer.Option("--concurrency", min=1, max=_MOST_AT_ONCE, help="So many at a time.")] = 10,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try members now: connect to each, or fetch a page through it.

    \b
    Examples:
      pitboss resources test proxies
      pitboss resources test proxies p1 --url https://api.ipify.org --timeout 5s

    Whatever their condition is. It is not counted as a use, and changes no member. The exit code is 1 if one failed.
    """
    import asyncio

    from pitboss.cli.resource_reading import members_of, view_of
    from pitboss.cli.resource_trial import all_tried, page_of

    screen = screen_of(context)
    limit = span(timeout, what="--timeout") / SECOND
    if limit <= 0:
        raise InvalidInput("--timeout needs some time", why="it was 0", fix="say --timeout 10s")
    page = None if url is None else page_of(url)
    view = ask(screen, store, lambda opened: view_of(opened, pool))
    members = members_of(view, names or None)
    with keeper(screen, store) as app:
        tried = asyncio.run(all_tried(screen, app, members, page, limit, at_once))
    if as_json:
        screen.document({"pool": pool, "url": url, "members": [one._asdict() for one in tried]})
    else:
        _draw(screen, tried)
    if not all(one.ok for one in tried):
        raise typer.Exit(Exit.FAILED)


def _draw(screen: Screen, tried: Sequence["Tried"]) -> None:
    if not tried:
        screen.note("there are no members to test")
        return
    screen.table(_COLUMNS, [_row(one) for one in tried])
    good = sum(one.ok for one in tried)
    screen.note(f"{good} of {len(tried)} can be used")


def _row(one: "Tried") -> list[str]:
    latency = "" if one.seconds is None else f"{one.seconds * 1000:.0f}ms"
    return [one.name, "ok" if one.ok else "failed", latency, str(one.status or ""), one.address or "", one.error or ""]
