"""Cron schedules: their text, their ticks in a time zone, and their reading in plain words.

A schedule has five fields (minute, hour, day of month, month, day of week) or six (seconds first), or is an alias such
as "@daily". Fields take `*`, values, ranges, lists and steps; months and days of the week also take names. A day of
month may be `L` (the last) or `LW` (the last from Monday to Friday), a day of week `5L` (the last Friday of the month)
or `1#2` (the second Monday). If both day fields are restricted, one match is enough, unless one of them has a `*`
(as in `*/2`): then both must match.

When a zone's clock changes:

- A schedule at fixed times, with no `*` in second, minute and hour, runs once for each of its times. Times that the
  clock skips run as one tick at the moment of the jump. Times that the clock shows twice run the first time only.
- Any other schedule follows the clock: it ticks whenever the clock shows a matching time. A skipped time does not tick,
  a repeated time ticks twice. So `*/5 * * * *` ticks every five minutes through the change, but `*/5 2 * * *` does not
  tick on a day that has no 02:00 to 03:00, and ticks for two hours on a day that has it twice.

Debian's cron does the same for changes of less than three hours; here the size does not matter.

cronsim finds the matching times on a clock that never changes, and this module maps them to the zone. In a zone,
cronsim itself loses ticks where the clock moves by half an hour, ticks at a midnight that was skipped, returns a past
tick when asked in a repeated hour, and treats six fields unlike five.
"""

import difflib
import re
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from pitboss.model.cron_fields import Fields, bad_cron, fields, starred
from pitboss.model.cron_words import needs_zone, words
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput

_OFFSET = re.compile(r"(?:Etc/)?(?:UTC|GMT|Z)?\s*[+-]\s*\d[\d:]*", re.IGNORECASE)
_NOT_PLACES = {"localtime", "Factory"}  # whatever this host is set to, and the unset zone
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FACE = _EPOCH.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
# All clocks of the world are within 26 hours of each other, and since 1970 none has changed twice within six days.
_FAR: Span = 2 * 86_400 * SECOND


class _Cron(NamedTuple):
    fields: Fields
    text: str
    fixed: bool
    sim: CronSim


def checked_cron(text: str) -> str:
    """The schedule in one spelling: no aliases, no names, terms sorted, seconds only if they are not 0."""
    return _parsed(text).text


def checked_zone(name: str) -> str:
    """The name of a time zone, such as "Europe/Prague"; refuses unknown names and fixed offsets."""
    if name in _zones():
        return name
    if _OFFSET.fullmatch(name[:50].strip()):
        why = "an offset does not follow daylight saving time, and Etc/GMT+5 is five hours behind UTC, not ahead"
        raise InvalidInput(f"{name!r:.60} is not a time zone", why=why, fix='name a place, such as "Europe/Prague"')
    near = {zone.lower(): zone for zone in _zones()}
    found = [near[match] for match in difflib.get_close_matches(name[:50].lower(), near, n=3, cutoff=0.7)]
    raise InvalidInput(
        f"{name!r:.60} is not a time zone",
        why="the IANA time zone database does not have it",
        fix=f"did you mean {' or '.join(found)}?" if found else 'write it like "Europe/Prague", or "UTC"',
    )


def next_tick(cron: str, zone: str, after: Moment) -> Moment | None:
    """The first tick strictly after that moment; None: there is none before the year 10000."""
    parsed, place = _parsed(cron), _zone(zone)
    following = _next_fixed if parsed.fixed else _next_shown
    try:
        return following(parsed, place, max(after, -1))
    except (OverflowError, ValueError):  # the calendar ends
        return None


def ticks(cron: str, zone: str, after: Moment, until: Moment) -> Iterator[Moment]:
    """Every tick after the first moment, up to and including the second."""
    tick = next_tick(cron, zone, after)
    while tick is not None and tick <= until:
        yield tick
        tick = next_tick(cron, zone, tick)


def spoken(cron: str, zone: str = "UTC") -> str:
    """In words, such as "every 15 minutes" or "at 06:30 on Monday to Friday (Europe/Prague)"."""
    read, place = _parsed(cron).fields, checked_zone(zone)
    return f"{words(read)} ({place})" if needs_zone(read) else words(read)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _Cron:
    read = fields(text)
    try:
        # A tick is at most 40 years away (29 February on a Sunday), and cronsim gives up after 50.
        sim = CronSim(read.text, _FACE)
        next(copy(sim))
    except (CronSimError, StopIteration):
        fix = "check day of month, month and day of week together: there is no 30 February"
        raise bad_cron(text, "no date matches it", fix) from None
    return _Cron(read, read.text, not any(starred(terms) for terms in read[:3]), sim)


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(name for name in available_timezones() - _NOT_PLACES if not _OFFSET.fullmatch(name))


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(checked_zone(name))


# A reading is what a clock shows, counted like a moment, as if the clock showed UTC.


def _next_fixed(cron: _Cron, zone: ZoneInfo, after: Moment) -> Moment | None:
    reading = _next_reading(cron, _latest_reading(zone, after))
    return None if reading is None else _first_shown(zone, reading)


def _next_shown(cron: _Cron, zone: ZoneInfo, after: Moment) -> Moment | None:
    offset = _offset(zone, after)
    reading = _next_reading(cron, after + offset)
    while reading is not None:
        found = reading - offset
        near = min(found, after + _FAR)
        if _offset(zone, near) != offset:
            after = _change(zone, after, near)
        elif near == found:
            return found
        else:
            # Changes on the way do not matter: no clock shows this reading so long before `found`.
            after = max(near, found - _FAR)
        offset = _offset(zone, after)
        reading = _next_reading(cron, after + offset - 1)
    return None


def _next_reading(cron: _Cron, after: int) -> int | None:
    sim = copy(cron.sim)  # parsing again would take longer than the search
    sim.dt = (_FACE + timedelta(microseconds=after)).replace(microsecond=0)
    found = next(sim, None)
    return None if found is None else (found - _FACE) // _MICROSECOND


def _latest_reading(zone: ZoneInfo, moment: Moment) -> int:
    """The latest time that the clock has shown until then: in a repeated hour, the end of that hour."""
    local = _local(zone, moment)
    if not local.fold:
        return moment + _shift(local)
    before = _shift(local.replace(fold=0))
    return _change(zone, moment - (before - _shift(local)), moment) + before - 1


def _first_shown(zone: ZoneInfo, reading: int) -> Moment:
    """When the clock first shows that time, or jumps over it."""
    local = (_FACE + timedelta(microseconds=reading)).replace(tzinfo=zone)
    before, after = _shift(local), _shift(local.replace(fold=1))
    return _change(zone, reading - after, reading - before) if after > before else reading - before


def _change(zone: ZoneInfo, low: Moment, high: Moment) -> Moment:
    """The one moment after `low` and not after `high` at which the offset changes."""
    offset = _offset(zone, low)
    first, last = low // SECOND, high // SECOND
    while last - first > 1:
        middle = (first + last) // 2
        if _offset(zone, middle * SECOND) == offset:
            first = middle
        else:
            last = middle
    return last * SECOND


def _offset(zone: ZoneInfo, moment: Moment) -> Span:
    return _shift(_local(zone, moment))


def _local(zone: ZoneInfo, moment: Moment) -> datetime:
    return (_EPOCH + timedelta(microseconds=moment)).astimezone(zone)


def _shift(local: datetime) -> Span:
    return (local.utcoffset() or timedelta()) // _MICROSECOND
