"""Schedules: when tasks are put without a caller."""

from typing import Any

from pitboss.client.schedules import ScheduleClient
from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError
from pitboss.http.context import Call
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.schedule import Schedule
from pitboss.operate.remote_documents import STATUSES
from pitboss.operate.schedule_documents import schedule_document, tick_document
from pitboss.operate.schedules import coming_ticks, read_schedule, read_schedules, run_schedule

_FIELDS = tuple(bodies.ScheduleFields.model_fields)


async def list_schedules(call: Call, *, limit: int, after: str | None) -> Answer:
    readings = await read_schedules(call.store, limit=limit, after=after)
    found = [_typed(schedule_document(one)) for one in readings]
    return Answer(data={"schedules": found, "items": found, "count": len(found)})


async def get_schedule(call: Call, name: str) -> Answer:
    """One schedule."""
    return Answer(data=await _document(call, name))


async def add_schedule(call: Call, body: bodies.CreateSchedule) -> Answer:
    """Add a schedule, or define one anew that was added at run time."""
    known = await call.store.schedules([body.name])
    if known and known[0].app is not None:
        raise ApiError(
            409,
            f'The schedule "{body.name}" is declared by the code of "{known[0].app}"',
            why="code owns what it declares",
            fix=f"change it: PATCH /api/schedules/{body.name}",
        )
    given = _given(body)
    client = _client(call, "schedules add", body.name, {"handler": body.type, **_told(body, given)})
    await client.add(body.name, body.type, by=call.by, **given)
    if known:
        return Answer(data=await _document(call, body.name), message="Schedule defined anew")
    return Answer(data=await _document(call, body.name), message="Schedule added", code=201)


async def change_schedule(call: Call, name: str, body: bodies.ScheduleFields) -> Answer:
    """Set fields above the definition. A field that is not sent, or is null, stays as it is."""
    given = _given(body)
    if not given:
        raise ApiError(400, "No field to change", why="all of them are missing or null", fix='send {"cron": "…"}')
    await _client(call, "schedules change", name, _told(body, given)).change(name, by=call.by, **given)
    return Answer(data=await _document(call, name), message="Schedule changed")


async def reset_schedule(call: Call, name: str) -> Answer:
    """Withdraw all changes: what was declared holds again."""
    await _existing(call, name)
    await _client(call, "schedules reset", name).reset(name, by=call.by)
    return Answer(data=await _document(call, name), message="Schedule reset")


async def pause_schedule(call: Call, name: str, *, paused: bool, reason: str = "") -> Answer:
    await _existing(call, name)
    details = {"reason": reason} if reason else {}
    store = await call.kept("schedules pause" if paused else "schedules resume", name, details)
    client = ScheduleClient(store, call.server.make_id)
    await (client.pause(name, by=call.by, reason=reason) if paused else client.resume(name, by=call.by))
    return Answer(data=await _document(call, name), message="Schedule paused" if paused else "Schedule resumed")


async def remove_schedule(call: Call, name: str) -> Answer:
    """Remove a schedule that was added at run time."""
    await _existing(call, name)
    try:
        await _client(call, "schedules remove", name).remove(name)
    except InvalidInput as error:
        raise ApiError(409, error.what, why=error.why, fix=error.fix) from error
    return Answer(data={"name": name}, message="Schedule removed")


async def run(call: Call, name: str) -> Answer:
    """Put its task now, besides its ticks. With overlap "skip", it may meet an unfinished one."""
    placed = await run_schedule(call.audited("schedules run", name), name, call.server.make_id)
    data = {
        "id": placed.id,
        "status": STATUSES[placed.state],
        "state": placed.state.value,
        "created": placed.created,
        "schedule": name,
    }
    if placed.created:
        return Answer(data=data, message="Task put", code=201)
    return Answer(data=data, message="A task of this schedule is not finished; none was put")


async def next_ticks(call: Call, name: str, *, count: int) -> Answer:
    reading = await read_schedule(call.store, name)
    found = [tick_document(one)["at"] for one in coming_ticks([reading.schedule], count)]
    return Answer(data={"name": name, "when": reading.when, "ticks": found, "items": found, "count": len(found)})


def _client(call: Call, act: str, name: str, details: dict[str, Any] | None = None) -> ScheduleClient:
    return ScheduleClient(call.audited(act, name, details), call.server.make_id)


async def _existing(call: Call, name: str) -> Schedule:
    """An act on one that does not exist is not an act: it leaves nothing in the audit log."""
    try:
        return await ScheduleClient(call.store, call.server.make_id).get(name)
    except NotFound as error:
        raise ApiError(
            404,
            error.what,
            why=error.why,
            fix=error.fix.replace("pitboss schedules list shows", "GET /api/schedules lists"),
        ) from error


async def _document(call: Call, name: str) -> dict[str, Any]:
    return _typed(schedule_document(await read_schedule(call.store, name)))


def _typed(document: dict[str, Any]) -> dict[str, Any]:
    """A handler is a task type over HTTP."""
    return {**document, "type": document["handler"]}


def _given(body: bodies.ScheduleFields) -> dict[str, Any]:
    return {name: value for name in _FIELDS if (value := getattr(body, name)) is not None}


def _told(body: bodies.ScheduleFields, given: dict[str, Any]) -> dict[str, Any]:
    """The fields for the audit log, as they were sent."""
    return body.model_dump(mode="json", include=set(given))
