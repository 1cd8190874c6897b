"""Times, ids and keys as people read them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pitboss.model.duration import SECOND, Moment, Span, spoken

_MINUTE = 60 * SECOND
_SHORT = 12
_KEY_WIDTH, _KEY_END = 40, 8


def ago(moment: Moment | None, now: Moment) -> str:
    """How long a moment is past, or how far ahead it is."""
    if moment is None:
        return ""
    distance = now - moment
    if abs(distance) < SECOND:
        return "now"
    return f"{spoken(distance)} ago" if distance > 0 else f"in {spoken(-distance)}"


def age(moment: Moment | None, now: Moment) -> str:
    """As `ago`, for a column that is headed Age."""
    return "" if moment is None else spoken(max(now - moment, SECOND)) if now - moment >= SECOND else "0s"


def took(span: Span | None) -> str:
    """A duration, such as that of a run."""
    if span is None:
        return ""
    if span >= _MINUTE:
        return spoken(span)
    return f"{span / SECOND:.1f}s" if span >= SECOND else f"{span / 1000:.0f}ms"


def local(moment: Moment) -> str:
    """A moment on this machine's clock."""
    return datetime.fromtimestamp(moment / SECOND, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def time_of_day(moment: Moment) -> str:
    return local(moment)[11:19]


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[int], width: int, most: int | None = None) -> str:
    """The newest values as bars, `width` of them at most; `most` is the height of a full one."""
    each = max(1, -(-len(values) // width))
    start = len(values) % each
    sums = [sum(values[place : place + each]) for place in range(start, len(values), each)]
    highest = (most * each if most is not None else max(sums, default=0)) or 1
    return "".join(_BARS[min(len(_BARS) - 1, one * len(_BARS) // (highest + 1))] for one in sums)


def hour_and_minute(moment: Moment) -> str:
    return local(moment)[11:16]


def when(moment: Moment | None, now: Moment) -> str | None:
    """A moment on this machine's clock, and how long ago that is."""
    return None if moment is None else f"{local(moment)} ({ago(moment, now)})"


def short(number: str) -> str:
    """The last characters of an id, which are random: enough to name it."""
    return number[-_SHORT:]


def short_key(key: str) -> str:
    """A partition key for a table: its beginning and its end, which tells long ones apart."""
    return key if len(key) <= _KEY_WIDTH else f"{key[: _KEY_WIDTH - _KEY_END - 1]}…{key[-_KEY_END:]}"
