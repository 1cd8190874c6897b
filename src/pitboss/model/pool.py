"""A worker pool as declared: the queues that its workers serve, their number, and their limits."""

import re
from enum import StrEnum
from typing import Any

import msgspec

from pitboss.model.duration import SECOND, Span, span, spoken
from pitboss.model.errors import InvalidInput

Range = tuple[Span, Span]
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\Z", re.IGNORECASE)
_UNITS = ("", "K", "M", "G", "T")
_STEP = 1024.0
_ROUGH = 10
SOFT_SHARE = 0.8


class RestartPolicy(StrEnum):
    """Which ends of a worker, other than those that the manager asked for, lead to a new one."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    UNLESS_STOPPED = "unless-stopped"


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One pool. Times are microseconds, sizes bytes; `queues` None is all of them.

    `memory` is the hard limit of one worker with its child processes: beyond it the worker is killed. Beyond
    `memory_soft` it ends its tasks and is replaced. `cpu` is how many cores a worker is expected to use. `log_file` is
    a pattern for the names of the workers' log files (`log_settings`). `only`: this manager runs only the workers with
    these numbers, which count from 0 on, whatever the load; empty: all.
    """

    name: str = "default"
    queues: tuple[str, ...] | None = None
    min_workers: int = 1
    max_workers: int = 1
    concurrency: int = 16
    memory: int | None = None
    memory_soft: int | None = None
    cpu: float | None = None
    restart: RestartPolicy = RestartPolicy.ALWAYS
    restart_delay: Span = 5 * SECOND
    max_restarts: int = 5
    restart_window: Span = 600 * SECOND
    stagger: Range = (0, 0)
    max_tasks_per_worker: int | None = None
    max_age: Span | None = None
    delay: Range = (0, 0)
    unresponsive: Span = 60 * SECOND
    target_wait: Span = 5 * SECOND
    log_file: str | None = None
    env: dict[str, str] = {}
    only: tuple[int, ...] = ()

    @property
    def scales(self) -> bool:
        """Whether the number of workers follows the load."""
        return self.max_workers > self.min_workers and not self.only

    def places(self, size: int) -> tuple[int, ...]:
        """The numbers of the workers that this manager runs if the pool has this size."""
        return tuple(place for place in self.only if place < size) if self.only else tuple(range(size))

    @property
    def soft(self) -> int | None:
        """The memory above which a worker is replaced after its tasks."""
        if self.memory_soft is not None or self.memory is None:
            return self.memory_soft
        return round(self.memory * SOFT_SHARE)


def size(value: Any, *, what: str = "size") -> int:
    """Bytes of a whole number, or of text such as "512MB" or "1.5GiB"; a thousand is 1024 in both."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.match(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise InvalidInput(
            f"{value!r:.60} is not a {what}",
            why="a size is a number of bytes, or a number with a unit",
            fix='write it like "512MB" or "1.5GB"',
        )
    return round(float(match[1]) * _STEP ** _UNITS.index(match[2].upper()))


def spoken_size(value: int) -> str:
    """A size as a person reads it."""
    amount, unit = float(value), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}B" if amount >= _ROUGH or unit == 0 else f"{amount:.1f} {_UNITS[unit]}B"


def span_range(value: Any, *, what: str = "time") -> Range:
    """The least and the most of a time or a range, such as "5s" or "8-20s", or of a pair of times."""
    if isinstance(value, list | tuple) and value:
        low, *_, high = (span(one, what=what) for one in (value[0], value[-1]))
    elif isinstance(value, str) and "-" in value:
        first, _, last = value.partition("-")
        unit = re.search(r"[a-z]+\s*\Z", last)
        # "8-20s" is in seconds on both sides.
        bare = first.strip().replace(".", "", 1).isdigit()
        low = span(first.strip() + unit[0].strip() if bare and unit else _number(first), what=what)
        high = span(_number(last), what=what)
    else:
        low = high = span(_number(value), what=what)
    if low > high:
        raise InvalidInput(
            f"{value!r:.60} is not a range of {what}s", why="it begins after its end", fix='write it like "8-20s"'
        )
    return low, high


def range_text(bounds: Range) -> str:
    """A range of times as a person reads it, and as `span_range` reads it back."""
    low, high = (spoken(one) if one else "0s" for one in bounds)
    return low if low == high else f"{low}-{high}"


def _number(value: Any) -> Any:
    """A number as text, as in the environment, is a number of seconds."""
    text = value.strip() if isinstance(value, str) else value
    return float(text) if isinstance(text, str) and text.replace(".", "", 1).isdigit() else text
