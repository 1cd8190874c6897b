"""Schedules. Each is one row: the columns that statements look for, and the whole as JSON."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.put import put_follow_ups
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.registry import check_term
from pitboss.model.duration import Moment
from pitboss.model.schedule import (
    DueSchedules,
    Firing,
    Schedule,
    ScheduleChange,
    ScheduleSpec,
    added,
    changed,
    fired,
    present,
    redeclared,
    refuse_declared,
    withdrawn,
)

_schedule = msgspec.json.Decoder(Schedule)
_read = msgspec.json.Decoder(list[tuple[int, Schedule]])
_versions = msgspec.json.Decoder(list[tuple[int, str, int]])
# As many rows as one statement writes.
_AT_ONCE = 256


def listed(reader: Reader, names: Sequence[str] | None, limit: int, after: str | None) -> list[Schedule]:
    """As the contract says."""
    if names is not None:
        found = _schedules(reader.rows("schedule_list_named", json_list(names)))
        return sorted((one for one in found if after is None or one.name > after), key=lambda one: one.name)[:limit]
    named = ("schedule_list", limit) if after is None else ("schedule_list_after", limit, after)
    return _schedules(reader.rows(*named))


def due(reader: Reader, limit: int, wall: Moment) -> DueSchedules:
    """As the contract says."""
    found = reader.rows("schedule_due", wall, limit + 1)
    if len(found) > limit:
        return DueSchedules(_schedules(row[1:] for row in found[:limit]), found[limit][0])
    (following,) = reader.rows("schedule_next", wall)
    return DueSchedules(_schedules(row[1:] for row in found), following[0])


def put_schedule(act: Act, spec: ScheduleSpec, wall: Moment) -> Schedule:
    """As the contract says."""
    known = present(_stored(act, spec.name))
    refuse_declared(known)
    schedule = _defined(known, spec, None, wall, act.now)
    _write(act, [schedule])
    return schedule


def change(act: Act, name: str, wanted: ScheduleChange | None, wall: Moment) -> Schedule | None:
    """As the contract says."""
    schedule = present(_stored(act, name))
    if schedule is None:
        return None
    if wanted is None:
        refuse_declared(schedule)
        act.run("schedule_remove", json_list([name]))
        return schedule
    schedule = changed(schedule, wanted, wall, act.now)
    _write(act, [schedule])
    return schedule


def declare(act: Act, app: str, specs: Sequence[ScheduleSpec], wall: Moment) -> None:
    """Add or redeclare the schedules of an app, and withdraw those that it no longer declares."""
    rows: Iterable[Any] = act.rows("schedule_list_of", app)
    kept = {spec.name for spec in specs}
    _write(act, [withdrawn(one, act.now) for one in _schedules(rows) if one.name not in kept])
    read = act.decoded("schedule_read", _read, json_list(spec.name for spec in specs)) if specs else []
    known = {one.name: one for _, one in read}
    for spec in specs:
        known[spec.name] = _defined(known.get(spec.name), spec, app, wall, act.now)
    _write(act, list(known.values()))


def fire(act: Act, firings: Sequence[Firing], term: int) -> list[bool]:
    """As the contract says. Those of one name take effect one after the other."""
    check_term(act, term)
    answers: list[bool] = []
    while len(answers) < len(firings):
        start = len(answers)
        answers += _fire(act, _distinct(firings[start : start + _AT_ONCE]))
    return answers


def _distinct(firings: Sequence[Firing]) -> Sequence[Firing]:
    """The first of them, up to a name that comes again."""
    seen = set[str]()
    for position, one in enumerate(firings):
        if one.name in seen:
            return firings[:position]
        seen.add(one.name)
    return firings


def _fire(act: Act, firings: Sequence[Firing]) -> list[bool]:
    read = act.decoded("schedule_versions", _versions, json_list(one.name for one in firings))
    known = {name: (row, version) for row, name, version in read}
    answers = [_fits(known.get(one.name), one) for one in firings]
    fitting = [one for one, fits in zip(firings, answers, strict=True) if fits]
    placed = iter(put_follow_ups(act, [task for one in fitting for task in one.tasks]))
    rows: list[Row] = []
    for one in fitting:
        after = fired(one, islice(placed, len(one.tasks)), act.now)
        rows.append((known[one.name][0], after.next_at, after.version, _text(after)))
    act.bulk("schedule_advance", rows)
    return answers


def _fits(known: tuple[int, int] | None, firing: Firing) -> bool:
    return known is not None and known[1] == firing.version


def _defined(known: Schedule | None, spec: ScheduleSpec, app: str | None, wall: Moment, now: Moment) -> Schedule:
    return added(spec, app, wall, now) if known is None else redeclared(known, spec, app, wall, now)


def _stored(act: Act, name: str) -> Schedule | None:
    row: Any = act.one("schedule_get", name)
    return None if row is None else _schedule.decode(row[0])


def _write(act: Act, schedules: Sequence[Schedule]) -> None:
    act.bulk(
        "schedule_put",
        [
            (one.name, one.app, one.next_at, int(one.paused), one.version, int(present(one) is None), _text(one))
            for one in schedules
        ],
    )


def _schedules(rows: Iterable[Sequence[Any]]) -> list[Schedule]:
    return [_schedule.decode(row[0]) for row in rows]


def _text(schedule: Schedule) -> str:
    return msgspec.json.encode(schedule).decode()
