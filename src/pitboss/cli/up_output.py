"""What `pitboss up` shows: how it begins, a line for each task that ends, and a line of live figures at the bottom."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from pitboss.cli.formatting import short, took
from pitboss.cli.screen import Screen
from pitboss.model.duration import spoken
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim
from pitboss.model.text import counted, masked, one_line

_LINES_PER_SECOND = 20
_WAITING = (State.PENDING, State.SCHEDULED)
_LEAST_ROWS = 5
_SAVE, _RESTORE = "\x1b7", "\x1b8"


def banner(screen: Screen, rows: Sequence[tuple[str, str | None]]) -> None:
    """The release, and what runs; a row without text is left out."""
    screen.note(f"pitboss {metadata.version('pitboss')}")
    for label, text in rows:
        if text:
            screen.note(f"  {label:<8} {text}")
    screen.note("")


def near(path: str) -> str:
    """Relative to the current folder, if it is there."""
    return path.removeprefix(f"{Path.cwd()}/")


def near_store(url: str) -> str:
    return masked(url).replace(f"sqlite:///{Path.cwd()}/", "sqlite:///")


class TaskLines:
    """Counts all tasks that end, and shows as many lines as can be read. `time` is monotonic, in seconds."""

    def __init__(self, show: Callable[[str, str], None], time: Callable[[], float], *, quiet: bool, full: bool) -> None:
        self._show, self._time = show, time
        self._quiet, self._full = quiet, full
        self.ended: Counter[str] = Counter()
        self._second = 0
        self._shown = 0
        self._skipped = 0

    def note(self, claim: Claim, settlement: Settlement) -> None:
        """A task has ended, or goes back to wait."""
        change = settlement.transition
        self.ended["retried" if change.charged and change.state in _WAITING else change.state] += 1
        if self._quiet:
            return
        if change.state is State.COMPLETED:
            if self._full:
                self._line("done", f"{claim.handler}  {took(settlement.ran)}", "")
        elif change.lost and change.state in _WAITING:
            return  # the manager tells of all tasks that were lost with a worker in one line
        elif change.error is not None or change.state is State.CANCELLED:
            self._line(*_trouble(claim, settlement))

    def summary(self, seconds: float) -> str:
        """The last line."""
        parts = [f"{self.ended[State.COMPLETED]:,} done", f"{self.ended[State.FAILED]:,} failed"]
        if self.ended["retried"]:
            parts.append(f"{self.ended['retried']:,} tried again")
        if self.ended[State.CANCELLED]:
            parts.append(f"{self.ended[State.CANCELLED]:,} cancelled")
        return f"stopped after {took(round(seconds * 1_000_000))}: {', '.join(parts)}"

    def _line(self, word: str, text: str, style: str) -> None:
        second = int(self._time())
        if second != self._second:
            self._second, self._shown = second, 0
            if self._skipped:
                self._show(f"         … and {counted(self._skipped, 'more task')} in between", "bright_black")
                self._skipped = 0
        if self._shown >= _LINES_PER_SECOND:
            self._skipped += 1
            return
        self._shown += 1
        self._show(f"{word:<8} {text}", style)


def _trouble(claim: Claim, settlement: Settlement) -> tuple[str, str, str]:
    change = settlement.transition
    error = change.error
    cause = one_line(f"{error.type or error.category}: {error.message}", 120) if error else change.reason or ""
    name = f"{claim.handler}  {took(settlement.ran)}".rstrip()
    if change.state is State.CANCELLED:
        return "cancelled", f"{name}  {cause}", "bright_black"
    if change.state is State.FAILED:
        return "failed", f"{name}  {cause}  (pitboss tasks show {short(claim.id)})", "red"
    again = f"again in {spoken(change.delay)}" if change.delay else "again at once"
    return "again", f"{name}  {cause}  ({again})", "yellow"


class StatusLine:
    """The last row of the terminal, kept out of the scrolling region: workers write to the terminal directly, and so
    cannot overwrite it. Does nothing if stderr is not a terminal."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._usable = wanted and sys.stderr.isatty()
        self._rows = 0
        self._columns = 80

    @property
    def shown(self) -> bool:
        return self._rows > 0

    def open(self) -> None:
        """Take the last row; also after the terminal has changed its size."""
        if not self._usable:
            return
        size = os.get_terminal_size(sys.stderr.fileno())
        if size.lines < _LEAST_ROWS:
            self.close()
            return
        self._rows, self._columns = size.lines, size.columns
        # With the whole screen scrolling, a line feed frees the last row; without it, text could continue there.
        free = f"{_SAVE}\x1b[r{_RESTORE}\n\x1b[A"
        self._write(f"{free}{_SAVE}\x1b[1;{self._rows - 1}r{_RESTORE}")

    def show(self, text: str) -> None:
        if self.shown:
            self._write(f"{_SAVE}\x1b[{self._rows};1H\x1b[2K\x1b[7m {text[: self._columns - 2]} \x1b[0m{_RESTORE}")

    def close(self) -> None:
        """Give the row back."""
        if self.shown:
            self._write(f"{_SAVE}\x1b[{self._rows};1H\x1b[2K\x1b[r{_RESTORE}")
            self._rows = 0

    def _write(self, text: str) -> None:
        # One call, so that the output of a worker comes before or after it, not in between. The terminal may be closed.
        with suppress(OSError):
            sys.stderr.flush()
            os.write(sys.stderr.fileno(), text.encode())
