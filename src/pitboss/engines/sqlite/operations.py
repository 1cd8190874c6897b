"""Operations. Each is one row: the columns that statements look for, and the whole as JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pitboss.engines.sqlite import control
from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.calls import Calls
from pitboss.engines.sqlite.filters import matching
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.registry import check_term
from pitboss.model.duration import Moment
from pitboss.model.filter import by
from pitboss.model.ids import TaskId
from pitboss.model.operation import (
    FAILURES_COUNTED,
    READ_PER_TASK,
    WALKED,
    NewOperation,
    Operation,
    OperationChange,
    OperationId,
    OperationStatus,
    Verb,
    advanced,
    begun,
    changed_operation,
    too_many_failed,
)
from pitboss.model.queue import Changed
from pitboss.model.states import State

_operation = msgspec.json.Decoder(Operation)
# The index in which the tasks of a state are by id.
_BY_ID = {State.FAILED: "pitboss_tasks_failed_by_id", State.CANCELLED: "pitboss_tasks_cancelled"}


class OperationVerbs(Calls):
    """The protocol `Operations`, each verb as one request to the store."""

    async def begin_operation(self, new: NewOperation) -> Operation:
        return await self._operate("begin_operation", lambda act: begin(act, new))

    async def operations(
        self,
        ids: Sequence[OperationId] | None = None,
        *,
        statuses: Sequence[OperationStatus] = (),
        limit: int = 100,
    ) -> list[Operation]:
        return await self._read(lambda reader: _listed(reader, ids, statuses, limit))

    async def advance_operation(self, operation: OperationId, cursor: str, *, limit: int) -> Operation | None:
        return await self._write("advance_operation", lambda act: advance(act, operation, cursor, limit), limit)

    async def change_operation(self, operation: OperationId, change: OperationChange) -> Operation:
        return await self._operate("change_operation", lambda act: _change(act, operation, change))

    async def forget_operations(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        return await self._write("forget_operations", lambda act: _forget(act, before, limit, term), limit)


def begin(act: Act, new: NewOperation) -> Operation:
    """As the contract says."""
    act.run("operation_add", new.id, _encoded(begun(new, act.now)))
    row: Any = act.one("operation_get", new.id)
    return _shown(act, _operation.decode(row[0]))


def _listed(
    reader: Reader, ids: Sequence[OperationId] | None, statuses: Sequence[OperationStatus], limit: int
) -> list[Operation]:
    """As the contract says."""
    if ids is not None:
        rows = reader.rows("operation_list_named", json_list(ids))
    elif statuses:
        rows = [row for status in set(statuses) for row in reader.rows("operation_list_of", status.value, limit)]
    else:
        rows = reader.rows("operation_list", limit)
    found = sorted((_operation.decode(body) for (body,) in rows), key=lambda one: one.id, reverse=True)
    return [_shown(reader, one) for one in (found if ids is not None else found[:limit])]


def advance(act: Act, operation: OperationId, cursor: str, limit: int) -> Operation | None:
    """As the contract says."""
    known = _stored(act, operation)
    if known is None or not known.may_advance(cursor, act.now):
        return known
    most = known.stop_on_failures
    failed = 0 if most is None else _failed(act, known, most)
    after = too_many_failed(known, failed, act.now) or _portion(act, known, limit)
    if after.ended_at is not None:
        after = _shown(act, after)
    _write(act, after)
    return after


def _change(act: Act, operation: OperationId, wanted: OperationChange) -> Operation:
    """As the contract says."""
    after = changed_operation(_stored(act, operation), wanted, act.now)
    _write(act, after)
    return _shown(act, after)


def _forget(act: Act, before: Moment, limit: int, term: int | None) -> int:
    """As the contract says."""
    if term is not None:
        check_term(act, term)
    return act.run("operation_forget", before, limit)


def _portion(act: Act, operation: Operation, limit: int) -> Operation:
    read = READ_PER_TASK * limit
    ids = _walk(operation, read)
    row: Any = act.query(f"{ids[0]} LIMIT 1 OFFSET ?", [*ids[1], read - 1]).fetchone() if ids[0] else None
    seen = None if row is None else row[0]
    allowed = operation.allowed(limit)
    found = _found(act, operation, seen, allowed + 1)
    return advanced(operation, found, seen, allowed, _do(act, operation, found[:allowed]), act.now)


def _walk(operation: Operation, most: int) -> tuple[str, list[object]]:
    """The ids that it reads, in order: a statement without its limit."""
    cursor = operation.cursor
    if not operation.states <= WALKED:
        return "SELECT id FROM pitboss_tasks WHERE id > ? ORDER BY id", [cursor]
    parts = [
        f"SELECT * FROM (SELECT id FROM pitboss_tasks INDEXED BY {_BY_ID[state]}"
        f" WHERE state = '{state.value}' AND id > ? ORDER BY id LIMIT ?)"
        for state in sorted(operation.states)
    ]
    union = " UNION ALL ".join(parts)
    return f"SELECT id FROM ({union}) ORDER BY id" if parts else "", [cursor, most] * len(parts)


def _found(act: Act, operation: Operation, seen: TaskId | None, most: int) -> list[TaskId]:
    """The first tasks that count (`Operation.counts_in`), from the cursor up to the id that was seen."""
    condition = matching(operation.wanted, operation.began)
    counts = "created_at <= ? AND cancel_asked = 0" if operation.verb is Verb.CANCEL else "finished_at <= ?"
    upto = "" if seen is None else "AND id <= ?"
    range_ = [operation.cursor, *([] if seen is None else [seen])]
    values = [*range_, operation.began, *condition.values, most]
    states = operation.states
    if states <= WALKED:
        places = [f"INDEXED BY {_BY_ID[state]} WHERE state = '{state.value}'" for state in sorted(states)]
    else:
        places = ["WHERE state IN ('" + "', '".join(sorted(states)) + "')"]
    found: list[TaskId] = []
    for place in places:
        text = f"SELECT id FROM pitboss_tasks {place} AND id > ? {upto} AND {counts} AND {condition.sql}"
        found += [row[0] for row in act.query(f"{text} ORDER BY id LIMIT ?", values)]
    return sorted(found)[:most]


def _do(act: Act, operation: Operation, chosen: list[TaskId]) -> Changed:
    if not chosen:
        return Changed()
    wanted, limit = by(id=chosen), len(chosen)
    match operation.verb:
        case Verb.CANCEL:
            return control.cancel(act, wanted, operation.reason, limit)
        case Verb.DISCARD:
            done = control.prune(act, wanted, None, limit, None)
            return replace(done, refused=tuple(row[0] for row in act.rows("operation_stay", json_list(chosen))))
    mark = operation.id if operation.watched else None
    return control.retry(act, wanted, operation.keep_attempts, limit, mark)


def _shown(reading: Act | Reader, operation: Operation) -> Operation:
    failed = _failed(reading, operation, FAILURES_COUNTED)
    return replace(operation, failed_again=max(operation.failed_again, failed))


def _failed(reading: Act | Reader, operation: Operation, most: int) -> int:
    rows: Any = reading.rows("operation_failed", operation.id, most) if operation.watched else [(0,)]
    return int(next(iter(rows))[0])


def _write(act: Act, operation: Operation) -> None:
    act.run("operation_write", operation.id, operation.status.value, operation.ended_at, _encoded(operation))


def _stored(act: Act, operation: OperationId) -> Operation | None:
    row: Any = act.one("operation_get", operation)
    return None if row is None else _operation.decode(row[0])


def _encoded(operation: Operation) -> str:
    return msgspec.json.encode(operation).decode()
