"""A manager's log, and the pruning of all log files in its folder."""

import logging
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from pitboss.model.duration import Moment
from pitboss.model.log_settings import LogSettings, level_number
from pitboss.telemetry.logs.files import manager_file, prune_logs
from pitboss.telemetry.logs.handlers import ToConsole, ToFile
from pitboss.telemetry.logs.lines import LineFormatter
from pitboss.telemetry.logs.structured import logger as structured_logger
from pitboss.telemetry.logs.worker import appender

NAME = "pitboss.manager"


class ManagerLogs:
    """`log.info("worker crashed", worker="download-1", …)` writes a line. Warnings of libraries are kept, too."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        level = level_number(settings.level)
        lines = LineFormatter({}, lambda: None, pid="manager_pid")
        self._file = ToFile(appender(settings, manager_file(Path(settings.folder))), lines, level)
        # The manager prints its own messages for people.
        self._console = ToConsole(lines, besides=NAME)
        logging.getLogger(NAME).setLevel(level)
        logging.getLogger().addHandler(self._file)
        logging.getLogger().addHandler(self._console)
        self.log: FilteringBoundLogger = structured_logger(NAME)

    def prune(self, now: Moment) -> None:
        """Keep all logs of this folder within their size and age limits."""
        kept = self._settings
        removed = prune_logs(Path(kept.folder), total_size=kept.total_size, age=kept.age, now=now)
        if removed:
            self.log.info("old logs removed", files=[path.name for path in removed])

    def close(self) -> None:
        """Restore Python's logging: one process may run several managers in turn."""
        for handler in (self._file, self._console):
            logging.getLogger().removeHandler(handler)
        self._file.close()


def set_up_manager(settings: LogSettings) -> ManagerLogs:
    """From now on everything that this manager logs goes to its file."""
    return ManagerLogs(settings)
