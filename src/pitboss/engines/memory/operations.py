"""Operations."""

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from msgspec.structs import replace

from pitboss.engines.memory.control import ControlVerbs
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


class OperationVerbs(ControlVerbs):
    """The protocol `Operations`."""

    async def begin_operation(self, new: NewOperation) -> Operation:
        self._reach("begin_operation.before")
        known = self.tables.operations.setdefault(new.id, begun(new, self.clock.now()))
        self.audit()
        self._reach("begin_operation.after")
        return self._shown(known)

    async def operations(
        self,
        ids: Sequence[OperationId] | None = None,
        *,
        statuses: Sequence[OperationStatus] = (),
        limit: int = 100,
    ) -> list[Operation]:
        stored = self.tables.operations
        chosen = sorted(stored if ids is None else stored.keys() & set(ids), reverse=True)
        wanted = [stored[one] for one in chosen if ids is not None or not statuses or stored[one].status in statuses]
        return [self._shown(one) for one in (wanted[:limit] if ids is None else wanted)]

    async def advance_operation(self, operation: OperationId, cursor: str, *, limit: int) -> Operation | None:
        self._reach("advance_operation.before")
        now, known = self.clock.now(), self.tables.operations.get(operation)
        if known is not None and known.may_advance(cursor, now):
            failed = self._failed(known, known.stop_on_failures)
            known = too_many_failed(known, failed, now) or await self._portion(known, limit, now)
            self.tables.operations[operation] = known
        self._reach("advance_operation.after")
        return known

    async def change_operation(self, operation: OperationId, change: OperationChange) -> Operation:
        known = self.tables.operations.get(operation)
        self.tables.operations[operation] = changed = changed_operation(known, change, self.clock.now())
        self.audit()
        return self._shown(changed)

    async def forget_operations(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        if term is not None:
            self.check_term(term, self.clock.now())
        ended = (one for one in self.tables.operations.values() if one.ended_at is not None and one.ended_at < before)
        gone = list(islice(ended, limit))
        for one in gone:
            del self.tables.operations[one.id]
        return len(gone)

    async def _portion(self, operation: Operation, limit: int, now: Moment) -> Operation:
        read = list(islice(self._walk(operation), READ_PER_TASK * limit))
        seen = read[-1] if len(read) == READ_PER_TASK * limit else None
        allowed = operation.allowed(limit)
        counting = (task for task in read if operation.counts_in(self.tables.tasks[task]))
        found = list(islice(counting, allowed + 1))
        changed = await self._changed(operation, found[:allowed])
        after = advanced(operation, found, seen, allowed, changed, now)
        return after if after.ended_at is None else self._shown(after)

    def _walk(self, operation: Operation) -> list[TaskId]:
        indexes = self.tables.indexes
        lists = map(indexes.in_state, operation.states) if operation.states <= WALKED else [sorted(self.tables.tasks)]
        return [task for task in merge(*lists) if task > operation.cursor]

    async def _changed(self, operation: Operation, chosen: list[TaskId]) -> Changed:
        if not chosen:
            return Changed()
        wanted, limit = by(id=chosen), len(chosen)
        match operation.verb:
            case Verb.CANCEL:
                return await self.cancel(wanted, reason=operation.reason, limit=limit)
            case Verb.DISCARD:
                done = await self.prune(wanted, limit=limit)
                return replace(done, refused=tuple(task for task in chosen if task in self.tables.tasks))
        done = await self.retry(wanted, keep_attempts=operation.keep_attempts, limit=limit)
        if operation.watched:
            self.tables.retried.update(dict.fromkeys(set(chosen) - set(done.refused), operation.id))
        return done

    def _shown(self, operation: Operation) -> Operation:
        return replace(operation, failed_again=max(operation.failed_again, self._failed(operation)))

    def _failed(self, operation: Operation, most: int | None = FAILURES_COUNTED) -> int:
        """How many of its tasks have failed again, at most `most`."""
        if most is None or not operation.watched:
            return 0
        ids = (task for task, by_whom in self.tables.retried.items() if by_whom == operation.id)
        tasks = (self.tables.tasks[task] for task in ids)
        failed = (task for task in tasks if task.attempts > 0 and task.state not in (State.COMPLETED, State.CANCELLED))
        return sum(1 for _ in islice(failed, most))
