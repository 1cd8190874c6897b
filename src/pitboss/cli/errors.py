"""Exit codes, and the one place that shows errors: what happened, why, how to fix it."""

import os
import sys
from collections.abc import Sequence
from enum import IntEnum

import typer

from pitboss.cli.screen import Screen
from pitboss.model.errors import (
    InvalidInput,
    NotFound,
    NotLeader,
    PitbossError,
    QueueFull,
    Refused,
    SchemaMismatch,
    SessionLost,
    StoreFull,
    StoreUnavailable,
    TimedOutWaiting,
    Unsupported,
)
from pitboss.model.text import HIDDEN, clean


class Exit(IntEnum):
    """What a script can learn from a command without reading its output."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "Exit":
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "success"
    FAILED = 1, "the operation failed (with --wait: the awaited task or change failed), or an unexpected error happened"
    USAGE = 2, "the command line, a setting or the app's own code cannot be used"
    UNREACHABLE = 3, "the store cannot be reached or opened"
    NOT_FOUND = (
        4,
        "no such task, batch, queue, schedule, event, alert, handler, group, resource, pool, key, host or manager",
    )
    REFUSED = 5, "refused: a conflict, a full queue or store, a newer schema, or no confirmation"
    UNHEALTHY = (
        6,
        "`pitboss status --check` found the store unhealthy, or `doctor`, `plan` or `db check` found a problem",
    )
    TIMEOUT = 124, "the time limit of a wait was reached"
    INTERRUPTED = 130, "ended by Ctrl-C before it was done"


_BY_ERROR: tuple[tuple[type[PitbossError], Exit], ...] = (
    (InvalidInput, Exit.USAGE),
    (Unsupported, Exit.USAGE),
    (StoreUnavailable, Exit.UNREACHABLE),
    (NotFound, Exit.NOT_FOUND),
    (QueueFull, Exit.REFUSED),
    (StoreFull, Exit.REFUSED),
    (Refused, Exit.REFUSED),
    (SchemaMismatch, Exit.REFUSED),
    (SessionLost, Exit.REFUSED),
    (NotLeader, Exit.REFUSED),
    (TimedOutWaiting, Exit.TIMEOUT),
)


def exit_of(error: PitbossError) -> Exit:
    """The exit code for an error."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)


def show(screen: Screen, error: BaseException, words: Sequence[str] = ()) -> Exit:
    """Show it on stderr; returns the exit code. A user's mistake never shows a traceback.

    `words` are those of the command line: a password in one of them is not shown.
    """
    match error:
        case PitbossError():
            show_error(screen, *(_without_passwords(text, words) for text in (error.what, error.why, error.fix)))
            return exit_of(error)
        case typer.TyperException():
            _usage(screen, error, words)
            return Exit.USAGE
        case BrokenPipeError():
            # The reader closed the pipe, as `head` does. Without this, Python would complain again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.OK
        case KeyboardInterrupt() | typer.Abort():
            screen.note("interrupted")
            return Exit.INTERRUPTED
    _unexpected(screen, error)
    return Exit.FAILED


def show_error(screen: Screen, what: str, why: str = "", fix: str = "") -> None:
    """Three lines, more only if one of them has several."""
    from rich.text import Text

    first, *more = clean(what).split("\n")
    screen.err.print(Text.assemble(("error: ", "bold red"), first), soft_wrap=True)
    for line in more:
        screen.err.print(f"  {line}", soft_wrap=True)
    for label, text in (("why", why), ("fix", fix)):
        if text:
            screen.err.print(Text.assemble((f"  {label}: ", "bold"), clean(text)), soft_wrap=True)


def _usage(screen: Screen, error: typer.TyperException, words: Sequence[str]) -> None:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "pitboss"
    show_error(screen, _without_passwords(error.format_message().rstrip("."), words), fix=f"see {command} --help")


def _without_passwords(text: str, words: Sequence[str]) -> str:
    """Such an error quotes words of the command line, and one of them may be an address with a password."""
    from pitboss.model.resource_files import hides_password

    for word in words:
        for part in (word, word.partition("=")[2]):
            if hides_password(part):
                text = text.replace(part, HIDDEN).replace(repr(part)[1:-1], HIDDEN)
    return text


def _unexpected(screen: Screen, error: BaseException) -> None:
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    if screen.debug:
        screen.err.print(clean(text), soft_wrap=True)
        where = "it is shown above"
    else:
        with tempfile.NamedTemporaryFile("w", prefix="pitboss-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(text)
        where = f"it was written to {file.name}; pitboss --debug … shows it here"
    show_error(
        screen,
        f"unexpected error: {type(error).__name__}: {error}",
        f"this is a bug in Pitboss, not your mistake; the traceback is needed to fix it: {where}",
        "repeat the command; if it happens again, please report it with the traceback",
    )
