"""Checks on single values that several tables have."""

from typing import Any

from pitboss.model.duration import Span, span
from pitboss.model.errors import InvalidInput

_FOREVER = "forever"


def whole(value: Any) -> Any:
    """For whole numbers: Python takes true and false for numbers."""
    if isinstance(value, bool):
        raise InvalidInput(f"{value} is not a number", why="it is true or false", fix="write a whole number")
    return value


def duration(value: Any) -> Span:
    # In the environment everything is text: a bare number means seconds there, too.
    bare = isinstance(value, str) and value.isdigit()
    return span(int(value) if bare else value)


def age(value: Any) -> Span | None:
    """How long something is kept; None is for ever."""
    return None if value == _FOREVER else duration(value)
