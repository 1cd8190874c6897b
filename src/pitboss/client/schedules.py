"""Schedules as people and programs use them: add, change, pause, run and remove. One rule for code, CLI and HTTP."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from pitboss.client.options import Options
from pitboss.client.schema import checked
from pitboss.engines.capabilities import schedules_of
from pitboss.engines.protocol import Store
from pitboss.model.canonical import from_json, to_json
from pitboss.model.duration import SECOND, Moment, span
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.schedule import (
    GRACE,
    Catchup,
    Overlap,
    Schedule,
    ScheduleChange,
    ScheduleSpec,
    checked_spec,
    known_success,
    next_tick,
    tick_task,
)
from pitboss.model.states import State
from pitboss.model.task import Placed

_TIMES = ("every", "timeout", "jitter")
_FIELDS = tuple(name for name in ScheduleSpec.__struct_fields__ if name not in ("name", "handler"))


def schedule_spec(name: str, handler: str, **fields: Any) -> ScheduleSpec:
    """A definition as people write it: `every="10m"`, `at=datetime(…)`, `params={…}`. Unknown fields are refused."""
    plain = {"name": name, "handler": handler, **_stored(fields)}
    try:
        return checked_spec(msgspec.convert(plain, ScheduleSpec))
    except msgspec.ValidationError as error:
        raise _unreadable(name, str(error)) from error


class ScheduleClient:
    """The schedules of one store. `new_id` makes the ids of tasks that are run at once."""

    def __init__(self, store: Store, new_id: Callable[[], TaskId]) -> None:
        self._store, self._schedules, self._new_id = store, schedules_of(store), new_id

    async def find(
        self, names: Sequence[str] | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]:
        """By name. `last_success` is up to date."""
        found = await self._schedules.schedules(names, limit=limit, after=after)
        return await self._with_success(found)

    async def get(self, name: str) -> Schedule:
        found = await self.find([name])
        if not found:
            raise await self._missing(name)
        return found[0]

    async def add(self, name: str, handler: str, *, by: str | None = None, **fields: Any) -> Schedule:
        """Add a schedule, or define one anew that was added at run time."""
        spec = schedule_spec(name, handler, **fields)
        spec = replace(spec, params=checked(await self._handler(handler), from_json(spec.params)))
        self._refuse_past(spec.at)
        return await self._schedules.put_schedule(spec, by=by)

    async def change(self, name: str, *, by: str | None = None, **fields: Any) -> Schedule:
        """Set fields above the definition, in addition to those that were set before."""
        schedule = await self.get(name)
        changes = _stored(fields)
        self._refuse_past(changes.get("at"))
        if {"cron", "every", "at"} & changes.keys():
            kept = {key: value for key, value in schedule.changes.items() if key not in ("cron", "every", "at")}
        else:
            kept = schedule.changes
        if "params" in changes:
            handler = await self._handler(schedule.spec.handler)
            changes["params"] = checked(handler, from_json(changes["params"]))
        return await self._changed(name, ScheduleChange(changes={**kept, **changes}, by=by))

    async def reset(self, name: str, *, by: str | None = None) -> Schedule:
        """Withdraw all changes: the definition holds again."""
        return await self._changed(name, ScheduleChange(changes={}, by=by))

    async def pause(self, name: str, *, by: str | None = None, reason: str = "") -> Schedule:
        return await self._changed(name, ScheduleChange(paused=True, by=by, reason=reason))

    async def resume(self, name: str, *, by: str | None = None) -> Schedule:
        """Go on with the next tick; those that passed meanwhile are not made up for."""
        return await self._changed(name, ScheduleChange(paused=False, by=by))

    async def remove(self, name: str) -> Schedule:
        """Remove a schedule that was added at run time. Tasks that it has put stay."""
        removed = await self._schedules.change_schedule(name, None)
        if removed is None:
            raise await self._missing(name)
        return removed

    async def run(self, name: str, *, task_id: TaskId | None = None) -> Placed:
        """Put its task now, besides its ticks, paused or not. With overlap "skip" it may meet an unfinished one."""
        schedule = await self.get(name)
        # A put stores no entry of the audit log, because most puts are not an operator's; this one does it instead.
        await self._store.register(())
        registered = {one.name: one for one in await self._store.handlers()}
        task = tick_task(
            schedule.spec,
            registered.get(schedule.spec.handler),
            self._store.clock.wall(),
            schedule.last_success,
            task_id or self._new_id(),
        )
        return (await self._store.put([task]))[0]

    def _refuse_past(self, at: Moment | None) -> None:
        if at is not None and at < self._store.clock.wall() - GRACE:
            raise InvalidInput("that time is over", why="it would never come", fix="give a time in the future")

    async def _changed(self, name: str, change: ScheduleChange) -> Schedule:
        schedule = await self._schedules.change_schedule(name, change)
        if schedule is None:
            raise await self._missing(name)
        return schedule

    async def _handler(self, name: str) -> HandlerInfo:
        registered = {one.name: one for one in await self._store.handlers()}
        if name not in registered:
            near = difflib.get_close_matches(name, registered, n=1)
            raise NotFound(
                f'there is no task "{checked_name(name, "task")}"',
                why="no manager has registered a handler with that name in this store",
                fix=f'did you mean "{near[0]}"?' if near else "start a manager whose app has it, and add this then",
            )
        return registered[name]

    async def _missing(self, name: str) -> NotFound:
        known = [one.name for one in await self._schedules.schedules()]
        near = difflib.get_close_matches(name, known, n=1)
        return NotFound(
            f'there is no schedule "{name}"',
            why=f"the store has {len(known)}: {', '.join(known[:5])}" if known else "the store has none",
            fix=f'did you mean "{near[0]}"?' if near else "pitboss schedules list shows them",
        )

    async def _with_success(self, schedules: list[Schedule]) -> list[Schedule]:
        ids = [task for schedule in schedules for _, task in schedule.open]
        if not ids:
            return schedules
        states: dict[TaskId, State | None] = {
            one: None if task is None else task.state for one, task in zip(ids, await self._store.get(ids), strict=True)
        }
        return [replace(one, last_success=known_success(one, states)) for one in schedules]


def next_ticks(schedule: Schedule, number: int) -> list[Moment]:
    """Its next ticks by the wall clock, the first one as it is stored."""
    ticks = list[Moment]()
    tick = schedule.next_at
    while tick is not None and len(ticks) < number:
        ticks.append(tick)
        tick = next_tick(schedule.spec, tick, schedule.anchor)
    return ticks


def _stored(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as `ScheduleSpec` has them."""
    unknown = sorted(set(fields) - set(_FIELDS))
    if unknown:
        near = difflib.get_close_matches(unknown[0], _FIELDS, n=1)
        raise InvalidInput(
            f"a schedule has no {', '.join(unknown)}",
            why="a mistyped field would be ignored silently",
            fix=f'did you mean "{near[0]}"?' if near else f"the fields are {', '.join(_FIELDS)}",
        )
    return {name: _value(name, value) for name, value in fields.items() if value is not None}


def _value(name: str, value: Any) -> Any:
    if name in _TIMES:
        return span(value, what=name)
    if name == "at":
        return _moment(value)
    if name == "params":
        return value if isinstance(value, str) else to_json(dict(value), what="params of the schedule")
    if name in ("overlap", "catchup"):
        choices = [one.value for one in (Overlap if name == "overlap" else Catchup)]
        if value not in choices:
            raise InvalidInput(
                f"{name}={value!r:.60} is not known",
                why=f"it is one of {', '.join(choices)}",
                fix="choose one of these",
            )
        return str(value)
    if name == "queue":
        return checked_name(value, "queue")
    if name in ("priority", "max_attempts"):
        return getattr(Options().changed(**{name: value}), name)
    return value


def _moment(value: Any) -> Moment:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(
            "at= is not a moment",
            why="a moment has a date, a time and a zone; without a zone it means another time on each machine",
            fix='write at=datetime(2027, 1, 1, 8, 0, tzinfo=UTC), or "2027-01-01T08:00+01:00"',
        )
    try:
        return round(value.astimezone(UTC).timestamp() * SECOND)
    except OverflowError as error:
        raise InvalidInput(
            f"at={value!r:.60} is too far away",
            why="in UTC it is outside the years 1 to 9999",
            fix="choose a nearer one",
        ) from error


def _unreadable(name: str, why: str) -> InvalidInput:
    return InvalidInput(f'the schedule "{name}" cannot be read', why=why, fix="correct that field")
