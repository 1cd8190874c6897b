"""Operations, batches and lanes, resource pools and their members."""

from collections.abc import Mapping
from typing import Any, Literal

from pitboss.client.batch_handle import act_in_portions
from pitboss.client.schema import checker
from pitboss.engines.capabilities import batches_of, resources_of
from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError
from pitboss.http.context import Call
from pitboss.model.batch import (
    Batch,
    BatchAct,
    BatchChanged,
    BatchStatus,
    Cancel,
    Delete,
    Move,
    Pause,
    Requeue,
    Resume,
    Start,
)
from pitboss.model.canonical import to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import rate
from pitboss.model.operation import OperationChange, OperationStatus
from pitboss.model.resource import NewResource, ResourceChange
from pitboss.model.resource_files import Row, read_rows
from pitboss.model.resource_urls import parted
from pitboss.model.text import counted
from pitboss.operate.batches import list_batches, read_batch
from pitboss.operate.documents import (
    batch_document,
    batch_page_document,
    lane_document,
    member_document,
    member_page_document,
    resource_pool_document,
)
from pitboss.operate.enqueue import create_batch, described_batch
from pitboss.operate.lookup import find_batch, find_handler
from pitboss.operate.operations import find_operation, operation_document
from pitboss.operate.pool_rules import limit_resource_pool
from pitboss.operate.resources import (
    change_members,
    find_members,
    find_resource_pool,
    list_resource_pools,
    read_member,
    read_resource_pool,
)

Act = Literal["pause", "resume", "start", "cancel", "move", "requeue"]
# What a request without a body means.
_PLAIN_ACT = bodies.ActOnBatch()


async def get_batches(call: Call, *, status: BatchStatus | None, limit: int) -> Answer:
    readings = await list_batches(call.store, call.now, () if status is None else (status,), limit)
    found = [batch_document(one) for one in readings]
    return Answer(data={"batches": found, "items": found, "count": len(found)})


async def new_batch(call: Call, body: bodies.CreateBatch) -> Answer:
    """Store a batch with all its items, or nothing if one of them does not fit the type."""
    handler = await find_handler(call.store, body.type)
    check = checker(handler)
    params = [_checked(check, number, item) for number, item in enumerate(body.items)]
    described = described_batch(
        call.server.make_id(), name=body.name, lane=body.lane, data=body.data, by=call.by, paused=body.paused
    )
    options: dict[str, Any] = {"priority": body.priority, "max_attempts": body.max_attempts}
    batch = await create_batch(
        call.server.client, handler, params, call.server.make_id, described, on_complete=body.on_complete, **options
    )
    page = await read_batch(call.store, batch.id, call.now)
    return Answer(data=batch_document(page.reading), message="Batch created", code=201)


async def get_batch(call: Call, batch_id: str) -> Answer:
    """One batch with its failures by cause."""
    return Answer(data=batch_page_document(await read_batch(call.store, batch_id, call.now)))


async def act_on_batch(call: Call, batch_id: str, act: Act, body: bodies.ActOnBatch = _PLAIN_ACT) -> Answer:
    """Pause, resume, start, cancel, move or requeue a batch."""
    batch = await find_batch(call.store, batch_id)
    details = body.model_dump(exclude_defaults=True)
    store = await call.kept(f"batches {act}", batch.id, details)
    done = await act_in_portions(batches_of(store), batch.id, _act(act, body))
    data = {"id": batch.id, "changed": done.changed, "refused": list(done.refused)}
    if done.batch is None:
        return Answer(data=data, message="Batch deleted")
    return Answer(data=data | {"batch_status": done.batch.status}, message=_done_text(act, done, done.batch))


async def delete_batch(call: Call, batch_id: str, *, force: bool) -> Answer:
    batch = await find_batch(call.store, batch_id)
    await act_in_portions(batches_of(call.audited("batches delete", batch.id)), batch.id, Delete(force))
    return Answer(data={"id": batch.id}, message="Batch deleted")


async def list_operations(call: Call, *, status: OperationStatus | None, limit: int) -> Answer:
    statuses = [] if status is None else [status]
    found = [operation_document(one) for one in await call.store.operations(statuses=statuses, limit=limit)]
    return Answer(data={"operations": found, "items": found, "count": len(found)})


async def get_operation(call: Call, operation_id: str) -> Answer:
    """One operation with its progress."""
    return Answer(data=operation_document(await find_operation(call.store, operation_id)))


async def cancel_operation(call: Call, operation_id: str) -> Answer:
    """Let an operation touch no more tasks."""
    return await _change_operation(call, "cancel", operation_id, OperationChange(cancel=True, by=call.by))


async def change_operation_rate(call: Call, operation_id: str, body: bodies.OperationRate) -> Answer:
    """Let an operation go on faster or slower."""
    windows = () if body.rate is None else rate(body.rate)
    return await _change_operation(call, "rate", operation_id, OperationChange(by=call.by, rate=windows))


async def _change_operation(call: Call, act: str, operation_id: str, change: OperationChange) -> Answer:
    operation = await find_operation(call.store, operation_id)
    store = call.audited(f"operations {act}", operation.id)
    return Answer(data=operation_document(await store.change_operation(operation.id, change)))


async def get_lanes(call: Call) -> Answer:
    """The lanes in which batches wait."""
    found = [lane_document(lane) for lane in await batches_of(call.store).lanes()]
    return Answer(data={"lanes": found, "items": found, "count": len(found)})


async def change_lane(call: Call, name: str, body: bodies.ChangeLane) -> Answer:
    """Set how many batches of a lane run at a time."""
    store = call.audited("lanes limit", name, {"max_running": body.max_running})
    return Answer(data=lane_document(await batches_of(store).change_lane(name, body.max_running)))


async def get_resource_pools(call: Call) -> Answer:
    """All resource pools."""
    found = [resource_pool_document(one) for one in await list_resource_pools(call.store, call.now)]
    return Answer(data={"resource_pools": found, "items": found, "count": len(found)})


async def get_resource_pool(call: Call, name: str) -> Answer:
    """One resource pool with its members."""
    reading = await read_resource_pool(call.store, name, call.now)
    members = [member_document(one) for one in reading.members]
    return Answer(data={**resource_pool_document(reading), "queues": list(reading.queues), "member_list": members})


async def limit_pool(call: Call, name: str, body: bodies.LimitPool) -> Answer:
    """Set limits of a resource pool above what is declared."""
    words = [f"{key}={value}" for key, value in body.limits.items()]
    if not words and not body.reset:
        raise InvalidInput("no limit was given", why="there is nothing to change", fix="name a limit and its value")
    store = await call.kept("resource-pools limit", name, body.model_dump())
    await limit_resource_pool(store, name, words, by=call.by, reset=body.reset)
    return await get_resource_pool(call, name)


async def add_members(call: Call, name: str, body: bodies.AddMembers) -> Answer:
    """Add members without secrets. Those with secrets are added on a host that has the key: pitboss resources add."""
    new = [_member(one) for one in body.members]
    if body.text or not new:
        new += [_row(one, tuple(body.labels)) for one in read_rows(body.text, "the text")]
    store = call.audited("resource-pools add", name, {"members": [one.name for one in new]})
    fresh = await resources_of(store).add_resources(name, new)
    return Answer(
        data={"name": name, "added": sum(fresh), "changed": len(fresh) - sum(fresh)},
        message=f"{counted(sum(fresh), 'member')} added",
        code=201,
    )


async def get_member(call: Call, name: str, member: str) -> Answer:
    """One member with its history."""
    return Answer(data=member_page_document(await read_member(call.store, name, member, call.now))["member"])


async def change_member(call: Call, name: str, member: str, act: str) -> Answer:
    """Enable, disable or reset a member, or remove it."""
    found = find_members(await find_resource_pool(call.store, name), [member])
    store = await call.kept(f"resource-pools {act}", f"{name}/{member}")
    enabled = ResourceChange(enabled=act == "enable", reason=f"{act}d by {call.caller.name}")
    change = {"remove": None, "reset": ResourceChange(reset=True)}.get(act, enabled)
    await change_members(store, name, found, change)
    return Answer(data={"pool": name, "name": member}, message=f"Member: {act} done")


async def change_all_members(call: Call, name: str, act: str) -> Answer:
    """Enable or reset all members of a pool."""
    found = list((await find_resource_pool(call.store, name)).members)
    store = call.audited(f"resource-pools {act}", name)
    change = ResourceChange(reset=True) if act == "reset" else ResourceChange(enabled=True)
    changed = await change_members(store, name, found, change)
    said = f"{counted(len(changed), 'member')} {'reset' if act == 'reset' else 'enabled'}"
    return Answer(data={"pool": name, "changed": len(changed)}, message=said)


def _done_text(act: Act, done: BatchChanged, batch: Batch) -> str:
    if act == "requeue":
        return f"{counted(done.changed, 'item')} set to run again"
    if act == "move" and batch.position:
        return f"Batch is number {batch.position} in lane {batch.lane}"
    return f"Batch is {batch.status.replace('_', ' ')}"


def _act(act: Act, body: bodies.ActOnBatch) -> BatchAct:
    match act:
        case "pause":
            return Pause(body.reason)
        case "resume":
            return Resume(body.at)
        case "start":
            return Start()
        case "cancel":
            return Cancel(body.reason)
        case "move":
            return Move(body.to, body.before)
        case "requeue":
            return Requeue(body.error, body.cancelled, body.keep_attempts)


def _checked(check: Any, number: int, item: dict[str, Any]) -> str:
    try:
        return str(check(item))
    except InvalidInput as error:
        raise ApiError(
            400, f"Item {number} does not fit the type", why=f"{error.what}: {error.why}", fix=error.fix
        ) from error


def _member(new: bodies.NewMember) -> NewResource:
    fields, secrets = parted(new.fields, {}, new.name)
    _refuse_secrets(new.name, secrets)
    return NewResource(
        name=new.name, fields=to_json(fields, what="fields"), labels=tuple(new.labels), weight=new.weight
    )


def _row(row: Row, labels: tuple[str, ...]) -> NewResource:
    _refuse_secrets(row.name, row.secrets)
    return NewResource(
        name=row.name, fields=to_json(row.fields, what="fields"), labels=(*row.labels, *labels), weight=row.weight
    )


def _refuse_secrets(name: str, secrets: Mapping[str, str]) -> None:
    if secrets:
        raise ApiError(
            400,
            f"The fields of member {name} hold a password",
            why="secrets are sealed with a key that this server does not have",
            fix="add it on a host that has the key: pitboss resources add",
        )
