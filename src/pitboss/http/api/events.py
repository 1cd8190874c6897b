"""Events: publishing them, their log, and sending one to its handlers again."""

from hashlib import sha256
from typing import Any

from msgspec import UNSET

from pitboss.client.events import task_ids
from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError
from pitboss.http.context import Call
from pitboss.model.event import EventId
from pitboss.model.text import counted
from pitboss.operate.events import event_client, replay_events
from pitboss.operate.remote_tasks import KeyReused, remembered_ids
from pitboss.operate.schedule_documents import event_document, event_page_document

# What a request without a body means.
_TO_ALL = bodies.Replay()


async def publish(call: Call, body: bodies.Publish) -> Answer:
    """Publish an event: it is stored together with a task for each handler that wants it."""
    by = call.caller.name
    done = await call.server.events.publish(
        body.name,
        body.data if "data" in body.model_fields_set else UNSET,
        key=body.key,
        by=by,
        event_id=await _event_id(call, body),
    )
    tasks = task_ids(done)
    told = {"id": done.id, "name": body.name, "handlers": list(done.handlers), "tasks": tasks, "created": done.created}
    if done.created:
        return Answer(data=told, message=f"Event published to {counted(len(tasks), 'handler')}", code=201)
    return Answer(data=told, message="This event was published before")


async def list_events(call: Call, *, name: str | None, limit: int, before: str | None) -> Answer:
    found = [event_document(one) for one in await call.server.events.find(name=name, limit=limit, before=before)]
    following = found[-1]["id"] if len(found) == limit else None
    return Answer(data={"events": found, "items": found, "count": len(found), "next_before": following})


async def get_event(call: Call, event_id: str) -> Answer:
    """One event with the states of its tasks."""
    return Answer(data=event_page_document(await call.server.events.get(event_id)))


async def replay(call: Call, event_id: str, body: bodies.Replay = _TO_ALL) -> Answer:
    """Put new tasks for the handlers that want the event now, or for these of them."""
    store = call.audited("events replay", event_id, body.model_dump(exclude_none=True))
    client = event_client(store, call.server.make_id)
    (done,) = await replay_events(client, store, [event_id], body.handlers)
    tasks: list[dict[str, Any]] = [
        {"handler": handler, "id": placed.id, "state": placed.state.value} for handler, placed in done.tasks
    ]
    return Answer(
        data={"id": event_id, "tasks": tasks, "count": len(tasks)}, message=f"{counted(len(tasks), 'task')} put"
    )


async def _event_id(call: Call, body: bodies.Publish) -> EventId:
    """Under an idempotency key, that of the first request."""
    fresh, given = call.server.make_id(), call.idempotency or body.idempotency_key
    if given is None:
        return fresh
    key = sha256(f"{call.caller.name}\0{given}".encode()).hexdigest()
    said = body.model_dump(mode="json", exclude={"idempotency_key"}, exclude_unset=True)
    try:
        return (await remembered_ids(call.store, key, {"event": said}, [fresh]))[0]
    except KeyReused as error:
        raise ApiError(422, error.what, why=error.why, fix=error.fix) from error
