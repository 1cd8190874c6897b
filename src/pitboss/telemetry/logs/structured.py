"""Sends structlog's messages through Python's logging, so that they become ordinary lines. Imports structlog."""

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger

from pitboss.telemetry.logs.lines import StructuredMessage

# Frames between structlog's method and its caller, for handlers that show the caller.
_FRAMES = 3
_FOR_LOGGING = ("exc_info", "stack_info", "stacklevel")


def adopt() -> None:
    """Send structlog's messages to `logging`, unless the app has configured structlog itself."""
    if structlog.is_configured():
        return
    chosen = logging.getLoggerClass()
    factory = structlog.stdlib.LoggerFactory()
    # The factory replaces the logger class, which the app may have chosen.
    logging.setLoggerClass(chosen)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, handed_over],
        logger_factory=factory,
    )


def logger(name: str) -> FilteringBoundLogger:
    """A structured logger that ignores the app's configuration of structlog."""
    found: FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, handed_over],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return found


def handed_over(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[StructuredMessage], dict[str, Any]]:
    """The last processor: turns the message into arguments for `logging`."""
    options = {key: event.pop(key) for key in _FOR_LOGGING if key in event}
    return (StructuredMessage(str(event.pop("event", "")), event),), {"stacklevel": _FRAMES, **options}
