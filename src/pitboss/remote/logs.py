"""Logs in JSON, one object per line, with the worker and the task that each line is about."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

logger = logging.getLogger("pitboss.remote")

# A context variable, not a record factory: threads and asyncio tasks have one each.
_context: ContextVar[Mapping[str, Any] | None] = ContextVar("log_context", default=None)

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add fields to every line that is logged in this block, in this thread or asyncio task."""
    token = _context.set({**(_context.get() or {}), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class JSONFormatter(logging.Formatter):
    """One JSON object per line. Values of `extra=` and of `log_context` come after the standard fields."""

    def format(self, record: logging.LogRecord) -> str:
        given = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        more = {**(_context.get() or {}), **given}
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "message": record.getMessage(),
            "worker_id": more.pop("worker_id", None),
            "task_id": more.pop("task_id", None),
            "module": record.module,
            "function": record.funcName,
            "line": record.lineno,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**more, **line}, default=str)


def setup_logging(debug: bool = False) -> None:
    """Log JSON to stderr. Calling it again changes the level and adds no second handler."""
    root = logging.getLogger()
    if not any(isinstance(handler.formatter, JSONFormatter) for handler in root.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(JSONFormatter())
        root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for noisy in ("httpx", "httpcore"):  # one line per request
        logging.getLogger(noisy).setLevel(logging.WARNING)
