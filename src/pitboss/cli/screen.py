"""Output: data to stdout, messages to stderr; tables and colour for a person, plain text for a pipe."""

import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pitboss.model.text import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DOCUMENT_VERSION = 1
_GAP = 2
_LABEL = 12
# A column that fills may shrink to the first of these, any other to the second, before a column is left out.
_NARROW, _WIDE = 16, 40
_STYLES = {
    "completed": "green",
    "failed": "red",
    "running": "cyan",
    "held": "yellow",
    "scheduled": "blue",
    "cancelled": "bright_black",
    "paused": "yellow",
    "alive": "green",
    "gone": "bright_black",
    "healthy": "green",
    "attention": "yellow",
    "unhealthy": "red",
    "idle": "green",
    "processing": "cyan",
    "starting": "blue",
    "draining": "yellow",
    "restarting": "yellow",
    "changing": "yellow",
    "crashed": "red",
    "dead": "red",
    "stopped": "bright_black",
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
    "ready": "green",
    "busy": "cyan",
    "resting": "blue",
    "cooling": "yellow",
    "blacklisted": "red",
    "disabled": "bright_black",
    "queued": "blue",
    "pausing": "yellow",
    "cancelling": "yellow",
    "done": "green",
    "done_with_errors": "red",
}


class Column(NamedTuple):
    """`drop` above 0 lets a narrow terminal leave the column out, the highest first; `fills` takes the space left."""

    title: str
    right: bool = False
    drop: int = 0
    fills: bool = False


class Screen:
    """The two streams of one command."""

    def __init__(self, *, color: bool = True, debug: bool = False) -> None:
        self.color, self.debug = color, debug

    @cached_property
    def out(self) -> "Console":
        return self._console(stderr=False)

    @cached_property
    def err(self) -> "Console":
        return self._console(stderr=True)

    @property
    def interactive(self) -> bool:
        """True if a person can answer a question."""
        return sys.stdin is not None and sys.stdin.isatty()

    def line(self, text: str = "", style: str | None = None) -> None:
        """A line of data. The terminal wraps long lines, so that a copied line is whole."""
        self.out.print(clean(text), style=style, soft_wrap=True)

    def note(self, text: str) -> None:
        """A message to the person, on stderr."""
        self.err.print(clean(text), soft_wrap=True)

    def heading(self, text: str) -> None:
        self.out.print()
        self.out.print(clean(text), style="bold")

    def document(self, values: dict[str, Any], *, compact: bool = False) -> None:
        """One JSON document, with its version."""
        import msgspec

        data = msgspec.json.encode({"version": DOCUMENT_VERSION, **values})
        text = data if compact else msgspec.json.format(data, indent=2)
        sys.stdout.write(text.decode() + "\n")
        sys.stdout.flush()

    def fields(self, pairs: Iterable[tuple[str, str | None]]) -> None:
        """Labels and values; an empty value is left out."""
        for label, value in pairs:
            if value:
                first, *rest = clean(value).split("\n")
                self.line(f"{label:<{_LABEL}} {first}", _STYLES.get(first))
                for text in rest:
                    self.line(f"{'':<{_LABEL}} {text}")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Rows under headings. A terminal gets what fits; a pipe gets everything."""
        if self.out.is_terminal:
            self.out.print(self.rich_table(columns, rows))
        else:
            self._plain_table(columns, _cleaned(rows))

    def rich_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> "Table":
        """The table with the columns that fit this terminal."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        rows = _cleaned(rows)
        shown = _fitting(columns, rows, self.out.width)
        widths = _shrunk(columns, _widths([column.title for column in columns], rows), shown, self.out.width)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for index in shown:
            column = columns[index]
            table.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                overflow="ellipsis",
                no_wrap=True,
                width=widths[index],
            )
        for row in rows:
            table.add_row(*(Text(row[index], style=_STYLES.get(row[index], "")) for index in shown))
        return table

    def _plain_table(self, columns: Sequence[Column], rows: list[list[str]]) -> None:
        titles = [column.title.upper() for column in columns]
        widths = _widths(titles, rows)
        for row in (titles, *rows):
            padded = (
                cell.rjust(width) if column.right else cell.ljust(width)
                for cell, width, column in zip(row, widths, columns, strict=True)
            )
            self.line((" " * _GAP).join(padded).rstrip())

    def _console(self, *, stderr: bool) -> "Console":
        from rich.console import Console

        class PipedConsole(Console):
            """Raises when the pipe is closed, so that `errors.show` chooses the exit code."""

            def on_broken_pipe(self) -> None:
                self.quiet = True
                raise BrokenPipeError

        return PipedConsole(
            stderr=stderr, highlight=False, markup=False, emoji=False, no_color=None if self.color else True
        )


def _cleaned(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Cells on one line, without control characters."""
    return [[clean(cell).replace("\n", " ") for cell in row] for row in rows]


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max([len(title), *(len(row[index]) for row in rows)]) for index, title in enumerate(titles)]


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns to show: droppable ones are left out while the table is too wide."""
    widths = _widths([column.title for column in columns], rows)
    shown = list(range(len(columns)))
    for index in sorted(shown, key=lambda one: -columns[one].drop):
        needed = sum(min(widths[one], _least(columns[one])) + _GAP for one in shown)
        if needed <= width or not columns[index].drop:
            break
        shown.remove(index)
    return shown


def _shrunk(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
    """The widths with which the table fits: columns that fill give space first, each down to its least."""
    found = list(widths)
    excess = sum(found[index] + _GAP for index in shown) - width
    for index in sorted(shown, key=lambda one: (not columns[one].fills, -found[one])):
        cut = max(0, min(excess, found[index] - _least(columns[index])))
        found[index] -= cut
        excess -= cut
    return found


def _least(column: Column) -> int:
    """How narrow a column may get before another one is left out."""
    return _NARROW if column.fills else _WIDE
