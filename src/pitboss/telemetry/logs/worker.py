"""A worker's log: everything that its process logs, in addition to what the app itself does with it."""

import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pitboss.model.log_settings import LogSettings, level_number
from pitboss.telemetry.logs.files import Appender, worker_file
from pitboss.telemetry.logs.handlers import ToConsole, ToFile, is_foreign
from pitboss.telemetry.logs.lines import Current, Hidden, LineFormatter


class WorkerLogs:
    """Our two handlers, attached to the loggers of the process."""

    def __init__(
        self, settings: LogSettings, *, pool: str, worker: str, current: Current, hidden: Hidden | None = None
    ) -> None:
        self._level = level_number(settings.level)
        lines = LineFormatter({"pool": pool, "worker": worker}, current, hidden=hidden)
        path = worker_file(Path(settings.folder), worker, settings.file)
        self._file = ToFile(appender(settings, path), lines, self._level)
        self._console = ToConsole(lines)

    def begin(self) -> None:
        """Attach the handlers. Call it after the app was loaded, because the app may have configured logging."""
        root = logging.getLogger()
        if not _is_configured():
            root.setLevel(self._level)
        elif root.level > self._level:
            level = logging.getLevelName(root.level)
            self._file.note(f"the app's logging configuration drops everything below {level}")
        self.attach()

    def attach(self) -> None:
        """Attach again. Harmless to repeat: the app may configure logging while it runs."""
        root = logging.getLogger()
        ends = [root, *_dead_ends()]
        for logger in _loggers():
            if logger not in ends:
                # It propagates to the root now: its lines would be written twice.
                logger.removeHandler(self._file)
        for logger in ends:
            logger.addHandler(self._file)
        root.addHandler(self._console)
        if "structlog" in sys.modules:
            # Importing it is slow: only a worker whose app uses structlog pays for that.
            import_module("pitboss.telemetry.logs.structured").adopt()

    def detach(self) -> None:
        for logger in (logging.getLogger(), *_loggers()):
            for handler in (self._file, self._console):
                logger.removeHandler(handler)
        self._file.close()


def set_up_worker(
    settings: LogSettings, *, pool: str, worker: str, current: Current, hidden: Hidden | None = None
) -> WorkerLogs:
    """From now on everything that this process logs goes to the worker's file.

    `current` returns the claim of the task that runs in the calling thread or coroutine; `hidden` removes secrets from
    a finished line.
    """
    logs = WorkerLogs(settings, pool=pool, worker=worker, current=current, hidden=hidden)
    logs.begin()
    return logs


def appender(settings: LogSettings, path: Path) -> Appender:
    return Appender(path, size=settings.file_size, age=settings.file_age, kept=settings.files)


def _is_configured() -> bool:
    """Whether the app has configured logging: then we must not change its levels."""
    root = logging.getLogger()
    return root.level != logging.WARNING or any(
        is_foreign(handler) for logger in (root, *_loggers()) for handler in logger.handlers
    )


def _dead_ends() -> Iterator[logging.Logger]:
    """Loggers that do not propagate: their records never reach the root."""
    return (logger for logger in _loggers() if not logger.propagate)


def _loggers() -> Iterator[logging.Logger]:
    known = list(logging.getLogger().manager.loggerDict.values())
    return (logger for logger in known if isinstance(logger, logging.Logger))
