"""Bulk acts on tasks: a few in one act, many as an operation that goes on by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from pitboss.client.operations import OperationPerformer
from pitboss.engines.capabilities import operations_of
from pitboss.engines.protocol import Store
from pitboss.model.errors import NotFound
from pitboss.model.filter import written
from pitboss.model.ids import TaskId
from pitboss.model.operation import NewOperation, Operation, OperationStatus, Verb
from pitboss.operate.documents import utc
from pitboss.operate.lookup import ID, checked_piece, refuse_several
from pitboss.operate.queues import rate_text

# As many tasks are changed in one act, if no rate is asked for.
FEW = 1000
_SEARCHED = 10_000
_LOOK_SECONDS = 0.2
# A manager that leads and does nothing for so long may be of a version that has no operations.
_PATIENCE = 5.0


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """`asked` are running tasks that were asked to stop; `refused` could not be changed."""

    changed: int = 0
    asked: int = 0
    refused: tuple[TaskId, ...] = ()


async def act_on_tasks(store: Store, wanted: NewOperation) -> BulkResult | Operation:
    """Do it in one act if the tasks are few, which a reader finds out; else begin the operation."""
    if not wanted.rate:
        page = await store.find(wanted.wanted, limit=FEW, oldest_first=True)
        if page.next is None:
            return await _act_on_few(store, wanted, [task.id for task in page.tasks])
    return await operations_of(store).begin_operation(wanted)


async def find_operation(store: object, text: str) -> Operation:
    """The operation with this id, or the only one whose id begins or ends with this piece."""
    operations, piece = operations_of(store), checked_piece(text, "operation")
    if ID.match(piece):
        matches = await operations.operations([piece])
    else:
        known = await operations.operations(limit=_SEARCHED)
        matches = [one for one in known if one.id.startswith(piece) or one.id.endswith(piece)]
    refuse_several(text, [one.id for one in matches], "operations")
    if not matches:
        raise NotFound(
            f"there is no operation {text}",
            why="it was never in this store, or it ended long ago and was forgotten",
            fix="check the id and the store; pitboss operations list shows the operations",
        )
    return matches[0]


def operation_document(operation: Operation) -> dict[str, Any]:
    """An operation with its progress."""
    return {
        "id": operation.id,
        "verb": operation.verb.value,
        "filter": written(operation.wanted),
        "by": operation.by,
        "status": operation.status.value,
        "why": operation.why,
        "matched": operation.matched,
        "matched_more": operation.more,
        "done": operation.done,
        "asked": operation.asked,
        "refused": operation.refused,
        "refused_tasks": list(operation.refused_tasks),
        "failed_again": operation.failed_again,
        "rate": rate_text(operation.rate) or None,
        "stop_on_failures": operation.stop_on_failures,
        "began_at": utc(operation.began),
        "ended_at": utc(operation.ended_at),
    }


async def until_over(
    store: Store, operation: Operation, *, stop: asyncio.Event, told: Callable[[Operation], None]
) -> Operation:
    """Wait until the operation is over, or until `stop` is set. Where no manager leads, it is performed here."""
    operations, loop = operations_of(store), asyncio.get_running_loop()
    performer = OperationPerformer(operations, store.clock, only=operation.id)
    moved_at = looked_at = loop.time()
    performing = await store.leader() is None
    while operation.status is OperationStatus.RUNNING and not stop.is_set():
        pause = await performer.perform() if performing else None
        await _rest(stop, pause if pause is not None else _LOOK_SECONDS)
        before, found = operation, await operations.operations([operation.id])
        operation = found[0] if found else before
        told(operation)
        time = loop.time()
        if operation.cursor != before.cursor or operation.next_at > store.clock.now():
            moved_at = time
        if time - looked_at >= 1:
            looked_at, leader = time, await store.leader()
            performing = leader is None or time - moved_at > _PATIENCE
    return operation


async def manager_lives(store: Store) -> bool:
    """Whether a manager will perform operations."""
    return await store.leader() is not None


async def _rest(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


async def _act_on_few(store: Store, wanted: NewOperation, ids: list[TaskId]) -> BulkResult:
    """Tasks that changed meanwhile must still match."""
    if not ids:
        return BulkResult()
    chosen = wanted.wanted.also(id=ids)
    match wanted.verb:
        case Verb.RETRY:
            done = await store.retry(chosen, keep_attempts=wanted.keep_attempts, limit=FEW)
        case Verb.CANCEL:
            done = await store.cancel(chosen, reason=wanted.reason, limit=FEW)
        case _:
            done = await store.prune(chosen, limit=FEW)
    return BulkResult(changed=done.changed, asked=done.asked, refused=done.refused)
