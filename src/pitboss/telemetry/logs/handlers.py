"""Where log lines go: to a file, and to the console unless the app shows them itself."""

import logging
import sys
import time
from contextlib import suppress

from pitboss.model.text import clean
from pitboss.telemetry.logs.files import Appender
from pitboss.telemetry.logs.lines import LineFormatter, StructuredMessage, as_text


class ToFile(logging.Handler):
    """Writes each record as a line. If the file cannot be written, stderr says so once, and the task never notices."""

    def __init__(self, appender: Appender, lines: LineFormatter, level: int) -> None:
        super().__init__(level)
        self._appender, self._lines = appender, lines
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._appender.write(self._lines.line(record), record.created)
            if self._lost:
                self._report_lost()
        except OSError as error:
            self._miss(error)
        except Exception:
            self.handleError(record)

    def note(self, event: str, **facts: object) -> None:
        """A line of our own, which no level filters."""
        said = {"name": "pitboss.logs", "levelname": "WARNING", "msg": StructuredMessage(event, facts)}
        self.handle(logging.makeLogRecord(said))

    def close(self) -> None:
        # logging.config closes the handlers of the previous configuration. A later line opens the file again.
        self._appender.close()
        super().close()

    def _miss(self, error: OSError) -> None:
        self._lost += 1
        if self._lost == 1:
            why = error.strerror or str(error)
            _to_stderr(f"pitboss: {self._appender.path} cannot be written: {why}; log lines are lost until it can")

    def _report_lost(self) -> None:
        lost, self._lost = self._lost, 0
        self.note("log lines before this one were lost: the file could not be written", lost=lost)


class ToConsole(logging.Handler):
    """Shows warnings and errors on stderr, a line each, unless a handler of the app shows them already."""

    def __init__(self, lines: LineFormatter, *, besides: str = "") -> None:
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
    """Whether a handler of the app gets the records of this logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(is_foreign(handler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def is_foreign(handler: logging.Handler) -> bool:
    """Whether the app installed this handler, and it shows something."""
    return not isinstance(handler, ToFile | ToConsole | logging.NullHandler)


def _one_line(text: str) -> str:
    """Control characters are shown, not sent to the terminal."""
    return clean(text).replace("\n", " ").replace("\t", " ")


def _to_stderr(text: str) -> None:
    stream = sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):  # closed, or a broken pipe
            stream.write(f"{text}\n")
            stream.flush()
