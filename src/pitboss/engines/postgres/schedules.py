"""Schedules: each is one row with its next tick as a column, and all else as JSON. `model.schedule` has the rules.

Lock order: the leader's row, existing queues, schedules by name, then what a put locks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

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
    present,
    redeclared,
    refuse_declared,
)
from pitboss.model.states import State
from pitboss.model.task import Placed

decoded = msgspec.json.Decoder(Schedule).decode
_encode = msgspec.json.Encoder().encode
_STEP = 100


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
        withdrawn=flags(present(one) is None for one in written),
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


class _Locked(NamedTuple):
    """A schedule that is locked, as its row says."""

    place: str
    name: str
    version: int
    paused: bool

    def fits(self, firing: Firing) -> bool:
        return self.version == firing.version and not self.paused


def fire(
    sql: Statements, firings: Sequence[Firing], term: int, now: Moment | None, *, ring: bool, quickly: bool
) -> Script[list[bool]]:
    """Put the tasks, and advance the schedules that are as the firings say.

    `quickly`: an error if another call puts one of the tasks meanwhile.
    """
    answers = [False] * len(firings)
    left = list(range(len(firings)))
    while True:
        # Each schedule once: the row of one that has fired is at another place.
        wave = list({firings[i].name: i for i in reversed(left)}.values())
        leads: list[Row] = []
        yield leader.locking_term(sql, now).into(leads)
        rows = yield sql.ask("schedule_lock_versions", now, names=names(firings[i].name for i in wave))
        leader.check(leads, term)
        locked = {row[2]: _Locked(*row[1:]) for row in rows}
        ready = [i for i in sorted(wave) if (one := locked.get(firings[i].name)) and one.fits(firings[i])]
        for i in ready:
            answers[i] = True
        if ready:
            pairs = [(locked[firings[i].name], firings[i]) for i in ready]
            yield from _advance(sql, pairs, rows[0][0], ring=ring, quickly=quickly)
        left = sorted(set(left) - set(wave))
        if not left:
            return answers


def _advance(
    sql: Statements, pairs: Sequence[tuple[_Locked, Firing]], now: Moment, *, ring: bool, quickly: bool
) -> Script[None]:
    tasks = [task for _, one in pairs for task in one.tasks]
    after: list[Schedule] = []
    bodies: list[str] = []
    expecting = _expect(pairs, now, after, bodies)
    # They may overfill a queue.
    put_now = put(sql, tasks, now, ring=ring, quickly=quickly, meanwhile=expecting)
    placed = iter((yield from put_now) if tasks else list[Placed]())
    for _ in expecting:
        pass
    for i, (_, one) in enumerate(pairs):
        met = [next(placed) for _ in one.tasks]
        if not all(answer.created for answer in met):
            after[i] = fired(one, met, now)
            bodies[i] = _encode(after[i]).decode()
    yield sql.ask(
        "schedule_advance",
        places=texts([locked.place for locked, _ in pairs]),
        next_ats=numbers([one.next_at for one in after]),
        versions=numbers([one.version for one in after]),
        bodies=texts(bodies),
    ).unheard()


def _expect(
    pairs: Sequence[tuple[_Locked, Firing]], now: Moment, after: list[Schedule], bodies: list[str]
) -> Iterator[None]:
    """The schedules if all tasks are created, which takes about as long as the server takes to create them."""
    for _, one in pairs:
        created = [Placed(task.id, True, State.PENDING) for task in one.tasks]
        after.append(fired(one, created, now))
        bodies.append(_encode(after[-1]).decode())
        if len(after) % _STEP == 0:
            yield


def _locked_one(sql: Statements, name: str, now: Moment) -> Script[Schedule | None]:
    rows = yield sql.ask("schedule_lock", now, names=names([name]))
    return present(decoded(rows[0][1])) if rows else None
