"""What commands share: options, settings, the open store, and showing what was read."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from pitboss.cli.auditing import Audit
from pitboss.cli.screen import Screen
from pitboss.model.duration import SECOND, Moment, span
from pitboss.model.errors import InvalidInput, Refused, StoreUnavailable
from pitboss.model.text import masked

if TYPE_CHECKING:
    from pitboss.app import App
    from pitboss.config import Loaded
    from pitboss.engines.protocol import Store
    from pitboss.model.access import AuditEntry

T = TypeVar("T")
_OPEN_SECONDS = 20.0

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The store, such as sqlite:///pitboss.db. [env: PITBOSS_STORE]"),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to those who look later.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
WatchOption = Annotated[str | None, typer.Option("--watch", metavar="TIME", help="Repeat, as in --watch 2s.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
FilterArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILTER", help="Such as state:failed queue:mail age:<1h. See: pitboss help filters."),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them, without a filter.")]
HostOption = Annotated[str | None, typer.Option("--host", metavar="HOST", help="Only on this host.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it is done.")]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait at most.")]


class Shown(NamedTuple):
    """What a reading command shows: a document for programs, and a drawing for people."""

    document: dict[str, Any]
    draw: Callable[[Screen], None]


def screen_of(context: typer.Context) -> Screen:
    """The screen that the root command made."""
    found = context.find_root().obj
    return found if isinstance(found, Screen) else Screen()


def now(store: "Store") -> Moment:
    """The store's time, by which all stored moments are."""
    return store.clock.now()


def wall() -> Moment:
    """This machine's wall clock, by which logs are written."""
    from pitboss import wiring

    return wiring.SystemClock().wall()


def id_maker() -> Callable[[], str]:
    """Makes the ids of tasks and batches."""
    from pitboss import wiring
    from pitboss.model.ids import IdMaker

    return IdMaker(wiring.SystemClock().now, wiring.randbits())


def operator() -> str:
    """The person who gives this command, as stored with what it changes."""
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname()}"


def settings(screen: Screen, **given: Any) -> "Loaded":
    """The settings, overridden by the command line; notes about them go to stderr."""
    from pitboss import config

    found = config.loaded(given)
    for note in found.notes:
        screen.note(f"note: {note}")
    return found


def ask(
    screen: Screen,
    store: str | None,
    work: "Callable[[Store], Awaitable[T]]",
    *,
    create: bool = False,
    audit: Audit | None = None,
) -> T:
    """Open the store, do the work, close it. Only with `create` may this create a file. Work that changes something
    says so with `audit`."""
    import asyncio

    url = settings(screen, store=store).settings.store
    return asyncio.run(_within(url, work, create=create, audit=audit))


def show(
    screen: Screen,
    store: str | None,
    read: "Callable[[Store], Awaitable[Shown]]",
    *,
    as_json: bool,
    watch: str | None = None,
) -> Shown:
    """Read and show; with `watch`, until Ctrl-C. Returns what was shown last."""
    if watch is None:
        shown = ask(screen, store, read)
        _put(screen, shown, as_json=as_json)
        return shown
    pause = span(watch, what="--watch") / SECOND
    if pause <= 0:
        raise InvalidInput("--watch needs a time above 0", why="it was 0", fix="say --watch 2s")
    try:
        return ask(screen, store, lambda opened: _watched(screen, opened, read, pause, as_json=as_json))
    except KeyboardInterrupt:
        # Ctrl-C is the usual end of a watch, not a failure.
        return Shown({}, lambda _: None)


def confirm(
    screen: Screen, question: str, *, otherwise: str = "look at it with --dry-run, then repeat with --yes"
) -> None:
    """Continue only if a person says yes; `Refused` otherwise."""
    if not screen.interactive:
        raise Refused("confirmation required", why="stdin is not a terminal", fix=otherwise)
    if not typer.confirm(question, err=True):
        raise Refused("nothing was done", why="the answer was no")


@contextmanager
def store_app(screen: Screen, store: str | None, audit: Audit | None = None) -> "Iterator[App]":
    """An app on the command's store that declares nothing: it seals and opens secrets with the store's keys."""
    from pitboss import config, wiring
    from pitboss.app import App

    found = settings(screen, store=store)
    url = found.settings.store
    if url.startswith("memory:"):
        raise InvalidInput(
            f"{url} cannot be changed from here",
            why="a store in memory exists within one process only",
            fix="name a SQLite file or a server with --store",
        )
    with App(url) as app:
        app.secrets_file = str(config.key_file(found))
        app.use(audited(wiring.make_engine(url), audit))
        yield app


async def opened(url: str, *, create: bool) -> "Store":
    """An open engine, within a time limit."""
    import asyncio

    from pitboss import wiring

    if not create:
        refuse_absent(url)
    if url.startswith("memory:") and not create:
        raise InvalidInput(
            f"{url} cannot be read from here",
            why="a store in memory exists within one process only",
            fix="name a SQLite file or a server with --store",
        )
    engine = wiring.make_engine(url)
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            await engine.open()
    except TimeoutError as error:
        raise StoreUnavailable(
            f"{masked(url)} did not open within {_OPEN_SECONDS:g} s",
            why="it does not answer, or another process locks it",
            fix="check that it runs and can be reached",
        ) from error
    return engine


def refuse_absent(url: str) -> None:
    """Refuse a file that does not exist: only `up` and enqueueing create one."""
    from pitboss import wiring

    absent = wiring.absent_file(url)
    if absent is not None:
        raise StoreUnavailable(
            f"there is no store at {absent}",
            why="no manager was started and no task was enqueued there yet",
            fix="start one with pitboss up, or name another store with --store or PITBOSS_STORE",
        )


def audited(store: "Store", audit: Audit | None) -> "Store":
    """The same store, whose changes also store the act. An engine without an audit log changes without one."""
    from pitboss.engines.access_protocol import Access

    return store if audit is None or not isinstance(store, Access) else store.audited(_entry(audit))


def _entry(audit: Audit) -> "AuditEntry":
    from pitboss.model.access import AuditEntry
    from pitboss.model.canonical import to_json

    who = operator()
    return AuditEntry(
        id=id_maker()(),
        who=who,
        act=audit.act,
        target=audit.target,
        details=to_json(audit.details, what="details"),
        source=f"cli {who.rpartition('@')[2]}",
    )


async def _within(url: str, work: "Callable[[Store], Awaitable[T]]", *, create: bool, audit: Audit | None = None) -> T:
    engine = await opened(url, create=create)
    try:
        return await work(engine if audit is None else await _with_act(engine, audit))
    finally:
        await engine.close()


async def _with_act(store: "Store", audit: Audit) -> "Store":
    """As `audited`; the entry has what was before, so that the act can be undone."""
    from pitboss.engines.access_protocol import Access
    from pitboss.operate.undo import with_before

    return store.audited(await with_before(store, _entry(audit))) if isinstance(store, Access) else store


async def _watched(
    screen: Screen, store: "Store", read: "Callable[[Store], Awaitable[Shown]]", pause: float, *, as_json: bool
) -> Shown:
    import asyncio

    first = True
    while True:
        shown = await read(store)
        if as_json:
            screen.document(shown.document, compact=True)
        elif screen.out.is_terminal:
            _redraw(screen, shown)
        else:
            if not first:
                screen.line()
            shown.draw(screen)
        first = False
        await asyncio.sleep(pause)


def _redraw(screen: Screen, shown: Shown) -> None:
    """Over the last picture, line by line, so that it does not flicker."""
    with screen.out.capture() as picture:
        shown.draw(screen)
    lines = picture.get().splitlines()[: screen.out.height - 1]
    screen.out.file.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    screen.out.file.flush()


def _put(screen: Screen, shown: Shown, *, as_json: bool) -> None:
    if as_json:
        screen.document(shown.document)
    else:
        shown.draw(screen)
