"""`pitboss db`: check, create and upgrade the store's tables."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from pitboss.cli.command import JsonOption, StoreOption, opened, screen_of, settings
from pitboss.cli.screen import Screen
from pitboss.model.errors import Unsupported
from pitboss.model.text import masked

if TYPE_CHECKING:
    from pitboss.engines.protocol import SqlStore

T = TypeVar("T")
app = typer.Typer(help="Check and upgrade the store's tables.", no_args_is_help=True, rich_markup_mode=None)


@app.command("status")
def status(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the schema version of the store, and the version that this release needs.

    \b
    Examples:
      pitboss db status
      pitboss db status --store postgresql://user@host/jobs
    """
    screen = screen_of(context)
    url = _url(screen, store)
    have, want = _done(_versions(url))
    if as_json:
        screen.document({"store": masked(url), "schema": have, "wanted": want, "current": have == want})
        return
    state = "current" if have == want else "run: pitboss db upgrade"
    screen.fields([("store", masked(url)), ("schema", f"{have} of {want} ({state})")])


@app.command("upgrade")
def upgrade(context: typer.Context, store: StoreOption = None) -> None:
    """Create the tables, or bring them to this release's schema.

    \b
    Examples:
      pitboss db upgrade
      pitboss db upgrade --store postgresql://user@host/jobs

    Harmless to repeat. A manager does the same when it starts; this does it earlier, or with other rights.
    """
    screen = screen_of(context)
    url = _url(screen, store)
    applied, version = _done(_upgraded(url))
    for name in applied:
        screen.note(f"applied {name}")
    screen.note(f"{masked(url)} has schema {version}")


@app.command("sql")
def sql(
    context: typer.Context,
    engine: Annotated[str | None, typer.Argument(metavar="ENGINE", help="sqlite or postgres.")] = None,
    schema: Annotated[str, typer.Option("--schema", help="PostgreSQL: the schema's name.")] = "pitboss",
    since: Annotated[int, typer.Option("--from", min=0, help="Only what is new since this version.")] = 0,
    store: StoreOption = None,
) -> None:
    """Print the SQL that creates or upgrades the tables, without connecting to anything.

    \b
    Examples:
      pitboss db sql postgres > schema.sql
      pitboss db sql postgres --schema jobs --from 1
    """
    from pitboss import wiring

    screen = screen_of(context)
    kind = engine or _url(screen, store).partition(":")[0]
    text = wiring.schema_script(kind, schema=schema, since=since)
    print(text or f"-- nothing to do from version {since}", end="" if text else "\n")


def _url(screen: Screen, store: str | None) -> str:
    return settings(screen, store=store).settings.store


def _done(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


async def _versions(url: str) -> tuple[int, int]:
    engine = await _sql_store(url, create=False)
    try:
        return await engine.schema_version()
    finally:
        await engine.close()


async def _upgraded(url: str) -> tuple[list[str], int]:
    engine = await _sql_store(url, create=True)
    try:
        applied = await engine.upgrade()
        return applied, (await engine.schema_version())[0]
    finally:
        await engine.close()


async def _sql_store(url: str, *, create: bool) -> "SqlStore":
    """An engine with tables. A server is not opened, because opening would upgrade it."""
    from pitboss import wiring
    from pitboss.engines.capabilities import capabilities

    engine = wiring.make_engine(url)
    if capabilities(engine).schema is None:
        raise Unsupported(
            f"the {engine.name} store has no tables", why="it keeps everything in memory", fix="name a SQL store"
        )
    return cast("SqlStore", engine if engine.name != "sqlite" else await opened(url, create=create))
