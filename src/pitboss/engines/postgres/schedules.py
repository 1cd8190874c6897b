"""Schedules: each is one row with its next tick as a column, and all else as JSON. `model.schedule` has the rules.

Lock order: the leader's row, existing queues, schedules by name, then what a put locks.
"""

from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.postgres import leader
from pitboss.engines.postgres.put import put
from pitboss.engines.postgres.rows import flags, names, numbers, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements
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
    redeclared,
    refuse_declared,
)
from pitboss.model.task import Placed

decoded = msgspec.json.Decoder(Schedule).decode
_encode = msgspec.json.Encoder().encode


def moments(sql: Statements, now: Moment | None, wall: Moment | None) -> Script[tuple[Moment, Moment]]:
    """The store's clock and the wall clock: those that were handed in, or else the server's."""
    if now is not None and wall is not None:
        return now, wall
    ((steady, shown),) = yield sql.ask("server_moments", now, wall=wall)
    return steady, shown


def writing(sql: Statements, schedules: Iterable[Schedule]) -> Ask:
    """Write these, in one statement. Those that exist are locked."""
    written = sorted(schedules, key=lambda one: one.name)
    return sql.ask(
        "schedule_write",
        names=texts([one.name for one in written]),
        next_ats=numbers([one.next_at for one in written]),
        versions=numbers([one.version for one in written]),
        paused=flags(one.paused for one in written),
        apps=texts([one.app for one in written]),
        bodies=texts([_encode(one).decode() for one in written]),
    )


def add(sql: Statements, spec: ScheduleSpec, now: Moment | None, wall: Moment | None) -> Script[Schedule]:
    """Add a schedule at run time, or define it anew."""
    yield sql.ask("declare_lock").unheard()
    steady, shown = yield from moments(sql, now, wall)
    known = yield from _locked_one(sql, spec.name, steady)
    refuse_declared(known)
    schedule = added(spec, None, shown, steady) if known is None else redeclared(known, spec, None, shown, steady)
    if schedule is not known:
        yield writing(sql, [schedule]).unheard()
    return schedule


def change(
    sql: Statements, name: str, wanted: ScheduleChange | None, now: Moment | None, wall: Moment | None
) -> Script[Schedule | None]:
    """Do what an operator wants; None removes it."""
    steady, shown = yield from moments(sql, now, wall)
    schedule = yield from _locked_one(sql, name, steady)
    if schedule is None:
        return None
    if wanted is None:
        refuse_declared(schedule)
        yield sql.ask("schedule_remove", names=names([name])).unheard()
        return schedule
    after = changed(schedule, wanted, shown, steady)
    if after is not schedule:
        yield writing(sql, [after]).unheard()
    return after


def due(sql: Statements, limit: int, wall: Moment | None) -> Script[DueSchedules]:
    rows = yield sql.ask("schedule_due", wall=wall, limit=limit)
    found = [decoded(body) for _, body in rows[:limit] if body is not None]
    following = rows[len(found)][0] if len(rows) > len(found) else None
    return DueSchedules(found, following)


def fire(
    sql: Statements, firings: Sequence[Firing], term: int, now: Moment | None, *, ring: bool
) -> Script[list[bool]]:
    """Put the tasks, and advance the schedules that are as the firings say."""
    leads: list[Row] = []
    yield leader.locking_term(sql, now).into(leads)
    rows = yield sql.ask("schedule_lock", now, names=names(one.name for one in firings))
    leader.check(leads, term)
    answers = [False] * len(firings)
    schedules = {schedule.name: schedule for schedule in (decoded(body) for _, body in rows)}
    left = list(range(len(firings))) if rows else []
    while left:
        wave, left = _wave(firings, left)
        ready = [i for i in wave if _fits(schedules.get(firings[i].name), firings[i])]
        for i in ready:
            answers[i] = True
        after = yield from _put(sql, [(schedules[firings[i].name], firings[i]) for i in ready], rows[0][0], ring=ring)
        schedules |= {schedule.name: schedule for schedule in after}
    return answers


def _put(
    sql: Statements, pairs: Sequence[tuple[Schedule, Firing]], now: Moment, *, ring: bool
) -> Script[list[Schedule]]:
    """The schedules after their firings."""
    tasks = [task for _, one in pairs for task in one.tasks]
    # They may overfill a queue.
    placed = iter((yield from put(sql, tasks, now, ring=ring)) if tasks else list[Placed]())
    after = [fired(schedule, one, [next(placed) for _ in one.tasks], now) for schedule, one in pairs]
    if after:
        yield writing(sql, after).unheard()
    return after


def _wave(firings: Sequence[Firing], left: list[int]) -> tuple[list[int], list[int]]:
    """Which firings come now, each schedule once, and which later."""
    seen: set[str] = set()
    wave: list[int] = []
    later: list[int] = []
    for i in left:
        (later if firings[i].name in seen else wave).append(i)
        seen.add(firings[i].name)
    return wave, later


def _fits(schedule: Schedule | None, firing: Firing) -> bool:
    return schedule is not None and schedule.version == firing.version and not schedule.paused


def _locked_one(sql: Statements, name: str, now: Moment) -> Script[Schedule | None]:
    rows = yield sql.ask("schedule_lock", now, names=names([name]))
    return decoded(rows[0][1]) if rows else None
