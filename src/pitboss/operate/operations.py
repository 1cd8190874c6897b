"""Bulk acts on tasks: a few in one act, many as an operation that goes on by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from pitboss.client.operations import OperationPerformer
from pitboss.engines.capabilities import operations_of
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import NotFound
from pitboss.model.filter import written
from pitboss.model.ids import TaskId
from pitboss.model.operation import FAILURES_COUNTED, NewOperation, Operation, OperationStatus, Verb, lasts
from pitboss.model.text import counted
from pitboss.operate.documents import utc
from pitboss.operate.lookup import ID, checked_piece, refuse_several
from pitboss.operate.queues import rate_text

# As many tasks are changed in one act, if no rate is asked for.
FEW = 1000
_SEARCHED = 10_000
_LOOK_SECONDS = 0.2
# A manager that leads and does nothing for so long may be of a version that has no operations.
_PATIENCE = 5.0
VERB_WORDS = {Verb.RETRY: "Retry", Verb.CANCEL: "Cancel", Verb.DISCARD: "Delete"}
_DID = {Verb.RETRY: "set to run again", Verb.CANCEL: "cancelled", Verb.DISCARD: "deleted"}
_NOT_DONE = {Verb.RETRY: "not retried", Verb.CANCEL: "not cancelled", Verb.DISCARD: "not deleted"}
_REFUSED = {
    Verb.RETRY: "another unfinished task has the unique key",
    Verb.CANCEL: "it could not be cancelled",
    Verb.DISCARD: "it must stay for now: it belongs to a batch, its unique key is still taken, or its message id is "
    "remembered",
}


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """`asked` are running tasks that were asked to stop; `refused` could not be changed."""

    changed: int = 0
    asked: int = 0
    refused: tuple[TaskId, ...] = ()


class LeftOut(msgspec.Struct, frozen=True):
    """Tasks that an operation matched and did not change, and why."""

    tasks: int
    why: str


class Pace(msgspec.Struct, frozen=True):
    """How fast an operation has been, in tasks per second, and how long the rest will take; None if that is unknown."""

    speed: float | None = None
    ends: Span | None = None


async def act_on_tasks(
    store: Store, wanted: NewOperation, audited: Callable[[dict[str, Any]], Store] | None = None
) -> BulkResult | Operation:
    """Do it in one act if the tasks are few, which a reader finds out; else begin the operation. `audited` gives the
    store for the act, whose entry in the audit log has these details."""
    acting = audited or (lambda _: store)
    if not wanted.rate:
        page = await store.find(wanted.wanted, limit=FEW, oldest_first=True)
        if page.next is None:
            found = [task.id for task in page.tasks]
            return await _act_on_few(acting({"tasks": len(found)}), wanted, found)
    number = {"tasks": wanted.matched} | ({"more": True} if wanted.more else {})
    return await operations_of(acting({**number, "operation": wanted.id})).begin_operation(wanted)


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


def handled(operation: Operation) -> int:
    """The tasks that it has been at."""
    return operation.done + operation.asked + operation.refused


def done_text(verb: Verb, done: BulkResult) -> str:
    """Such as: 3 tasks cancelled; 1 running task asked to stop."""
    asked = f"; {counted(done.asked, 'running task')} asked to stop" if done.asked else ""
    refused = f"; {len(done.refused):,} refused: {_REFUSED[verb]}" if done.refused else ""
    return f"{counted(done.changed, 'task')} {_DID[verb]}{asked}{refused}"


def progress_text(operation: Operation) -> str:
    """Such as: 2,000 tasks set to run again; 3 of them failed again so far."""
    asked = f"; {counted(operation.asked, 'running task')} asked to stop" if operation.asked else ""
    so_far = " so far" if operation.status is OperationStatus.DONE else ""
    again = f"; {failed_again_text(operation)} of them failed again{so_far}" if operation.failed_again else ""
    left = (operation.matched or 0) - handled(operation)
    over = operation.status is OperationStatus.DONE
    rest = f"; {counted(left, 'task')} {_NOT_DONE[operation.verb]}" if left > 0 and not over else ""
    return f"{counted(operation.done, 'task')} {_DID[operation.verb]}{asked}{again}{rest}"


def failed_again_text(operation: Operation) -> str:
    most = operation.failed_again >= FAILURES_COUNTED
    return f"{operation.failed_again:,}{'+' if most else ''}"


def refused_why(verb: Verb) -> str:
    return _REFUSED[verb]


def left_out(operation: Operation) -> list[LeftOut]:
    """What an operation leaves unchanged, with the reasons."""
    found = [LeftOut(operation.refused, _REFUSED[operation.verb])] if operation.refused else []
    left = (operation.matched or 0) - handled(operation)
    if operation.status is OperationStatus.RUNNING or left <= 0:
        return found
    changed = "they no longer matched when their turn came: another act, or a run, had changed them"
    return [*found, LeftOut(left, changed if operation.status is OperationStatus.DONE else operation.why or "it ended")]


def pace(operation: Operation, now: Moment) -> Pace:
    """Its mean speed since it began, and the time for the rest of what it matched."""
    took = (operation.ended_at or now) - operation.began
    speed = handled(operation) * SECOND / took if took > 0 and handled(operation) else None
    left = (operation.matched or 0) - handled(operation)
    if operation.status is not OperationStatus.RUNNING or operation.more or left <= 0:
        return Pace(speed)
    if operation.rate:
        return Pace(speed, lasts(operation.rate, left))
    return Pace(speed, round(left / speed * SECOND) if speed else None)


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
