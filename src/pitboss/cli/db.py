"""`pitboss db`: create, upgrade, check and copy the store."""

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from pitboss.cli.auditing import Audit, acting
from pitboss.cli.command import JsonOption, StoreOption, audited, opened, refuse_absent, screen_of, settings
from pitboss.cli.screen import Screen
from pitboss.model.errors import Unsupported
from pitboss.model.pool import spoken_size
from pitboss.model.text import counted, masked
from pitboss.operate.audit import record

if TYPE_CHECKING:
    from pitboss.engines.protocol import SqlStore, Store
    from pitboss.model.finding import Finding

T = TypeVar("T")
app = typer.Typer(help="Upgrade, check and copy the store.", no_args_is_help=True, rich_markup_mode=None)


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
    applied, version = _done(_upgraded(url, acting(context)))
    for name in applied:
        screen.note(f"applied {name}")
    screen.note(f"{masked(url)} has schema {version}")


@app.command("check")
def check(
    context: typer.Context,
    full: Annotated[bool, typer.Option("--full", help="SQLite: compare every index with its table too.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Write the numbers of tasks that a recount gives.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look for damage in the whole store, and compare its numbers of tasks with a recount.

    \b
    Examples:
      pitboss db check
      pitboss db check --full
      pitboss db check --repair --store sqlite:///saved.db

    Managers may run meanwhile. Exits with 6 if there is a problem.
    """
    from pitboss.cli.doctor import draw_findings, exit_if_problem
    from pitboss.operate.documents import findings_document

    screen = screen_of(context)
    url = _url(screen, store)
    wrong, findings = _done(_checked(url, full=full, repair=acting(context) if repair else None))
    if wrong:
        screen.note(f"corrected {counted(wrong, 'number')} of tasks")
    if as_json:
        screen.document(findings_document(findings))
    else:
        draw_findings(screen, findings)
    exit_if_problem(findings)


@app.command("backup")
def backup(
    context: typer.Context,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    salvage: Annotated[bool, typer.Option("--salvage", help="Of a damaged SQLite file, what can be read.")] = False,
    store: StoreOption = None,
) -> None:
    """Copy the store into one file while managers run.

    \b
    Examples:
      pitboss db backup /backups/pitboss-monday.db
      pitboss db backup pitboss.dump --store postgresql://user@host/jobs
      pitboss db backup saved.db --salvage

    SQLite: a file that Pitboss can open. PostgreSQL: a dump by pg_dump. Keys of secrets are not in it.
    """
    from pitboss import config
    from pitboss.cli.progress import counting
    from pitboss.operate.maintenance import back_up

    screen = screen_of(context)
    found = settings(screen, store=store)
    with counting(screen, "Copy, in percent", 100) as show:

        def told(done: int, total: int) -> None:
            show(done * 100 // max(1, total))

        work = _with_unopened(
            found.settings.store, lambda store: back_up(store, to, told, force=force, salvage=salvage)
        )
        how = _done(work)
    screen.note(f"{masked(found.settings.store)} was copied to {to} ({spoken_size(to.stat().st_size)})")
    screen.note(how.replace("FILE", str(to)))
    keys = "PITBOSS_SECRET_KEYS" if config.secret_keys() else config.key_file(found)
    if config.secret_keys() or Path(keys).exists():
        screen.note(f"secrets in it open only with the keys in {keys}: keep a copy of them in another place")


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


async def _upgraded(url: str, audit: Audit) -> tuple[list[str], int]:
    engine = await _sql_store(url, create=True)
    try:
        applied = await engine.upgrade()
        if applied:
            await record(audited(engine, audit))
        return applied, (await engine.schema_version())[0]
    finally:
        await engine.close()


async def _checked(url: str, *, full: bool, repair: Audit | None) -> "tuple[int, list[Finding]]":
    from pitboss.operate.maintenance import check_content, recount

    async def work(store: "Store") -> "tuple[int, list[Finding]]":
        wrong = 0
        if repair is not None:
            wrong = await recount(store)
            await record(audited(store, repair))
        return wrong, await check_content(store, full=full)

    return await _with_unopened(url, work)


async def _with_unopened(url: str, work: "Callable[[Store], Awaitable[T]]") -> T:
    engine = _unopened(url)
    try:
        return await work(engine)
    finally:
        await engine.close()


def _unopened(url: str) -> "Store":
    """An engine with tables. Opening could fail on a damaged file, and would upgrade a server."""
    from pitboss import wiring

    refuse_absent(url)
    return wiring.make_engine(url)


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
