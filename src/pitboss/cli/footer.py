"""A line of live figures at the bottom of the terminal, under everything that scrolls.

The terminal itself keeps the two apart: all rows but the last are made the region that scrolls. So workers, which
write to the terminal directly, need not know about the line, and cannot garble it.
"""

import os
import sys

_LEAST_ROWS = 5
_SAVE, _RESTORE = "\x1b7", "\x1b8"


class Footer:
    """Does nothing where stderr is not a terminal that knows how."""

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
        # With the whole screen free to scroll, a line feed makes room: else text could go on in the row of the figures.
        room = f"{_SAVE}\x1b[r{_RESTORE}\n\x1b[A"
        self._write(f"{room}{_SAVE}\x1b[1;{self._rows - 1}r{_RESTORE}")

    def show(self, text: str) -> None:
        if self.shown:
            self._write(f"{_SAVE}\x1b[{self._rows};1H\x1b[2K\x1b[7m {text[: self._columns - 2]} \x1b[0m{_RESTORE}")

    def close(self) -> None:
        """Give the row back."""
        if self.shown:
            self._write(f"{_SAVE}\x1b[{self._rows};1H\x1b[2K\x1b[r{_RESTORE}")
            self._rows = 0

    def _write(self, text: str) -> None:
        # In one call: what a worker writes at the same time comes before it or after it.
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), text.encode())
