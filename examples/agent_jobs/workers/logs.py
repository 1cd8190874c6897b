"""Logs of processes that are not workers, such as the page. Pitboss writes and rotates the logs of workers itself."""

import logging.config
from pathlib import Path
from typing import Any


def configure(path: Path, level: str = "INFO") -> None:
    """The document's configuration. It attached its handlers to no logger, and silenced loggers that existed."""
    handlers: dict[str, Any] = {
        "console": {"class": "logging.StreamHandler", "level": level, "formatter": "plain"},
        "file": {
            "class": "logging.handlers.RotatingFileHandler",
            "filename": str(path),
            "level": "DEBUG",
            "formatter": "plain",
            "maxBytes": 5_000_000,
            "backupCount": 3,
        },
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
            "handlers": handlers,
            "root": {"level": "DEBUG", "handlers": list(handlers)},
        }
    )
