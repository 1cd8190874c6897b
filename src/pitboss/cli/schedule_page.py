"""Schedules as a table and as a page."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pitboss.cli.formatting import ago, local, when
from pitboss.cli.screen import Column, Screen
from pitboss.model.canonical import to_json
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.schedule import Schedule
from pitboss.operate.schedule_documents import schedule_document
from pitboss.operate.schedules import ScheduleReading, Tick

_COLUMNS = (
    Column("Schedule", fills=True),
    Column("State"),
    Column("When", fills=True),
    Column("Next"),
    Column("Last run", drop=2),
    Column("Last success", drop=4),
    Column("Task", drop=3),
    Column("From", drop=5),
    Column("Paused by", drop=6),
    Column("Changed by", drop=1),
)
_TICKS = (Column("At"), Column("In", right=True), Column("Schedule"))
ADDED = "added at run time"


def tick_text(tick: Moment, wall: Moment) -> str:
    """ "2030-01-01 03:00 (in 8h12m)", on this machine's clock; seconds only if there are some."""
    shown = datetime.fromtimestamp(tick / SECOND, UTC).astimezone()
    exact = f"{shown:%Y-%m-%d %H:%M:%S}" if shown.second else f"{shown:%Y-%m-%d %H:%M}"
    return f"{exact} ({ago(tick, wall)})"


def draw_schedules(screen: Screen, readings: Sequence[ScheduleReading], wall: Moment) -> None:
    if not readings:
        screen.note("there are no schedules; declare one with @app.scheduled_task, or pitboss schedules add")
        return
    screen.table(_COLUMNS, [_row(one, wall) for one in readings])
    late = sum(one.overdue for one in readings)
    if late:
        screen.note(f"{late:,} overdue: a manager must run and lead; pitboss doctor says more")


def draw_schedule(screen: Screen, reading: ScheduleReading, ticks: Sequence[Tick], now: Moment, wall: Moment) -> None:
    """Moments of ticks are by the wall clock, those of changes by the store's."""
    one, spec = reading.schedule, reading.schedule.spec
    screen.fields([("schedule", one.name), ("state", reading.status), ("paused", _paused(one, now))])
    screen.fields([("when", reading.when), ("cron", spec.cron), ("zone", spec.tz if spec.cron else None)])
    screen.fields([("task", spec.handler), ("params", spec.params if spec.params != "{}" else None)])
    screen.fields(
        [
            ("queue", spec.queue),
            ("priority", str(spec.priority) if spec.priority else None),
            ("timeout", None if spec.timeout is None else spoken(spec.timeout)),
            ("attempts", None if spec.max_attempts is None else f"at most {spec.max_attempts}"),
            ("overlap", spec.overlap),
            ("catchup", spec.catchup),
            ("jitter", f"up to {spoken(spec.jitter)}" if spec.jitter else None),
        ]
    )
    screen.fields([("last run", _last(reading, wall)), ("last task", one.last_task)])
    screen.fields([("last success", when(one.last_success, wall) or ("never" if one.fired else None))])
    screen.fields([("ticks", f"{one.fired:,} fired, {one.skipped:,} skipped, {one.missed:,} missed")])
    screen.fields([("from", f"the code of {one.app}" if one.app else ADDED), ("changed", _changed(reading))])
    screen.fields([("created", when(one.created_at, now))])
    screen.heading("Next ticks")
    if ticks:
        for tick in ticks:
            screen.line(when(tick.at, wall) or "")
    else:
        screen.line("none: it does not tick any more")


def draw_ticks(screen: Screen, ticks: Sequence[Tick], wall: Moment, words: str, *, named: bool) -> None:
    if words:
        screen.note(words)
    if not ticks:
        screen.note("there are no ticks to come")
        return
    columns = _TICKS if named else _TICKS[:2]
    rows = [[local(tick.at), ago(tick.at, wall), tick.schedule][: len(columns)] for tick in ticks]
    screen.table(columns, rows)


def _row(reading: ScheduleReading, wall: Moment) -> list[str]:
    one = reading.schedule
    return [
        one.name,
        reading.status,
        reading.when,
        "" if one.next_at is None or one.paused else tick_text(one.next_at, wall),
        _last(reading, wall) or "",
        ago(one.last_success, wall),
        one.spec.handler,
        one.app or ADDED,
        (one.paused_by or "an operator") if one.paused else "",
        (one.changed_by or "an operator") if one.changes else "",
    ]


def _paused(one: Schedule, now: Moment) -> str | None:
    if not one.paused:
        return None
    by = f"by {one.paused_by}, " if one.paused_by else ""
    why = f": {one.paused_reason}" if one.paused_reason else ""
    return f"{by}{ago(one.paused_at, now)}{why}"


def _last(reading: ScheduleReading, wall: Moment) -> str | None:
    one = reading.schedule
    if one.last_tick is None:
        return None
    return f"{ago(one.last_tick, wall)}: {reading.last_state or 'its task was deleted'}"


def _changed(reading: ScheduleReading) -> str | None:
    """Each field that an operator set, with what is declared."""
    document = schedule_document(reading)
    changed = [
        f"{name} {_value(document[name])} (declared: {_value(declared)})"
        for name, declared in document["changed"].items()
    ]
    if not changed:
        return None
    by = f"by {reading.schedule.changed_by}: " if reading.schedule.changed_by else ""
    return f"{by}{'; '.join(changed)}"


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}s"
    return value if isinstance(value, str) else to_json(value)
