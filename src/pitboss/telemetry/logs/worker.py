"""A worker's logs: everything that its process logs, beside whatever the app itself does with it."""

import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pitboss.telemetry.logs.files import Appender, worker_file
from pitboss.telemetry.logs.handlers import ToConsole, ToFile, is_foreign
from pitboss.telemetry.logs.lines import Current, Hidden, LineMaker
from pitboss.telemetry.logs.settings import LogSettings, level_number


class WorkerLogs:
    """Our two handlers, and the loggers that have them."""

    def __init__(
        self, settings: LogSettings, *, pool: str, worker: str, current: Current, hidden: Hidden | None = None
    ) -> None:
        self._level = level_number(settings.level)
        lines = LineMaker({"pool": pool, "worker": worker}, current, hidden=hidden)
        self._file = ToFile(appender(settings, worker_file(Path(settings.folder), worker)), lines, self._level)
        self._console = ToConsole(lines)

    def begin(self) -> None:
        """Attach, after the app was loaded: only now it is known what it has configured itself."""
        root = logging.getLogger()
        if not _is_configured():
            root.setLevel(self._level)
        elif root.level > self._level:
            level = logging.getLevelName(root.level)
            self._file.note(f"the app's own logging lets only {level} and worse through")
        self.attach()

    def attach(self) -> None:
        """Be where the lines are. Harmless to repeat, for an app that configures its logging while it runs."""
        root = logging.getLogger()
        ends = [root, *_dead_ends()]
        for logger in _loggers():
            if logger not in ends:
                # It leads to the root now: what it says would come twice.
                logger.removeHandler(self._file)
        for logger in ends:
            logger.addHandler(self._file)
        root.addHandler(self._console)
        if "structlog" in sys.modules:
            # It loads a terminal library as well: only a worker whose app uses it pays for that.
            import_module("pitboss.telemetry.logs.structured").adopt()

    def detach(self) -> None:
        for logger in (logging.getLogger(), *_loggers()):
            for handler in (self._file, self._console):
                logger.removeHandler(handler)
        self._file.close()


def set_up_worker(
    settings: LogSettings, *, pool: str, worker: str, current: Current, hidden: Hidden | None = None
) -> WorkerLogs:
    """Everything that this process logs goes to the worker's file from here on.

    `current` answers with the claim of the task that runs in the calling thread or coroutine; `hidden` takes secrets
    out of a finished line.
    """
    logs = WorkerLogs(settings, pool=pool, worker=worker, current=current, hidden=hidden)
    logs.begin()
    return logs


def appender(settings: LogSettings, path: Path) -> Appender:
    return Appender(path, size=settings.file_size, age=settings.file_age, kept=settings.files)


def _is_configured() -> bool:
    """Whether the app has said anything about its logging: then its levels are not ours to change."""
    root = logging.getLogger()
    return root.level != logging.WARNING or any(
        is_foreign(handler) for logger in (root, *_loggers()) for handler in logger.handlers
    )


def _dead_ends() -> Iterator[logging.Logger]:
    """Loggers that do not pass on what they are told. Nothing of it would reach the root."""
    return (logger for logger in _loggers() if not logger.propagate)


def _loggers() -> Iterator[logging.Logger]:
    known = list(logging.getLogger().manager.loggerDict.values())
    return (logger for logger in known if isinstance(logger, logging.Logger))
