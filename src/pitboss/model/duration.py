"""Times are whole microseconds: a moment since the epoch, or a span. People write "90s", "2m", "1h30m"."""

import re
from datetime import timedelta

from pitboss.model.errors import InvalidInput

Moment = int
Span = int
Time = float | str | timedelta
SECOND: Span = 1_000_000
_UNITS = {
    "us": 1,
    "ms": 1000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86_400 * SECOND,
    "w": 604_800 * SECOND,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)\s*")
_LONGEST_SECONDS = 100 * 366 * 86_400
# From here on, parts of a millisecond say nothing to a person.
_WHOLE: Span = 10_000


def span(value: object, *, what: str = "duration") -> Span:
    """Microseconds of a number of seconds, a timedelta, or text such as "1h30m"; refuses anything else."""
    seconds = _seconds(value)
    if seconds is None or not 0 <= seconds < _LONGEST_SECONDS:
        raise _bad(value, what)
    return round(seconds * SECOND)


def spoken(value: Span) -> str:
    """A span as a person reads it: the two largest units, and no parts of a millisecond beside ten of them."""
    if value < SECOND:
        return f"{value // 1000}ms" if value >= _WHOLE else f"{value / 1000:g}ms"
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, value = divmod(value, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        return _parsed(value.strip())
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _parsed(text: str) -> float | None:
    total, position = 0.0, 0
    while match := _PART.match(text, position):
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    return total / SECOND if text and position == len(text) else None


def _bad(value: object, what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} {value!r:.60} is not a duration",
        why='a duration is a number of seconds, a timedelta, or text such as "500ms", "90s", "2m", "1h30m", "7d"',
        fix="write it in one of these forms; it must not be negative or longer than a century",
    )
