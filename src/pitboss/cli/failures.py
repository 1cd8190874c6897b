"""The one place that shows errors: what happened, why, what to do; never a traceback for a user's mistake."""

import os
import sys

import typer

from pitboss.cli.exits import Exit, exit_of
from pitboss.cli.screen import Screen
from pitboss.cli.words import clean
from pitboss.model.errors import PitbossError


def show(screen: Screen, error: BaseException) -> Exit:
    """Tell the person on stderr; the exit code."""
    match error:
        case PitbossError():
            told(screen, error.what, error.why, error.fix)
            return exit_of(error)
        case typer.TyperException():
            _usage(screen, error)
            return Exit.USAGE
        case BrokenPipeError():
            # Whoever read our output has had enough, as `head` does; Python would complain once more while it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.OK
        case KeyboardInterrupt() | typer.Abort():
            screen.note("interrupted")
            return Exit.INTERRUPTED
    _unexpected(screen, error)
    return Exit.FAILED


def told(screen: Screen, what: str, why: str = "", fix: str = "") -> None:
    """Three lines at most, more only if one of them has several."""
    from rich.text import Text

    first, *more = clean(what).split("\n")
    screen.err.print(Text.assemble(("error: ", "bold red"), first), soft_wrap=True)
    for line in more:
        screen.err.print(f"  {line}", soft_wrap=True)
    for label, text in (("why", why), ("fix", fix)):
        if text:
            screen.err.print(Text.assemble((f"  {label}: ", "bold"), clean(text)), soft_wrap=True)


def _usage(screen: Screen, error: typer.TyperException) -> None:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "pitboss"
    told(screen, error.format_message().rstrip("."), fix=f"see {command} --help")


def _unexpected(screen: Screen, error: BaseException) -> None:
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    if screen.debug:
        screen.err.print(clean(text), soft_wrap=True)
        where = "it stands above"
    else:
        with tempfile.NamedTemporaryFile("w", prefix="pitboss-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(text)
        where = f"it was written to {file.name}; pitboss --debug … shows it here"
    told(
        screen,
        f"something unexpected happened: {type(error).__name__}: {error}",
        f"this is a fault of Pitboss, not yours; the traceback is needed to mend it: {where}",
        "repeat the command; if it happens again, please report it with the traceback",
    )
