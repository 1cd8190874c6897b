"""Schedules: when a handler's tasks are put without a caller. Ticks are times of the wall clock.

The leader reads the schedules that are due, `firing` says what to put, and the engine puts it and writes `fired` in one
act. Code owns the definition of a schedule that it declares; the store owns what operators change.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import chain, islice
from typing import Any

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.cron import checked_cron, checked_zone
from pitboss.model.cron import next_tick as next_cron_tick
from pitboss.model.cron import ticks as cron_ticks
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId, derived_id
from pitboss.model.meta import Meta, TickMark, with_meta
from pitboss.model.new_task import TaskOptions, new_task
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed, Unique

# With catchup "none", a tick that is older was missed. Another manager leads within this time.
GRACE: Span = 60 * SECOND
# With catchup "all", how many ticks one act puts; the next look continues.
AT_ONCE = 100
# Runs whose end is not known yet, at most.
_OPEN = 100
# Missed ticks are counted up to this number.
_COUNTED = 100
_LOOK_BACK: tuple[Span, ...] = tuple(seconds * SECOND for seconds in (60, 3600, 86_400, 32 * 86_400, 10_000 * 86_400))
SHORTEST: Span = SECOND


class Overlap(StrEnum):
    """What a tick does while the task of an earlier one is unfinished."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class Catchup(StrEnum):
    """What becomes of ticks that passed while no manager ran."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class ScheduleSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The definition: exactly one of `cron`, `every` and `at`, and what each tick puts."""

    name: str
    handler: str
    cron: str | None = None
    every: Span | None = None
    at: Moment | None = None
    tz: str = "UTC"
    params: Json = "{}"
    queue: str | None = None
    priority: int = 0
    max_attempts: int | None = None
    timeout: Span | None = None
    overlap: Overlap = Overlap.SKIP
    catchup: Catchup = Catchup.LAST
    jitter: Span = 0


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A schedule as stored.

    `declared` is the definition; `app` is the app whose code declares it, None if it was added at run time. `changes`
    are the fields that an operator set above the code's. `next_at` is its next tick by the wall clock (None: no more).
    Intervals count from `anchor`. `open` are ticks and tasks whose end is not known yet; `last_success` is the newest
    tick whose task completed. `version` grows with every change. `withdrawn_at`: the code declares it no more; it is
    kept, unseen, for the case that an earlier version of the code returns.
    """

    declared: ScheduleSpec
    app: str | None = None
    changes: dict[str, Any] = {}
    changed_by: str | None = None
    paused: bool = False
    paused_by: str | None = None
    paused_at: Moment | None = None
    paused_reason: str | None = None
    next_at: Moment | None = None
    anchor: Moment = 0
    version: int = 1
    last_tick: Moment | None = None
    last_task: TaskId | None = None
    last_success: Moment | None = None
    open: tuple[tuple[Moment, TaskId], ...] = ()
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    created_at: Moment = 0
    updated_at: Moment = 0
    withdrawn_at: Moment | None = None

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def spec(self) -> ScheduleSpec:
        """The definition that holds: the declared one with an operator's changes."""
        if not self.changes:
            return self.declared
        timed = {"cron", "every", "at"} & self.changes.keys()
        cleared = dict.fromkeys(("cron", "every", "at")) if timed else {}
        plain: dict[str, Any] = msgspec.to_builtins(self.declared) | cleared | self.changes
        return msgspec.convert(plain, ScheduleSpec)


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator does to a schedule. `changes` are set above the definition; an empty dict withdraws them all.
    `reason` says why it is paused."""

    paused: bool | msgspec.UnsetType = msgspec.UNSET
    changes: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    by: str | None = None
    reason: str | None = None


class DueSchedules(msgspec.Struct, frozen=True):
    """Schedules whose tick has come, the earliest first, and when the next one comes after these."""

    schedules: list[Schedule]
    next_at: Moment | None = None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """What one act does for a schedule, if that is still at the version that was read: put these tasks, and advance."""

    schedule: Schedule
    ticks: tuple[Moment, ...]
    tasks: tuple[NewTask, ...]
    next_at: Moment | None
    missed: int = 0
    last_success: Moment | None = None
    open: tuple[tuple[Moment, TaskId], ...] = ()

    @property
    def name(self) -> str:
        return self.schedule.declared.name

    @property
    def version(self) -> int:
        return self.schedule.version


def checked_spec(spec: ScheduleSpec) -> ScheduleSpec:
    """The definition, if it can be followed."""
    checked_name(spec.name, "schedule")
    if sum(one is not None for one in (spec.cron, spec.every, spec.at)) != 1:
        raise InvalidInput(
            f'the schedule "{spec.name}" does not say when, or says it twice',
            why="a schedule has exactly one of cron=, every= and at=",
            fix='write cron="*/15 * * * *", every="10m", or at=datetime(…, tzinfo=UTC)',
        )
    if spec.every is not None and spec.every < SHORTEST:
        raise InvalidInput(
            f'the schedule "{spec.name}" is too often',
            why="the shortest interval is one second",
            fix='write every="1s" or more, or let one task do the work in a loop',
        )
    if spec.jitter < 0:
        raise InvalidInput(f'the jitter of "{spec.name}" is negative', why="it is a delay", fix='write jitter="30s"')
    zone = checked_zone(spec.tz)
    cron = None if spec.cron is None else checked_cron(spec.cron)
    return msgspec.structs.replace(spec, cron=cron, tz=zone)


def refuse_declared(schedule: Schedule | None) -> None:
    """Code that declares a schedule would bring it back at its next start."""
    if schedule is not None and schedule.app is not None:
        raise InvalidInput(
            f'the schedule "{schedule.name}" is declared by the code of "{schedule.app}"',
            why="it would come back when that app starts again",
            fix=f"pause it (pitboss schedules pause {schedule.name}), change it, or remove it from the code",
        )


def next_tick(spec: ScheduleSpec, after: Moment, anchor: Moment) -> Moment | None:
    """The first tick after this moment of the wall clock."""
    if spec.cron is not None:
        return next_cron_tick(spec.cron, spec.tz, after)
    if spec.every is not None:
        return anchor + ((after - anchor) // spec.every + 1) * spec.every
    return spec.at if spec.at is not None and spec.at > after else None


def first_tick(spec: ScheduleSpec, wall: Moment, anchor: Moment) -> Moment | None:
    """As `next_tick`; a single time that passed less than a minute ago still counts. An older one is over: on a new
    store, or after a change, the jobs of last year must not run."""
    return next_tick(spec, wall - GRACE, anchor) if spec.at is not None else next_tick(spec, wall, anchor)


def added(spec: ScheduleSpec, app: str | None, wall: Moment, now: Moment) -> Schedule:
    """A new schedule."""
    return Schedule(
        declared=spec, app=app, anchor=wall, next_at=first_tick(spec, wall, wall), created_at=now, updated_at=now
    )


def redeclared(schedule: Schedule, spec: ScheduleSpec, app: str | None, wall: Moment, now: Moment) -> Schedule:
    """With another definition; nothing changes if it is the same one. What operators set stays. One that was withdrawn
    goes on with its next tick."""
    if (schedule.declared, schedule.app, schedule.withdrawn_at) == (spec, app, None):
        return schedule
    after = msgspec.structs.replace(schedule, declared=spec, app=app, withdrawn_at=None)
    if schedule.withdrawn_at is not None:
        after = msgspec.structs.replace(after, next_at=next_tick(after.spec, wall, after.anchor))
    return _retimed(schedule, after, wall, now)


def withdrawn(schedule: Schedule, now: Moment) -> Schedule:
    """Its code declares it no more. What operators set, and its history, are kept."""
    return msgspec.structs.replace(
        schedule, next_at=None, withdrawn_at=now, version=schedule.version + 1, updated_at=now
    )


def present(schedule: Schedule | None) -> Schedule | None:
    """The schedule, unless it was withdrawn."""
    return None if schedule is None or schedule.withdrawn_at is not None else schedule


def changed(schedule: Schedule, change: ScheduleChange, wall: Moment, now: Moment) -> Schedule:
    """After what an operator did. A schedule that goes on after a pause waits for its next tick."""
    after = schedule
    if change.changes is not msgspec.UNSET:
        by = change.by if change.changes else None
        after = msgspec.structs.replace(after, changes=change.changes, changed_by=by)
        checked_spec(after.spec)
        after = _retimed(schedule, after, wall, now)
    if change.paused is not msgspec.UNSET and change.paused != after.paused:
        by, at, why = (change.by, now, change.reason or None) if change.paused else (None, None, None)
        next_at = after.next_at
        if not change.paused and after.spec.at is None and next_at is not None:
            next_at = max(next_at, next_tick(after.spec, wall, after.anchor) or next_at)
        after = msgspec.structs.replace(
            after, paused=change.paused, paused_by=by, paused_at=at, paused_reason=why, next_at=next_at
        )
    if after == schedule:
        return schedule
    return msgspec.structs.replace(after, version=schedule.version + 1, updated_at=now)


def _retimed(before: Schedule, after: Schedule, wall: Moment, now: Moment) -> Schedule:
    old, new = before.spec, after.spec
    if (old.cron, old.every, old.at, old.tz) != (new.cron, new.every, new.at, new.tz):
        after = msgspec.structs.replace(after, anchor=wall, next_at=first_tick(new, wall, wall))
    return msgspec.structs.replace(after, version=before.version + 1, updated_at=now)


def firing(
    schedule: Schedule, handler: HandlerInfo | None, wall: Moment, ended: Mapping[TaskId, State | None]
) -> Firing | None:
    """What is due now; None if nothing is. `ended` has the states of its open tasks; None: it is gone."""
    spec, first = schedule.spec, schedule.next_at
    if first is None or first > wall or schedule.paused:
        return None
    if spec.catchup is Catchup.ALL:
        ticks = list(islice(chain([first], _ticks(spec, first, wall, schedule.anchor)), AT_ONCE))
        missed = 0
    else:
        newest = _newest(spec, first, wall, schedule.anchor)
        passed = sum(1 for _ in islice(chain([first], _ticks(spec, first, newest - 1, schedule.anchor)), _COUNTED))
        passed = 0 if newest == first else passed
        late = spec.catchup is Catchup.NONE and newest < wall - GRACE
        ticks, missed = ([] if late else [newest]), passed + late
    last = ticks[-1] if ticks else first
    after = last if spec.catchup is Catchup.ALL else wall
    success, still_open = _ends(schedule, ended)
    return Firing(
        schedule=schedule,
        ticks=tuple(ticks),
        tasks=tuple(tick_task(spec, handler, tick, success) for tick in ticks),
        next_at=next_tick(spec, after, schedule.anchor),
        missed=missed,
        last_success=success,
        open=still_open,
    )


def noted(schedule: Schedule, ended: Mapping[TaskId, State | None]) -> Firing | None:
    """A firing without ticks, which only notes the ends of open runs; None if none has ended."""
    success, still_open = _ends(schedule, ended)
    if still_open == schedule.open:
        return None
    return Firing(
        schedule=schedule,
        ticks=(),
        tasks=(),
        next_at=schedule.next_at,
        last_success=success,
        open=still_open,
    )


def fired(firing: Firing, placed: Iterable[Placed], now: Moment) -> Schedule:
    """The schedule after the act. A task that met an unfinished one of an earlier tick was skipped."""
    schedule = firing.schedule
    answers = list(zip(firing.ticks, placed, strict=True))
    put = [(tick, one.id) for tick, one in answers if one.created]
    return msgspec.structs.replace(
        schedule,
        next_at=firing.next_at,
        last_tick=put[-1][0] if put else schedule.last_tick,
        last_task=put[-1][1] if put else schedule.last_task,
        last_success=firing.last_success,
        open=(*firing.open, *put)[-_OPEN:],
        fired=schedule.fired + len(put),
        skipped=schedule.skipped + len(answers) - len(put),
        missed=schedule.missed + firing.missed,
        version=schedule.version + 1,
        updated_at=now,
    )


def tick_task(
    spec: ScheduleSpec,
    handler: HandlerInfo | None,
    tick: Moment,
    last_success: Moment | None,
    task_id: TaskId | None = None,
) -> NewTask:
    """The task of a tick. Its id follows from schedule and tick, unless one is given (a run at once)."""
    known = handler or HandlerInfo(name=spec.handler)
    options = TaskOptions(priority=spec.priority, max_attempts=spec.max_attempts, timeout=spec.timeout)
    new = new_task(known, spec.params, task_id or tick_id(spec.name, tick), options, queue=spec.queue)
    key = f"schedule/{spec.name}"
    return msgspec.structs.replace(
        new,
        run_at=tick + _jitter(spec, tick) if spec.jitter and task_id is None else None,
        unique=Unique(key) if spec.overlap is Overlap.SKIP else None,
        order_key=key if spec.overlap is Overlap.QUEUE else None,
        meta=with_meta(None, Meta(tick=TickMark(spec.name, tick, last_success))),
    )


def _jitter(spec: ScheduleSpec, tick: Moment) -> Span:
    """The same for one tick wherever it is computed."""
    return int(derived_id(0, "jitter", spec.name, tick)[24:], 16) % spec.jitter


def _ticks(spec: ScheduleSpec, after: Moment, until: Moment, anchor: Moment) -> Iterable[Moment]:
    if spec.cron is not None:
        yield from cron_ticks(spec.cron, spec.tz, after, until)
        return
    tick = next_tick(spec, after, anchor)
    while tick is not None and tick <= until:
        yield tick
        tick = next_tick(spec, tick, anchor)


def _newest(spec: ScheduleSpec, first: Moment, wall: Moment, anchor: Moment) -> Moment:
    """The newest tick until now. After years of standstill, this looks at the last minute, hour, day … only."""
    for back in _LOOK_BACK:
        found = deque(_ticks(spec, max(first, wall - back), wall, anchor), maxlen=1)
        if found or first >= wall - back:
            return found.pop() if found else first
    return first


def past_ticks(schedule: Schedule, number: int) -> list[Moment]:
    """Its last ticks up to the newest one that put a task, as its definition has them now; the newest first."""
    last, found = schedule.last_tick, deque[Moment](maxlen=number)
    if last is None:
        return []
    for back in _LOOK_BACK:
        found.clear()
        found.extend(_ticks(schedule.spec, last - back, last, schedule.anchor))
        if len(found) >= number or last - back <= schedule.created_at:
            break
    return list(reversed(found))


def tick_id(name: str, tick: Moment) -> TaskId:
    """The id of the task that a tick puts."""
    return derived_id(tick, "schedule", name, tick)


def _ends(
    schedule: Schedule, ended: Mapping[TaskId, State | None]
) -> tuple[Moment | None, tuple[tuple[Moment, TaskId], ...]]:
    """The newest tick that succeeded, and the runs that go on."""
    states = [(tick, task, ended.get(task)) for tick, task in schedule.open]
    done = [tick for tick, _, state in states if state is State.COMPLETED]
    going = tuple((tick, task) for tick, task, state in states if state is not None and not state.finished)
    success = max([*done, *([schedule.last_success] if schedule.last_success is not None else [])], default=None)
    return success, going


def known_success(schedule: Schedule, ended: Mapping[TaskId, State | None]) -> Moment | None:
    """The newest tick that succeeded, with what is known of its open tasks now."""
    return _ends(schedule, ended)[0]
