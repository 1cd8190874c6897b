"""From a command line to an open store, and back out of it in order."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pitboss.cli.screen import Screen
from pitboss.cli.words import masked
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import InvalidInput, StoreUnavailable

if TYPE_CHECKING:
    from pitboss.config import Loaded
    from pitboss.engines.protocol import Store

T = TypeVar("T")
_OPEN_SECONDS = 20.0


class Shown(NamedTuple):
    """What a reading command found: for programs, and for a person."""

    document: dict[str, Any]
    draw: Callable[[Screen], None]


def settings(screen: Screen, **given: Any) -> "Loaded":
    """The settings with what the command line says on top; notes about them go to the person."""
    from pitboss import config

    found = config.loaded(given)
    for note in found.notes:
        screen.note(f"note: {note}")
    return found


def ask(screen: Screen, store: str | None, work: "Callable[[Store], Awaitable[T]]", *, create: bool = False) -> T:
    """Open the store, do the work, close it. Only who may create a store opens a file that is not there."""
    import asyncio

    url = settings(screen, store=store).settings.store
    return asyncio.run(_within(url, work, create=create))


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
        raise InvalidInput("--watch needs some time", why="it was 0", fix="say --watch 2s")
    try:
        return ask(screen, store, lambda opened: _watched(screen, opened, read, pause, as_json=as_json))
    except KeyboardInterrupt:
        # The usual way to end a watch is no failure of it.
        return Shown({}, lambda _: None)


async def opened(url: str, *, create: bool) -> "Store":
    """An open engine, within a time limit."""
    import asyncio

    from pitboss import wiring

    absent = None if create else wiring.absent_file(url)
    if absent is not None:
        raise StoreUnavailable(
            f"there is no store at {absent}",
            why="nobody has started a manager or enqueued a task there yet",
            fix="start one with pitboss up, or name another store with --store or PITBOSS_STORE",
        )
    if url.startswith("memory:") and not create:
        raise InvalidInput(
            f"{url} cannot be looked at from here",
            why="a store in memory lives and dies within one process",
            fix="name a SQLite file or a server with --store",
        )
    engine = wiring.make_engine(url)
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            await engine.open()
    except TimeoutError as error:
        raise StoreUnavailable(
            f"{masked(url)} did not open within {_OPEN_SECONDS:g} s",
            why="it does not answer, or somebody holds it",
            fix="check that it runs and can be reached",
        ) from error
    return engine


async def _within(url: str, work: "Callable[[Store], Awaitable[T]]", *, create: bool) -> T:
    engine = await opened(url, create=create)
    try:
        return await work(engine)
    finally:
        await engine.close()


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
