"""Operations. Each is one row: the columns that statements look for, and the whole as JSON.

An act locks the row of its operation first, so that each portion happens once; then as in `control.py`.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from pitboss.engines.postgres import control
from pitboss.engines.postgres.dialect import compiled
from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.resources_and_batches import ResourcesAndBatches
from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Ask, Script, Statements, current
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

_operation = msgspec.json.Decoder(Operation)


class OperationProtocol(ResourcesAndBatches):
    """The protocol `Operations`."""

    async def begin_operation(self, new: NewOperation) -> Operation:
        return await self._transact(
            "begin_operation", self._reading, lambda now: self._noted(_begin(self._sql, new, now), now)
        )

    async def operations(
        self,
        ids: Sequence[OperationId] | None = None,
        *,
        statuses: Sequence[OperationStatus] = (),
        limit: int = 100,
    ) -> list[Operation]:
        return await self._reading.call(lambda: _listed(self._sql, ids, statuses, limit))

    async def advance_operation(self, operation: OperationId, cursor: str, *, limit: int) -> Operation | None:
        return await self._transact(
            "advance_operation", self._writing, lambda now: _advance(self._sql, operation, cursor, limit, now)
        )

    async def change_operation(self, operation: OperationId, change: OperationChange) -> Operation:
        return await self._transact(
            "change_operation",
            self._reading,
            lambda now: self._noted(_change(self._sql, operation, change, now), now),
        )

    async def forget_operations(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        return await self._transact(
            "forget_operations", self._reading, lambda now: _forget(self._sql, before, limit, term, now)
        )


def _begin(sql: Statements, new: NewOperation, now: Moment | None) -> Script[Operation]:
    moment = yield from current(sql, now)
    yield sql.ask("operation_add", id=new.id, body=_encoded(begun(new, moment))).unheard()
    ((body,),) = yield sql.ask("operation_get", id=new.id)
    return (yield from _shown(sql, _operation.decode(body)))


def _listed(
    sql: Statements, ids: Sequence[OperationId] | None, statuses: Sequence[OperationStatus], limit: int
) -> Script[list[Operation]]:
    if ids is not None:
        rows = yield sql.ask("operation_list_named", ids=texts(list(ids)))
    else:
        rows = yield sql.ask("operation_list", statuses=texts([one.value for one in statuses]), limit=limit)
    found = list[Operation]()
    for (body,) in rows:
        found.append((yield from _shown(sql, _operation.decode(body))))
    return found


def _advance(
    sql: Statements, operation: OperationId, cursor: str, limit: int, now: Moment | None
) -> Script[Operation | None]:
    known = yield from _locked(sql, operation)
    moment = yield from current(sql, now)
    if known is None or not known.may_advance(cursor, moment):
        return known
    most = known.stop_on_failures
    failed = 0 if most is None else (yield from _failed(sql, known, most))
    after = too_many_failed(known, failed, moment) or (yield from portion(sql, known, limit, moment))
    if after.ended_at is not None:
        after = yield from _shown(sql, after)
    yield _writing(sql, after)
    return after


def _change(sql: Statements, operation: OperationId, change: OperationChange, now: Moment | None) -> Script[Operation]:
    known = yield from _locked(sql, operation)
    after = changed_operation(known, change, (yield from current(sql, now)))
    yield _writing(sql, after)
    return (yield from _shown(sql, after))


def _forget(sql: Statements, before: Moment, limit: int, term: int | None, now: Moment | None) -> Script[int]:
    if term is not None:
        yield from check_term(sql, now, term)
    ((gone,),) = yield sql.ask("operation_forget", before=before, limit=limit)
    found: int = gone
    return found


def portion(sql: Statements, operation: Operation, limit: int, now: Moment) -> Script[Operation]:
    # Without it, the server may read all failed tasks by another index and sort them, in each portion.
    yield Ask("SET LOCAL enable_sort TO off", {}).unheard()
    seen = yield from _seen(sql, operation, READ_PER_TASK * limit)
    allowed = operation.allowed(limit)
    found = yield from _found(sql, operation, seen, allowed + 1)
    changed = yield from _do(sql, operation, found[:allowed], now)
    return advanced(operation, found, seen, allowed, changed, now)


def _seen(sql: Statements, operation: Operation, read: int) -> Script[TaskId | None]:
    """The id up to which it reads; None: to the end."""
    beyond, values = _beyond(operation)
    table = f"SELECT id FROM {sql.quoted}.tasks WHERE {{place}} ORDER BY id LIMIT %s"
    parts = [f"({table.replace('{place}', place)})" for place in _places(operation, beyond)]
    if not parts:
        return None
    text = sql.text("operation_walk", ids=" UNION ALL ".join(parts))
    rows = yield Ask(text, [*[*values, read] * len(parts), read - 1])
    return rows[0][0] if rows else None


def _found(sql: Statements, operation: Operation, seen: TaskId | None, most: int) -> Script[list[TaskId]]:
    """The first tasks that count (`Operation.counts_in`), from the cursor up to the id that was seen."""
    condition = compiled(operation.wanted, operation.began)
    counts = "created_at <= %s AND NOT cancel_asked" if operation.verb is Verb.CANCEL else "finished_at <= %s"
    beyond, values = _beyond(operation)
    if seen is not None:
        beyond, values = f"{beyond} AND id <= %s::uuid", [*values, seen]
    states = operation.states
    places = _places(operation, beyond)
    if not states <= WALKED:
        listed = "', '".join(sorted(states))
        places = [f"state IN ('{listed}') AND {beyond}"]
    found: list[TaskId] = []
    for place in places:
        text = sql.text("operation_found", range=place, counts=counts, condition=condition.sql)
        rows = yield Ask(text, [*values, operation.began, *condition.values, most])
        found += [row[0] for row in rows]
    return sorted(found)[:most]


def _places(operation: Operation, beyond: str) -> list[str]:
    """Where it reads: in the index of each state, or in that of all ids."""
    if not operation.states <= WALKED:
        return [beyond]
    return [f"state = '{state.value}' AND {beyond}" for state in sorted(operation.states)]


def _beyond(operation: Operation) -> tuple[str, list[object]]:
    return ("id > %s::uuid", [operation.cursor]) if operation.cursor else ("true", [])


def _do(sql: Statements, operation: Operation, chosen: list[TaskId], now: Moment) -> Script[Changed]:
    if not chosen:
        return Changed()
    wanted, limit = by(id=chosen), len(chosen)
    match operation.verb:
        case Verb.CANCEL:
            return (yield from control.cancel(sql, wanted, operation.reason, limit, now))
        case Verb.DISCARD:
            done = yield from control.prune(sql, wanted, None, limit, now, None)
            rows = yield sql.ask("operation_stay", ids=texts(chosen))
            return replace(done, refused=tuple(row[0] for row in rows))
    mark = operation.id if operation.watched else None
    return (yield from control.retry(sql, wanted, operation.keep_attempts, limit, now, mark))


def _shown(sql: Statements, operation: Operation) -> Script[Operation]:
    failed = yield from _failed(sql, operation, FAILURES_COUNTED)
    return replace(operation, failed_again=max(operation.failed_again, failed))


def _failed(sql: Statements, operation: Operation, most: int) -> Script[int]:
    if not operation.watched:
        return 0
    ((number,),) = yield sql.ask("operation_failed", id=operation.id, most=most)
    found: int = number
    return found


def _locked(sql: Statements, operation: OperationId) -> Script[Operation | None]:
    rows = yield sql.ask("operation_lock", id=operation)
    return _operation.decode(rows[0][0]) if rows else None


def _writing(sql: Statements, operation: Operation) -> Ask:
    return sql.ask(
        "operation_write",
        id=operation.id,
        status=operation.status.value,
        ended_at=operation.ended_at,
        body=_encoded(operation),
    )


def _encoded(operation: Operation) -> str:
    return msgspec.json.encode(operation).decode()
