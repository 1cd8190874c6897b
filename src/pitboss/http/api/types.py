"""Task types, and how many remote workers they want."""

from collections.abc import Mapping
from typing import Any

from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError
from pitboss.http.context import Call
from pitboss.model.canonical import from_json, recoded
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.states import State
from pitboss.operate.remote_documents import task_type_document
from pitboss.operate.task_types import NewType


async def register_type(call: Call, body: bodies.RegisterType) -> Answer:
    """Register a task type, or change it; either way it is active from then on."""
    new = NewType(
        name=body.name,
        version=body.version,
        schema=_schema(body.param_schema),
        queue=body.queue,
        max_attempts=body.max_attempts,
        timeout=None if body.timeout is None else round(body.timeout * SECOND),
        backoff=None if body.backoff is None else round(body.backoff * SECOND),
        dedupe=body.dedupe,
        description=body.description,
        activate=body.activate,
    )
    found, created = await call.server.types.register(call.audited("task-types register", body.name), new)
    data = {"id": found.info.number, "name": found.info.name, "version": found.about.version}
    if created:
        return Answer(data={**data, "created": True}, message="Task type registered successfully", code=201)
    return Answer(data={**data, "updated": True}, message="Task type updated successfully")


async def list_types(call: Call, *, active_only: bool) -> Answer:
    known = await call.server.types.all()
    found = [task_type_document(one) for one in known.values() if one.about.active or not active_only]
    return Answer(data={"task_types": found, "items": found, "count": len(found)})


async def get_type(call: Call, name: str) -> Answer:
    """One task type."""
    return Answer(data=task_type_document(await call.server.types.find(name)))


async def deactivate(call: Call, name: str) -> Answer:
    """Make a task type inactive: no new tasks, those that wait go on."""
    found = await call.server.types.deactivate(call.audited("task-types deactivate", name), name)
    return Answer(data=task_type_document(found), message="Task type is inactive")


async def scaling(call: Call, name: str, *, tasks_per_worker: int, min_workers: int, max_workers: int) -> Answer:
    """How many workers the tasks of this type want: those that wait and run, divided by what one worker takes."""
    found = await call.server.types.find(name)
    queues = {queue.name: queue for queue in await call.store.queues()}
    queue = queues.get(found.info.queue)
    pending = 0 if queue is None or queue.paused else queue.counts.get(State.PENDING, 0)
    running = 0 if queue is None else queue.counts.get(State.RUNNING, 0)
    wanted = -(-(pending + running) // tasks_per_worker)
    data = {
        "name": name,
        "wanted_workers": min(max_workers, max(min_workers, wanted)),
        "pending": pending,
        "running": running,
    }
    return Answer(data=data)


def _schema(given: Mapping[str, Any] | str) -> Mapping[str, Any]:
    try:
        schema = from_json(recoded(given)) if isinstance(given, str) else given
    except InvalidInput as error:
        raise ApiError(400, "Invalid JSON schema format", why=error.why or error.what, fix=error.fix) from error
    if not isinstance(schema, dict):
        raise ApiError(
            400, "Invalid JSON schema format", why="a schema is a JSON object", fix='such as {"type": "object"}'
        )
    if "type" not in schema:
        raise ApiError(400, 'JSON schema must have a "type" property', fix='add "type": "object"')
    return schema
