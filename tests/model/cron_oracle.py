"""The ticks of a cron schedule found by walking through time, step by step, with no part of the code under test.

A schedule that follows the clock ticks at every step at which the clock shows a matching time. A schedule at fixed
times follows a clock that never goes back: at each step it makes up for all times that this clock has passed since
the step before, with one tick.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60, 3_600, 86_400
FOLLOW_THE_CLOCK = (
    "* * * * *", "*/15 * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "0 */2 * * *", "0 */3 * * *",
    "15 */4 * * *", "*/30 2 * * *", "* 3 * * *", "* 0 * * 0", "*/10 1-3 * * *", "* 23 * * 6", "59 * * * 0",
    "*/45 */5 * * *", "5,*/20 * 1-15 * 0",
)  # fmt: skip
AT_FIXED_TIMES = (
    "0 0 * * *", "30 0 * * *", "0 1 * * *", "30 1 * * *", "0 2 * * *", "30 2 * * *", "59 2 * * *", "0 3 * * *",
    "0-59 2 * * *", "0,15,30,45 0-3 * * *", "30 23 * * *", "0 0 * * 0", "30 0,1,2,3,4 * * SUN", "0 0-23 * * *",
    "45 1 * * 0#1", "15 2 * * 0L", "0 2 L,8-14 * 5-7",
)  # fmt: skip
BY_SECONDS = (
    "* * * * * *", "*/10 * * * * *", "30 59 * * * *", "0 30 2 * * *", "15,45 0,30 0-3 * * *", "*/7 */9 1-2 * * *",
    "30 0 0 * * *",
)  # fmt: skip
SHAPES = FOLLOW_THE_CLOCK + AT_FIXED_TIMES + BY_SECONDS
_NAMES = {name: n for n, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_NAMES |= {
    name: n
    for n, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), start=1
    )
}
_BOUNDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


class Schedule(NamedTuple):
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int | str]
    months: frozenset[int]
    weekdays: frozenset[int | str]
    both_days: bool
    fixed: bool

    def matches(self, reading: int) -> bool:
        """A clock that shows this, in seconds as if it were UTC, shows a time of the schedule."""
        day, second = divmod(reading, DAY)
        return (
            second // HOUR in self.hours
            and second // MINUTE % 60 in self.minutes
            and second % 60 in self.seconds
            and day_matches(self, day)
        )


class Window(NamedTuple):
    """A zone's clock from one moment to another, in steps: its offset at the start and after each change."""

    start: int
    end: int
    step: int
    offsets: tuple[tuple[int, int], ...]

    def readings(self) -> Iterator[tuple[int, int]]:
        """Each moment with what the clock shows."""
        ends = [moment for moment, _ in self.offsets[1:]] + [self.end + 1]
        for (begin, offset), end in zip(self.offsets, ends, strict=True):
            for moment in range(begin, end, self.step):
                yield moment, moment + offset


@cache
def schedule(text: str) -> Schedule:
    parts = text.upper().split()
    parts = parts if len(parts) == 6 else ["0", *parts]
    second, minute, hour, day, month, weekday = (
        frozenset(_values(part, *bounds)) for part, bounds in zip(parts, _BOUNDS, strict=True)
    )
    week: frozenset[int | str] = frozenset(value % 7 if isinstance(value, int) else value for value in weekday)
    both = "*" in parts[3] or "*" in parts[5]
    fixed = not any("*" in part for part in parts[:3])
    return Schedule(_ints(second), _ints(minute), _ints(hour), day, _ints(month), week, both, fixed)


@lru_cache(maxsize=8)
def window(zone: ZoneInfo, start: int, end: int, step: int) -> Window:
    offsets: list[tuple[int, int]] = []
    for moment in range(start, end + 1, step):
        offset = _offset(zone, moment)
        if not offsets or offset != offsets[-1][1]:
            offsets.append((moment, offset))
    return Window(start, end, step, tuple(offsets))


@lru_cache(maxsize=100_000)
def expected(text: str, there: Window) -> tuple[int, ...]:
    """The ticks after the window's start until its end, in microseconds. The start must not be in a repeated hour."""
    rule = schedule(text)
    walk = _fixed(rule, there) if rule.fixed else _shown(rule, there)
    return tuple(moment * SECOND for moment in walk if moment > there.start)


def around(zone: ZoneInfo, change: int, text: str) -> Window:
    """The clock around a change: 26 hours each way, or what a schedule with seconds can walk through."""
    if len(text.split()) == 5:
        return window(zone, change - 26 * HOUR, change + 26 * HOUR, MINUTE)
    reach = abs(_offset(zone, change) - _offset(zone, change - 1)) + 5 * MINUTE
    return window(zone, change - reach, change + reach, 1)


def changes(zone: ZoneInfo, first_year: int, last_year: int) -> list[int]:
    """The moments, in seconds, at which the zone's clock changes in these years."""
    start = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    spans = [range(low, low + 6 * HOUR + 1) for low in range(start, end, 6 * HOUR)]
    return [
        next(moment for moment in span if _offset(zone, moment) != _offset(zone, span[0]))
        for span in spans
        if _offset(zone, span[0]) != _offset(zone, span[-1])
    ]


def _shown(rule: Schedule, there: Window) -> Iterator[int]:
    return (moment for moment, reading in there.readings() if rule.matches(reading))


def _fixed(rule: Schedule, there: Window) -> Iterator[int]:
    latest: int | None = None
    for moment, reading in there.readings():
        if latest is not None and any(map(rule.matches, range(latest + there.step, reading + 1, there.step))):
            yield moment
        latest = reading if latest is None else max(latest, reading)


@lru_cache(maxsize=100_000)
def day_matches(rule: Schedule, number: int) -> bool:
    """That many days after 1 January 1970."""
    day = date(1970, 1, 1) + timedelta(days=number)
    if day.month not in rule.months:
        return False
    by_month = day.day in rule.days or any(day == special for special in _specials(rule.days, day))
    weekday, nth = day.isoweekday() % 7, (day.day + 6) // 7
    names = {weekday, f"{weekday}#{nth}"} | ({f"{weekday}L"} if (day + timedelta(days=7)).month != day.month else set())
    by_week = bool(names & rule.weekdays)
    return (by_month and by_week) if rule.both_days else (by_month or by_week)


def _specials(days: Iterable[int | str], near: date) -> Iterator[date]:
    last = (near.replace(day=1) + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    if "L" in days:
        yield last
    if "LW" in days:
        yield last - timedelta(days=max(0, last.isoweekday() - 5))


def _values(text: str, low: int, high: int) -> Iterator[int | str]:
    for part in text.split(","):
        body, _, step = part.partition("/")
        if body in ("L", "LW"):
            yield body
        elif body.endswith("L") and body != "JUL":
            yield f"{_number(body[:-1]) % 7}L"
        elif "#" in body:
            day, _, nth = body.partition("#")
            yield f"{_number(day) % 7}#{nth}"
        else:
            first, _, last = body.partition("-")
            begin = low if first == "*" else _number(first)
            end = _number(last) if last else high if first == "*" or step else begin
            yield from range(begin, end + 1, int(step or 1))


def _number(text: str) -> int:
    return _NAMES[text] if text in _NAMES else int(text)


def _ints(values: Iterable[int | str]) -> frozenset[int]:
    return frozenset(value for value in values if isinstance(value, int))


def _offset(zone: ZoneInfo, moment: int) -> int:
    shift = datetime.fromtimestamp(moment, UTC).astimezone(zone).utcoffset()
    assert shift is not None
    return int(shift.total_seconds())
