"""`pitboss init`: a small project that runs."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from pitboss.cli.command import screen_of
from pitboss.model.errors import InvalidInput, Refused

_FILES = ("app.py", "pitboss.toml")


def init(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder; created if it does not exist.")
    ] = Path(),
) -> None:
    """Write a small project to start from.

    \b
    Examples:
      pitboss init demo && cd demo && pitboss up

    Writes an app with a few tasks, and its settings. Never overwrites a file.
    """
    screen = screen_of(context)
    there = [name for name in _FILES if (folder / name).exists()]
    if there:
        raise Refused(
            f"{folder / there[0]} exists already",
            why="init never overwrites a file; nothing was written",
            fix="choose another folder, as in pitboss init demo",
        )
    _write(folder)
    for name in _FILES:
        screen.note(f"wrote {folder / name}")
    screen.note("")
    screen.note("Next:")
    if folder != Path():
        screen.note(f"  cd {folder}")
    screen.note("  pitboss up                                              run it; Ctrl-C stops it")
    screen.note("and in a second terminal:")
    screen.note("  pitboss status")
    screen.note("""  pitboss tasks enqueue greet '{"name": "you"}' --wait""")


def _write(folder: Path) -> None:
    starter = resources.files("pitboss.cli.starter")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(starter.joinpath(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"{folder} cannot be written", why=str(error), fix="choose a folder that you may write to"
        ) from error
