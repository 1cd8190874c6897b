"""`pitboss logs`: the logs of this host's workers and manager, merged, filtered, followed."""

import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pitboss.cli.command import StoreOption, ask, now, screen_of, settings, wall
from pitboss.cli.formatting import local
from pitboss.cli.screen import Screen
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput, NotFound, PitbossError

if TYPE_CHECKING:
    from pitboss.telemetry.logs.reading import Entry, Reader, Wanted

_LINES = 50
_PAUSE_SECONDS = 0.25
_TASK = re.compile(r"[0-9a-f][0-9a-f-]{5,35}\Z")
_STYLES = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "bold red"}

Subject = Callable[[str], bool]
WhatArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="WHAT",
        help="A worker, a worker pool, `manager`, or a task's id; by default all workers, and the manager's warnings.",
    ),
]
TaskOption = Annotated[
    str | None, typer.Option("--task", metavar="ID", help="Only lines of this task, from all workers and the manager.")
]
BatchOption = Annotated[
    str | None, typer.Option("--batch", metavar="ID", help="Only lines of the items of this batch.")
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new lines.")]
LinesOption = Annotated[
    int | None,
    typer.Option(
        "--lines", "-n", min=0, help="How many lines; by default the last 50, or all of a task, a batch and --since."
    ),
]
LevelOption = Annotated[
    str, typer.Option("--level", metavar="LEVEL", help="The lowest level: debug, info, warning or error.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only newer lines, as in --since 10m.")
]
RawOption = Annotated[bool, typer.Option("--json", help="The lines as stored: one JSON object per line.")]


class LogFolder(NamedTuple):
    """A folder with log files, and the names of the workers and managers that wrote them."""

    path: Path
    names: list[str]


class Asked(NamedTuple):
    """The ids of a task and of a batch, or pieces of them, of which the lines are wanted."""

    task: str | None = None
    batch: str | None = None


def logs(
    context: typer.Context,
    what: WhatArgument = None,
    task: TaskOption = None,
    batch: BatchOption = None,
    follow: FollowOption = False,
    lines: LinesOption = None,
    level: LevelOption = "debug",
    since: SinceOption = None,
    as_json: RawOption = False,
    store: StoreOption = None,
) -> None:
    """Show what the workers and the manager of this host have logged.

    \b
    Examples:
      pitboss logs -f
      pitboss logs download-1 --level warning
      pitboss logs manager --since 1h
      pitboss logs --task 2d449e482300
      pitboss logs --batch 8b1f2c9e64a0 --level warning
    """
    from pitboss.telemetry.logs.reading import Reader

    screen = screen_of(context)
    folder = _log_folder(screen, store)
    subject = _subject(folder, what)
    if subject is None and task is not None:
        raise _two_tasks(str(what), task)
    asked = Asked(what if subject is None else task, batch)
    wanted = _wanted(level, since, asked, troubles=what is None and asked == Asked())
    reader = Reader(folder.path, subject or (lambda _: True), wanted)
    if asked != Asked():
        _check_ids(reader, asked, follow=follow)
    whole = lines is None and (since is not None or asked != Asked())
    width = max(len(name) for name in folder.names if subject is None or subject(name))
    show = _shower(screen, width, as_json=as_json)
    try:
        show(reader.all() if whole else reader.last(_LINES if lines is None else lines))
        while follow:
            time.sleep(_PAUSE_SECONDS)
            show(reader.new())
    except KeyboardInterrupt:
        # Ctrl-C is the usual end, not a failure.
        return


def _log_folder(screen: Screen, store: str | None) -> LogFolder:
    from pitboss.telemetry.logs.files import log_files

    path = Path(settings(screen, store=store).settings.logs)
    names = sorted({file.name for file in log_files(path)})
    if not names:
        raise _no_logs(screen, store, path)
    return LogFolder(path, names)


def _subject(folder: LogFolder, what: str | None) -> Subject | None:
    """Which files to read, also those of later workers; None for a task, which may have run in any worker."""
    candidates: list[Subject] = [lambda name: name == what, lambda name: name.rpartition("-")[0] == what]
    if what is None:
        return lambda _name: True
    meant = next((one for one in candidates if any(map(one, folder.names))), None)
    if meant is None and not _TASK.match(what.lower()):
        raise NotFound(
            f'there are no logs of "{what}" in {folder.path}',
            why=f"there are logs of {', '.join(folder.names)}; a worker that ends before it logs anything has none",
            fix="name one of them, a worker pool, or six or more characters of a task's id; pitboss ps lists workers, "
            "and pitboss logs manager says how they ended",
        )
    return meant


def _wanted(level: str, since: str | None, asked: Asked, *, troubles: bool) -> "Wanted":
    from pitboss.model.log_settings import level_number
    from pitboss.telemetry.logs.reading import Wanted

    moment = None if since is None else wall() - span(since, what="--since")
    task, batch = (piece and piece.lower() for piece in asked)
    return Wanted(level=level_number(level), since=moment, task=task, batch=batch, troubles=troubles)


def _check_ids(reader: "Reader", asked: Asked, *, follow: bool) -> None:
    """A piece of an id must match one task or batch. One without lines may still get some with --follow."""
    from pitboss.telemetry.logs.reading import matching

    found = [entry.fields for entry in reader.all()]
    for field, kind, piece in (("task_id", "task", asked.task), ("batch", "batch", asked.batch)):
        if piece is None:
            continue
        if not _TASK.match(piece.lower()):
            raise InvalidInput(
                f"{piece!r:.60} is not the id of a {kind}",
                why="an id has hexadecimal digits and dashes, and a piece of one has six or more of them",
                fix=f"use an id that pitboss {kind}{'es' if kind == 'batch' else 's'} list shows",
            )
        ids = sorted({one for fields in found for one in matching(fields, field, piece.lower())})
        if len(ids) > 1:
            raise InvalidInput(f"{piece} matches several {kind}s", why=", ".join(ids[:10]), fix="give more of the id")
        if not ids and not follow:
            raise _no_lines(kind, piece)


def _no_lines(kind: str, piece: str) -> NotFound:
    command = "batches" if kind == "batch" else "tasks"
    return NotFound(
        f"there are no lines of {kind} {piece} here",
        why="it logged nothing at this level and in this time, ran on another host, or its lines were pruned",
        fix=f"see what became of it: pitboss {command} show {piece}",
    )


def _two_tasks(what: str, task: str) -> InvalidInput:
    return InvalidInput(
        f"two tasks are named: {what} and {task}", why="a line is of one task", fix="leave one of them out"
    )


def _shower(screen: Screen, width: int, *, as_json: bool) -> "Callable[[Iterable[Entry]], None]":
    """Writes lines and flushes, so that the reader of a pipe gets them at once."""

    def raw(entries: "Iterable[Entry]") -> None:
        for entry in entries:
            sys.stdout.buffer.write(entry.raw + b"\n")
        sys.stdout.buffer.flush()

    def told(entries: "Iterable[Entry]") -> None:
        today = local(wall())[:10]
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
    """On this machine's clock; with the date unless it is today."""
    from datetime import datetime

    moment = datetime.fromisoformat(stamp).astimezone()
    text = moment.isoformat(" ", "milliseconds")[: len("2026-01-01 00:00:00.000")]
    return text.removeprefix(f"{today} ")


def _no_logs(screen: Screen, store: str | None, path: Path) -> NotFound:
    """Logs stay on the host that wrote them; the store knows the hosts."""
    from pitboss.operate.workers import log_folders

    try:
        folders = ask(screen, store, lambda opened: log_folders(opened, now(opened)))
    except PitbossError:
        folders = []
    if not folders:
        return NotFound(
            f"there are no logs in {path}",
            why="no manager has written any there, and the store knows no running manager",
            fix="start one with pitboss up; if it ran elsewhere, run this command there or set PITBOSS_LOGS",
        )
    return NotFound(
        f"there are no logs in {path}",
        why=f"logs are on the host of their manager: {'; '.join(folders)}",
        fix="run this command there, in that project's folder or with PITBOSS_LOGS set to that folder",
    )
