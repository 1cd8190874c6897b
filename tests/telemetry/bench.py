"""Shared by the tests of logs: a clean logging for each test, reading of files, made-up claims."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog

from pitboss.model.log_settings import LogSettings
from pitboss.model.task import Claim, Token

TASK = "01900000-0000-7000-8000-0123456789ab"


@contextmanager
def fresh_logging() -> Iterator[logging.Logger]:
    """The root logger as in a new process; restored afterwards."""
    root = logging.getLogger()
    handlers, level, known = root.handlers, root.level, dict(root.manager.loggerDict)
    root.handlers = []
    root.setLevel(logging.WARNING)
    root.manager.loggerDict.clear()
    structlog.reset_defaults()
    try:
        yield root
    finally:
        root.handlers = handlers
        root.setLevel(level)
        root.manager.loggerDict.clear()
        root.manager.loggerDict.update(known)
        structlog.reset_defaults()


def claim(task: str = TASK, handler: str = "fetch", queue: str = "mail", attempt: int = 2) -> Claim:
    return Claim(id=task, token=Token(1, 1), handler=handler, queue=queue, params="{}", attempt=attempt)


def settings(folder: Path, **changes: Any) -> LogSettings:
    return LogSettings(**{"folder": str(folder)} | changes)


def lines(path: Path) -> list[dict[str, Any]]:
    """Every line of a file; each must be complete."""
    return [msgspec.json.decode(raw) for raw in path.read_bytes().splitlines()]


def events(path: Path) -> list[str]:
    return [line["event"] for line in lines(path)]
