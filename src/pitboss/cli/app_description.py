"""Describes an app in a short-lived child process, so that this process never imports the user's code."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pitboss.model.errors import InvalidInput

if TYPE_CHECKING:
    from pitboss.worker.describe import Description

_SECONDS = 60.0


class AppNotLoaded(InvalidInput):
    """The user's code could not be imported; its own error is in the message."""

    code = "app-not-loaded"


class TableRefused(AppNotLoaded):
    """The user's code could be imported but for a table of partitions."""


def described(target: str, *, folder: Path | None = None) -> "Description":
    """The app's description, or `AppNotLoaded` with the user's own traceback. Modules are looked up in the folder."""
    import msgspec

    from pitboss.worker.describe import Description

    command = [sys.executable, "-m", "pitboss.worker.describe", target]
    try:
        child = subprocess.run(command, stdout=subprocess.PIPE, timeout=_SECONDS, check=False, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise AppNotLoaded(
            f"{target} was not imported within {_SECONDS:g} s",
            why="code at the top of the module waits or never ends",
            fix="move it into a task, or under if __name__ == '__main__'",
        ) from error
    try:
        found = msgspec.json.decode(child.stdout, type=Description)
    except msgspec.DecodeError as error:
        raise AppNotLoaded(
            f"{target} cannot be loaded: the process that imported it ended with exit code {child.returncode}",
            why="the module ends or crashes the process during its import",
            fix=f"import it by itself: {sys.executable} -c 'import …'",
        ) from error
    if found.error is not None:
        raise _refused(target, found.error, found.code, found.traceback)
    if not found.handlers:
        raise AppNotLoaded(
            f"{target} has an app without tasks",
            why="no function in it is decorated with @app.task",
            fix="declare one, or name the module that imports all of them",
        )
    return found


def _refused(target: str, error: str, code: str, traceback: str | None) -> AppNotLoaded:
    from pitboss.model.partition_keys import BrokenTable

    if traceback is None:
        what, _, rest = error.partition("\nWhy: ")
        why, _, fix = rest.partition("\nFix: ")
        kind = TableRefused if code == BrokenTable.code else AppNotLoaded
        return kind(what, why=why, fix=fix)
    return AppNotLoaded(
        f"{target} cannot be loaded: {error}\n{traceback.rstrip()}",
        why="the module raised this during its import",
        fix="correct it there, and start again",
    )
