"""structlog's events through Python's logging, so that they are lines like all others. Loads structlog."""

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger

from pitboss.telemetry.logs.lines import Said

# From structlog's method to the line that called it, for handlers that show where it was.
_FRAMES = 3
_FOR_LOGGING = ("exc_info", "stack_info", "stacklevel")


def adopt() -> None:
    """Lead the events of an app that uses structlog as it comes to `logging`. One that configured it is left alone."""
    if structlog.is_configured():
        return
    chosen = logging.getLoggerClass()
    factory = structlog.stdlib.LoggerFactory()
    # The factory has put a class of its own in the place of one that the app may have chosen.
    logging.setLoggerClass(chosen)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, handed_over],
        logger_factory=factory,
    )


def logger(name: str) -> FilteringBoundLogger:
    """A logger that takes facts by name, whatever the app made of structlog's defaults."""
    found: FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, handed_over],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return found


def handed_over(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> tuple[tuple[Said], dict[str, Any]]:
    """The last processor: an event as the arguments of a call of `logging`."""
    options = {key: event.pop(key) for key in _FOR_LOGGING if key in event}
    return (Said(str(event.pop("event", "")), event),), {"stacklevel": _FRAMES, **options}
