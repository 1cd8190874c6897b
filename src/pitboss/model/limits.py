"""Rates as exact sliding windows: in no span of `per`, wherever it begins, start more than `count` tasks."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from pitboss.model.duration import Moment, Span, span
from pitboss.model.errors import InvalidInput

_RATE = re.compile(r"\s*(\d+)\s*/\s*(.+?)\s*\Z")
_NAMES = {"second": "1s", "sec": "1s", "minute": "1m", "min": "1m", "hour": "1h", "day": "1d"}


class Window(msgspec.Struct, frozen=True, array_like=True):
    """At most `count` starts in every span of `per` microseconds."""

    count: int
    per: Span

    def __post_init__(self) -> None:
        if self.count < 1 or self.per < 1:
            raise InvalidInput(
                f"{self.count} per {self.per} µs is not a rate",
                why="a window needs at least one start and some time",
                fix='write it like "20/min"; to stop a queue altogether, pause it',
            )


def rate(text: str) -> tuple[Window, ...]:
    """Windows of text such as "20/min", "50/h" or "2/s, 100/10m"."""
    return tuple(_window(part) for part in text.split(","))


def allowed(windows: Iterable[Window], starts: Sequence[Moment], now: Moment) -> int | None:
    """How many may start now, from the past starts in rising order; None is without limit."""
    rooms = [window.count - _newer_than(starts, now - window.per) for window in windows]
    return max(0, min(rooms)) if rooms else None


def opens_at(windows: Iterable[Window], starts: Sequence[Moment]) -> Moment:
    """The moment from which at least one more may start."""
    return max(
        (starts[-window.count] + window.per for window in windows if len(starts) >= window.count),
        default=0,
    )


def with_start(windows: Iterable[Window], starts: Iterable[Moment], now: Moment) -> list[Moment]:
    """The starts to remember after one more: only those that still count in some window."""
    oldest = now - horizon(windows)
    return [*(start for start in starts if start > oldest), now]


def horizon(windows: Iterable[Window]) -> Span:
    """How far back starts must be remembered."""
    return max((window.per for window in windows), default=0)


def _newer_than(starts: Sequence[Moment], moment: Moment) -> int:
    count = 0
    for start in reversed(starts):
        if start <= moment:
            break
        count += 1
    return count


def _window(text: str) -> Window:
    match = _RATE.match(text)
    if not match:
        raise InvalidInput(
            f"{text!r:.60} is not a rate",
            why="a rate is a number of starts per time",
            fix='write it like "20/min", "50/h" or "100/10m"; several are separated by commas',
        )
    unit = _NAMES.get(match[2], match[2])
    return Window(int(match[1]), span(unit if unit[0].isdigit() else f"1{unit}", what="rate's time"))
