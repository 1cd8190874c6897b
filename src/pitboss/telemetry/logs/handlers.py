"""Where lines go: a worker's file, and the console for what nobody else shows."""

import logging
import re
import sys
import time
from contextlib import suppress

from pitboss.telemetry.logs.files import Appender
from pitboss.telemetry.logs.lines import LineMaker, Said, as_text

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class ToFile(logging.Handler):
    """Writes each record as a line. A file that cannot be written is told once on stderr, and never to the task."""

    def __init__(self, appender: Appender, lines: LineMaker, level: int) -> None:
        super().__init__(level)
        self._appender, self._lines = appender, lines
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._appender.write(self._lines.line(record), record.created)
            if self._lost:
                self._confess()
        except OSError as error:
            self._miss(error)
        except Exception:
            self.handleError(record)

    def note(self, event: str, **facts: object) -> None:
        """A line of our own, which no level holds back."""
        said = {"name": "pitboss.logs", "levelname": "WARNING", "msg": Said(event, facts)}
        self.handle(logging.makeLogRecord(said))

    def close(self) -> None:
        # logging.config closes the handlers of the configuration before. A line that comes later opens the file again.
        self._appender.close()
        super().close()

    def _miss(self, error: OSError) -> None:
        self._lost += 1
        if self._lost == 1:
            why = error.strerror or str(error)
            _to_stderr(f"pitboss: {self._appender.path} cannot be written: {why}; lines are lost until it can")

    def _confess(self) -> None:
        lost, self._lost = self._lost, 0
        self.note("lines were lost before this one: the file could not be written", lost=lost)


class ToConsole(logging.Handler):
    """Shows warnings and worse on stderr, a line each, unless a handler of the app shows them already."""

    def __init__(self, lines: LineMaker, *, besides: str = "") -> None:
        super().__init__(logging.WARNING)
        self._lines, self._besides = lines, besides
        self.addFilter(self._is_ours)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = self._lines.fields(record)
            text = as_text(fields, time.strftime("%H:%M:%S", time.localtime(record.created)))
            trace = str(fields.get("exception", "")).rpartition("\n")[2]
            _to_stderr(self._lines.shown(_one_line(f"{text}  {trace}".rstrip())))
        except Exception:
            self.handleError(record)

    def _is_ours(self, record: logging.LogRecord) -> bool:
        return record.name != self._besides and not _is_heard(record.name)


def _is_heard(name: str) -> bool:
    """Whether a handler that is not ours gets what a logger says."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(is_foreign(handler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def is_foreign(handler: logging.Handler) -> bool:
    """A handler that shows something, and that the app put there."""
    return not isinstance(handler, ToFile | ToConsole | logging.NullHandler)


def _one_line(text: str) -> str:
    """What a terminal would obey is shown instead."""
    return _CONTROL.sub(lambda match: " " if match[0] in "\n\t" else f"\\x{ord(match[0]):02x}", text)


def _to_stderr(text: str) -> None:
    stream = sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.write(f"{text}\n")
            stream.flush()
