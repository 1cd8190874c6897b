"""`pitboss logs`: what workers and the manager of this host wrote, merged, filtered, followed."""

import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pitboss.cli.options import StoreOption, screen_of
from pitboss.cli.screen import Screen
from pitboss.cli.store import ask, settings
from pitboss.cli.words import local
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput, NotFound, PitbossError

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store
    from pitboss.telemetry.logs.reading import Entry, Reader, Wanted

_LINES = 50
_PAUSE_SECONDS = 0.25
_TASK = re.compile(r"[0-9a-f][0-9a-f-]{5,35}\Z")
_STYLES = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "bold red"}

Subject = Callable[[str], bool]
WhatArgument = Annotated[
    str | None, typer.Argument(metavar="WHAT", help="A worker, a pool, `manager`, or a task's id; all workers if none.")
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")]
LinesOption = Annotated[
    int | None, typer.Option("--lines", "-n", min=0, help="The last so many; 50, but all of a task and of --since.")
]
LevelOption = Annotated[str, typer.Option("--level", metavar="LEVEL", help="From debug, info, warning, error on.")]
SinceOption = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Not older, as in --since 10m.")]
RawOption = Annotated[bool, typer.Option("--json", help="The lines as they are in the files: JSON, one per line.")]


class Place(NamedTuple):
    """Where to look: the folder, and the names of those who wrote there."""

    folder: Path
    names: list[str]


def logs(
    context: typer.Context,
    what: WhatArgument = None,
    follow: FollowOption = False,
    lines: LinesOption = None,
    level: LevelOption = "debug",
    since: SinceOption = None,
    as_json: RawOption = False,
    store: StoreOption = None,
) -> None:
    """Show what the workers of this host have logged.

    \b
    Examples:
      pitboss logs -f
      pitboss logs download-1 --level warning
      pitboss logs manager --since 1h
      pitboss logs 2d449e482300          the lines of one task, from all workers
    """
    from pitboss.telemetry.logs.reading import Reader

    screen = screen_of(context)
    place = _place(screen, store)
    subject = _subject(place, what)
    wanted = _wanted(level, since, what if subject is None else None)
    reader = Reader(place.folder, subject or (lambda _: True), wanted)
    if subject is None:
        _check_task(reader, str(what), follow=follow)
    whole = lines is None and (since is not None or subject is None)
    width = max(len(name) for name in place.names if subject is None or subject(name))
    show = _shower(screen, width, as_json=as_json)
    try:
        show(reader.all() if whole else reader.last(_LINES if lines is None else lines))
        while follow:
            time.sleep(_PAUSE_SECONDS)
            show(reader.new())
    except KeyboardInterrupt:
        # The usual way to end it is no failure of it.
        return


def _place(screen: Screen, store: str | None) -> Place:
    from pitboss.telemetry.logs.files import log_files

    folder = Path(settings(screen, store=store).settings.logs)
    names = sorted({file.name for file in log_files(folder)})
    if not names:
        raise _nothing_here(screen, store, folder)
    return Place(folder, names)


def _subject(place: Place, what: str | None) -> Subject | None:
    """Whose files are meant, also of workers to come; None if it is a task, which may have been anywhere."""
    from pitboss.telemetry.logs.files import MANAGER

    candidates: list[Subject] = [lambda name: name == what, lambda name: name.rpartition("-")[0] == what]
    if what is None:
        candidates = [lambda name: name != MANAGER]
    meant = next((one for one in candidates if any(map(one, place.names))), None)
    if meant is None and (what is None or not _TASK.match(what.lower())):
        raise NotFound(
            f'there are no logs of "{what}" in {place.folder}' if what else f"no worker has logged to {place.folder}",
            why=f"there are those of {', '.join(place.names)}",
            fix="name one of them, a pool, or six or more characters of a task's id; pitboss ps shows who is where",
        )
    return meant


def _wanted(level: str, since: str | None, task: str | None) -> "Wanted":
    from pitboss import wiring
    from pitboss.telemetry.logs.reading import Wanted
    from pitboss.telemetry.logs.settings import level_number

    moment = None if since is None else wiring.SystemClock().now() - span(since, what="--since")
    return Wanted(level=level_number(level), since=moment, task=task.lower() if task else None)


def _check_task(reader: "Reader", what: str, *, follow: bool) -> None:
    """A piece of an id must mean one task. One without lines may still get some while it is followed."""
    tasks = sorted({str(entry.fields["task_id"]) for entry in reader.all()})
    if len(tasks) > 1:
        raise InvalidInput(f"{what} means several tasks", why=", ".join(tasks[:10]), fix="give more of the id")
    if not tasks and not follow:
        raise NotFound(
            f"there is no line of task {what} here",
            why="it has logged nothing at this level and in this time, ran on another host, or its lines were pruned",
            fix=f"see where it ran: pitboss tasks show {what}",
        )


def _shower(screen: Screen, width: int, *, as_json: bool) -> "Callable[[Iterable[Entry]], None]":
    """Whole lines as they come: who reads a pipe should not wait for the next ones."""
    from pitboss import wiring

    def raw(entries: "Iterable[Entry]") -> None:
        for entry in entries:
            sys.stdout.buffer.write(entry.raw + b"\n")
        sys.stdout.buffer.flush()

    def told(entries: "Iterable[Entry]") -> None:
        today = local(wiring.SystemClock().now())[:10]
        for entry in entries:
            _tell(screen, entry, today, width)

    return raw if as_json else told


def _tell(screen: Screen, entry: "Entry", today: str, width: int) -> None:
    from pitboss.telemetry.logs.lines import as_text

    style = _STYLES.get(str(entry.fields.get("level")))
    first, *rest = as_text(entry.fields, _at(entry.time, today), width=width).split("\n")
    screen.line(first, style)
    trace = str(entry.fields.get("exception", ""))
    for line in (*rest, *(trace.split("\n") if trace else ())):
        screen.line(f"    {line}", style)


def _at(stamp: str, today: str) -> str:
    """On this machine's clock; with the day unless it is today's."""
    from datetime import datetime

    moment = datetime.fromisoformat(stamp).astimezone()
    text = moment.isoformat(" ", "milliseconds")[: len("2026-01-01 00:00:00.000")]
    return text.removeprefix(f"{today} ")


def _nothing_here(screen: Screen, store: str | None, folder: Path) -> NotFound:
    """Logs stay on the host that wrote them; the store knows which hosts there are."""
    try:
        places = ask(screen, store, _elsewhere)
    except PitbossError:
        places = []
    if not places:
        return NotFound(
            f"there are no logs in {folder}",
            why="no manager has written any there, and the store knows of none that runs",
            fix="start one with pitboss up; if it ran elsewhere, run this command there or set PITBOSS_LOGS",
        )
    return NotFound(
        f"there are no logs in {folder}",
        why=f"logs are on the host of their manager: {'; '.join(places)}",
        fix="run this command there, in that project's folder or with PITBOSS_LOGS set to that folder",
    )


async def _elsewhere(store: "Store") -> list[str]:
    from pitboss import wiring
    from pitboss.model.snapshot import read
    from pitboss.model.waiting import alive

    living = alive(await store.sessions(), wiring.SystemClock().now())
    told = [(one.info.host, read(one.snapshot)) for one in living if one.info.kind == "manager"]
    return sorted({f"{host} (in {seen.logs})" if seen and seen.logs else host for host, seen in told})
