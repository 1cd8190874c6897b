"""What operators do to many tasks at once, and the registry of handlers.

Lock order: the leader's row, the operation, lanes, batches, order keys, tasks by id, unique keys.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import UNSET

from pitboss.engines.postgres import failures
from pitboss.engines.postgres.dialect import compiled
from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.locked_batches import LockedBatches
from pitboss.engines.postgres.order import LockedOrder
from pitboss.engines.postgres.rows import flags, names, numbers, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements, current
from pitboss.model.batch import OVER
from pitboss.model.duration import Moment
from pitboss.model.failure import has_routes
from pitboss.model.filter import Filter
from pitboss.model.operation import OperationId
from pitboss.model.queue import Changed, HandlerInfo
from pitboss.model.task import TaskChange


def cancel(sql: Statements, wanted: Filter, reason: str, limit: int, now: Moment | None) -> Script[Changed]:
    moment = yield from current(sql, now)
    term = compiled(wanted, moment)
    found = yield Ask(sql.text("task_cancellable", condition=term.sql), [*term.values, limit + 1])
    locked, order = yield from _locked(sql, found[:limit])
    ids = texts([row[0] for row in found[:limit]])
    rows = yield Ask(sql.text("task_lock_cancellable", condition=term.sql), [*term.values, ids])
    changed, asked = yield from cancel_locked(sql, locked, [row[0] for row in rows], reason or "cancelled", moment)
    yield from order.advance(moment)
    return Changed(changed=changed, asked=asked, more=len(found) > limit)


def cancel_locked(
    sql: Statements, locked: LockedBatches, ids: list[str], reason: str, now: Moment
) -> Script[tuple[int, int]]:
    """Cancel locked tasks of locked batches; how many ended, and how many were asked to stop."""
    rows = yield sql.ask("task_cancel", now, ids=texts(ids), reason=reason)
    yield from locked.changed({batch: -changed for batch, changed, _ in rows if batch is not None}, now)
    return sum(row[1] for row in rows), sum(row[2] for row in rows)


def expire(sql: Statements, ids: Sequence[str], now: Moment | None) -> Script[None]:
    """Cancel tasks that are past their expiry, and put what follows."""
    moment = yield from current(sql, now)
    looked = yield sql.ask("claim_read", ids=texts(ids))
    locked, order = yield from _locked(sql, [(row[0], row[4], row[8]) for row in looked])
    routes: list[Row] = []
    yield failures.routes(sql).into(routes)
    rows = yield sql.ask("task_lock_expired", moment, ids=texts(ids))
    expired = [row[0] for row in rows]
    yield from cancel_locked(sql, locked, expired, "expired", moment)
    yield from order.advance(moment)
    yield from failures.follow(sql, expired, routes, moment)


def retry(
    sql: Statements, wanted: Filter, keep: bool, limit: int, now: Moment | None, operation: OperationId | None = None
) -> Script[Changed]:
    moment = yield from current(sql, now)
    term = compiled(wanted, moment)
    found = yield Ask(sql.text("task_retryable", condition=term.sql), [*term.values, limit + 1])
    locked, order = yield from _locked(sql, found[:limit])
    ids = texts([row[0] for row in found[:limit]])
    rows = yield Ask(sql.text("task_lock_retryable", condition=term.sql), [*term.values, ids])
    tasks = [(row[0], row[1]) for row in rows]
    changed, refused = yield from retry_locked(sql, locked, tasks, keep, moment, operation)
    yield from order.advance(moment)
    return Changed(changed=changed, refused=refused, more=len(found) > limit)


def retry_locked(
    sql: Statements,
    locked: LockedBatches,
    tasks: list[tuple[str, str | None]],
    keep: bool,
    now: Moment,
    operation: OperationId | None = None,
) -> Script[tuple[int, tuple[str, ...]]]:
    """Make locked ended tasks (with their keys) pending again, for an operation; how many, and those whose key another
    task has. Their batches are locked; one that had ended goes back in line."""
    refused = yield from _without_key(sql, tasks, now)
    ids = [task for task, _ in tasks if task not in refused]
    rows = yield sql.ask("task_retry", now, ids=texts(ids), keep=keep, running=locked.running, operation=operation)
    if ids:
        yield sql.ask("attempt_forget", tasks=texts(ids))
    revived = {batch: count for batch, count, _ in rows if batch is not None}
    for batch in sorted(revived):
        if locked.batches[batch].status in OVER:
            yield from locked.back_in_line(locked.batches[batch])
    yield from locked.changed(revived, now)
    for lane in sorted({locked.batches[batch].lane for batch in revived}):
        yield from locked.promote(lane, now)
    return sum(row[1] for row in rows), tuple(sorted(refused))


def change_tasks(
    sql: Statements, wanted: Filter, change: TaskChange, limit: int, now: Moment | None
) -> Script[Changed]:
    moment = yield from current(sql, now)
    term = compiled(wanted, moment)
    priority = None if change.priority is UNSET else change.priority
    tag, untag = texts(change.tag), texts(change.untag)
    asked = [*term.values, priority, tag, untag, limit + 1]
    found = yield Ask(sql.text("task_lock_changeable", condition=term.sql), asked)
    ids = texts([row[0] for row in found[:limit]])
    yield sql.ask("task_change", ids=ids, priority=priority, tag=tag, untag=untag).unheard()
    return Changed(changed=len(found[:limit]), more=len(found) > limit)


def prune(
    sql: Statements, wanted: Filter, before: Moment | None, limit: int, now: Moment | None, term: int | None
) -> Script[Changed]:
    if term is not None:
        yield from check_term(sql, now, term)
    moment = yield from current(sql, now)
    chosen = compiled(wanted, moment)
    text = sql.text("task_prunable", condition=chosen.sql)
    found = yield Ask(text, [before, moment, *chosen.values, limit + 1])
    ((changed, _),) = yield sql.ask("task_remove", now, ids=texts([row[0] for row in found[:limit]]))
    return Changed(changed=changed, more=len(found) > limit)


def register(sql: Statements, handlers: Sequence[HandlerInfo], now: Moment | None) -> Script[None]:
    """Add these handlers, within a transaction. New ones get numbers in the order of the list."""
    yield sql.ask("handler_lock").unheard()
    places = sorted(range(len(handlers)), key=lambda place: handlers[place].name)
    added = [handlers[place] for place in places]
    yield sql.ask(
        "handler_add",
        now,
        names=texts([handler.name for handler in added]),
        queues=texts([handler.queue for handler in added]),
        policies=texts([handler.policy for handler in added]),
        schemas=texts([handler.schema for handler in added]),
        pools=texts([handler.resources for handler in added]),
        remotes=flags(handler.remote for handler in added),
        abouts=texts([handler.about for handler in added]),
        routed=flags(has_routes(handler.about) for handler in added),
        places=numbers(places),
    )


def _locked(sql: Statements, tasks: Sequence[Row]) -> Script[tuple[LockedBatches, LockedOrder]]:
    """Lock the lanes, batches and order keys of these tasks, before the tasks themselves."""
    locked, order = LockedBatches(sql, lanes=True), LockedOrder(sql)
    yield from locked.lock(Counter(batch for _, batch, _ in tasks if batch is not None))
    yield from order.lock({task: key for task, _, key in tasks}, locked.completions())
    return locked, order


def _without_key(sql: Statements, tasks: list[tuple[str, str | None]], now: Moment | None) -> Script[set[str]]:
    """Take the keys of tasks that are retried; the tasks whose key another one has."""
    first: dict[str, str] = {}
    for task, key in tasks:
        if key is not None:
            first.setdefault(key, task)
    if not first:
        return set()
    keys = sorted(first)
    yield sql.ask("key_take", now, keys=texts(keys), tasks=texts([first[key] for key in keys]))
    rows = yield sql.ask("key_holder", keys=names(keys))
    holders: dict[str, str] = {row[0]: row[1] for row in rows}
    return {task for task, key in tasks if key is not None and holders.get(key) != task}
