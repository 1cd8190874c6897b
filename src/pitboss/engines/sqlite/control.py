"""Cancelling, retrying and pruning tasks that a filter selects, a bounded number at a time."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.batch_lifecycle import back_in_line, batch_of, stored
from pitboss.engines.sqlite.filters import STATE_INDEXES, matching, names_batches, names_ids
from pitboss.engines.sqlite.order import line_of, release_next
from pitboss.engines.sqlite.registry import check_term
from pitboss.engines.sqlite.rows import TASK_COLUMNS, tags_text, task_of
from pitboss.model.batch import OVER, Batch, BatchId, BatchStatus
from pitboss.model.batching import HELD_IN_ORDER, Waiting, waits
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.operation import OperationId
from pitboss.model.queue import Changed
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Task, TaskChange, last_run

_CANCELLABLE = (State.HELD, State.SCHEDULED, State.PENDING, State.RUNNING)
_RETRYABLE = (State.FAILED, State.CANCELLED)
# The first line repeats the condition of the index pitboss_tasks_finished word for word, or SQLite would not use it.
_PRUNABLE = """
    state IN ('completed', 'failed', 'cancelled') AND batch IS NULL
    AND finished_at < ?
    AND NOT EXISTS (
        SELECT 1 FROM pitboss_uniques
        WHERE key = unique_key AND task = pitboss_tasks.id AND (until IS NULL OR until > ?)
    )
"""
_NEVER: Moment = 2**62
# SQLite's number for a file that shrinks when it is asked to.
_INCREMENTAL = 2
_KEPT_PAGES = 2000
_KEPT_PART = 4
# About a hundredth of a second of work.
_PAGES_AT_ONCE = 1000


def cancel(act: Act, wanted: Filter, reason: str, limit: int) -> Changed:
    """Cancel waiting tasks; mark running ones."""
    found = _picked(act, wanted, _CANCELLABLE, limit + 1, "AND cancel_asked = 0")
    asked = cancel_tasks(act, found[:limit], reason or "cancelled")
    return Changed(changed=len(found[:limit]) - asked, asked=asked, more=len(found) > limit)


def cancel_tasks(act: Act, tasks: Sequence[Task], reason: str) -> int:
    """Cancel the waiting tasks, and mark the running ones; how many were marked."""
    running = [task for task in tasks if task.state is State.RUNNING]
    waiting = [task for task in tasks if task.state is not State.RUNNING]
    if running:
        act.run("task_ask_cancel", reason, json_list(task.id for task in running))
    if waiting:
        act.run("task_cancel", reason, act.now, json_list(task.id for task in waiting))
        act.bulk("key_free", _keys(waiting))
    for task in waiting:
        act.moved(task.queue, task.state.value, "cancelled", batch=task.batch)
        act.happened("cancelled", task.queue, task.handler)
    ordered = [task.id for task in waiting if task.order_key is not None]
    if ordered:
        release_next(act, ordered)
    return len(running)


def cancel_items(act: Act, batch: Batch, limit: int) -> tuple[int, bool]:
    """Cancel the unfinished items of a batch: how many, and whether more are left."""
    found = items(act, batch.id, _CANCELLABLE, limit + 1, "AND cancel_asked = 0")
    cancel_tasks(act, found[:limit], batch.reason or "cancelled")
    return len(found[:limit]), len(found) > limit


def continue_cancelling(act: Act, limit: int) -> tuple[int, bool]:
    """Cancel items of batches that are being cancelled: how many, and whether more are left."""
    cancelled, more = 0, False
    rows: list[Any] = list(act.rows("batch_list_cancelling"))
    for row in rows:
        changed, left = cancel_items(act, batch_of(row), limit - cancelled)
        cancelled, more = cancelled + changed, more or left
    return cancelled, more


def retry(act: Act, wanted: Filter, keep_attempts: bool, limit: int, operation: OperationId | None = None) -> Changed:
    """Failed and cancelled tasks wait again, unless another task has their key by now."""
    found = _picked(act, wanted, _RETRYABLE, limit + 1)
    refused = revive(act, found[:limit], keep_attempts, operation)
    return Changed(changed=len(found[:limit]) - len(refused), refused=refused, more=len(found) > limit)


def change_tasks(act: Act, wanted: Filter, change: TaskChange, limit: int) -> Changed:
    """Give waiting tasks another priority or other tags, if they differ."""
    differs = "AND (priority <> coalesce(?, priority) OR EXISTS ("
    differs += "SELECT 1 FROM json_each(?) AS new WHERE new.value NOT IN (SELECT value FROM json_each(tags)))"
    differs += " OR EXISTS (SELECT 1 FROM json_each(tags) AS old WHERE old.value IN (SELECT value FROM json_each(?))))"
    priority = None if change.priority is UNSET else change.priority
    values = (priority, json_list(change.tag), json_list(change.untag))
    found = _picked(act, wanted, WAITING, limit + 1, differs, values)
    for task in map(change.applied_to, found[:limit]):
        act.run("task_change", task.id, task.priority, tags_text(task.tags))
    return Changed(changed=len(found[:limit]), more=len(found) > limit)


def revive(
    act: Act, tasks: Sequence[Task], keep_attempts: bool, operation: OperationId | None = None
) -> tuple[TaskId, ...]:
    """Let ended tasks wait again, perhaps for an operation; the ids of those whose key another task has."""
    refused = tuple(task.id for task in tasks if task.unique_key is not None and not _retaken(act, task))
    revived = [task for task in tasks if task.id not in refused]
    runs = [(task.id, run) for task in revived if (run := last_run(task)) is not None]
    if runs:
        act.record(runs)
    known = {name for name in {task.handler for task in revived} if act.one("handler_known", name)}
    statuses = _reopened(act, dict.fromkeys(task.batch for task in revived if task.batch is not None))
    line = line_of(act, (task.order_key for task in revived))
    places: dict[Waiting, list[TaskId]] = {}
    for task in revived:
        place = waits(statuses.get(task.batch), known=task.handler in known, run_at=None, now=act.now)
        if line is not None and line.is_behind(task.order_key, task.id):
            place = HELD_IN_ORDER
        places.setdefault(place, []).append(task.id)
        act.moved(task.queue, task.state.value, place.state.value, batch=task.batch)
        act.happened("revived", task.queue, task.handler)
        act.rings.add(task.queue)
    for place, ids in places.items():
        act.run("task_retry", json_list(ids), place.state.value, place.reason, int(keep_attempts), operation, act.now)
    if line is not None:
        line.write()
    return refused


def _reopened(act: Act, names: Iterable[BatchId]) -> dict[str | None, BatchStatus]:
    """Queue ended batches again, in the order of their oldest items; the statuses of all these batches."""
    statuses: dict[str | None, BatchStatus] = {}
    for name in names:
        batch = stored(act, name)
        if batch is not None:
            over = batch.status in OVER
            if over:
                back_in_line(act, batch)
            statuses[name] = BatchStatus.QUEUED if over else batch.status
    return statuses


def prune(act: Act, wanted: Filter, before: Moment | None, limit: int, term: int | None) -> Changed:
    """Delete finished tasks with their history and keys; with a term, only as its leader."""
    if term is not None:
        check_term(act, term)
    chosen = matching(wanted, act.now)
    values = [_NEVER if before is None else before, act.now, *chosen.values]
    if names_ids(wanted):
        # The pluses keep SQLite from the index of all tasks that ended: these are found by their ids.
        places = [f"WHERE {_PRUNABLE.replace('state IN', '+state IN').replace('finished_at', '+finished_at')}"]
    else:
        states = sorted(wanted.states() & FINISHED)
        places = [f"INDEXED BY pitboss_tasks_finished WHERE state = '{one.value}' AND {_PRUNABLE}" for one in states]
    found: list[Task] = []
    for place in places:
        where = f"{place} AND {chosen.sql} ORDER BY finished_at LIMIT ?"
        found += _selected(act, where, [*values, limit + 1 - len(found)])
    tasks = found[:limit]
    erase(act, tasks)
    if term is not None:
        _shrink(act)
    return Changed(changed=len(tasks), more=len(found) > limit)


def _shrink(act: Act) -> None:
    """Give unused pages at the end of the file back to the disk, some at a time. A quarter is kept, to be used again.

    Files of earlier releases keep their size: only a new file can be made so that it shrinks.
    """
    row: Any = act.one("usage_pages")
    spare = row[1] - max(_KEPT_PAGES, row[0] // _KEPT_PART)
    if row[2] == _INCREMENTAL:
        # Python ends this pragma after its first page, whatever number it is given.
        for _ in range(min(spare, _PAGES_AT_ONCE)):
            act.query("PRAGMA incremental_vacuum(1)", ())


def erase(act: Act, tasks: Sequence[Task]) -> None:
    """Delete tasks with their history and keys."""
    if tasks:
        ids = json_list(task.id for task in tasks)
        act.run("attempt_remove", ids)
        act.run("key_remove", ids, json_list(task.unique_key for task in tasks if task.unique_key is not None))
        act.run("task_remove", ids)
    for task in tasks:
        act.moved(task.queue, task.state.value, None, batch=task.batch)


def items(
    act: Act, batch: BatchId, states: Iterable[State], limit: int, extra: str = "", values: Sequence[object] = ()
) -> list[Task]:
    """The oldest items of a batch in these states."""
    found: list[Task] = []
    for state in states:
        where = f"INDEXED BY pitboss_tasks_items WHERE batch = ? AND state = ? {extra} ORDER BY id LIMIT ?"
        found += _selected(act, where, [batch, state.value, *values, limit])
    return sorted(found, key=lambda task: task.id)[:limit]


def _picked(
    act: Act, wanted: Filter, states: Iterable[State], limit: int, extra: str = "", values: Sequence[object] = ()
) -> list[Task]:
    """The oldest matching tasks of these states, by the index of each state: other tasks cost nothing."""
    chosen, free = matching(wanted, act.now), names_ids(wanted) or names_batches(wanted)
    found: list[Task] = []
    for state in wanted.states().intersection(states):
        index = "" if free else f"INDEXED BY {STATE_INDEXES[state]}"
        where = f"{index} WHERE state = '{state.value}' {extra} AND {chosen.sql} ORDER BY id LIMIT ?"
        found += _selected(act, where, [*values, *chosen.values, limit])
    return sorted(found, key=lambda task: task.id)[:limit]


def _selected(act: Act, where: str, values: list[object]) -> list[Task]:
    return [task_of(row) for row in act.query(f"SELECT {TASK_COLUMNS} FROM pitboss_tasks {where}", values)]


def _retaken(act: Act, task: Task) -> bool:
    """Take the key for the task, unless another task has it."""
    holder = act.one("key_holder", task.unique_key, act.now)
    if holder is None:
        act.run("key_take", task.unique_key, task.id, None)
    return holder is None or holder[0] == task.id


def _keys(tasks: list[Task]) -> list[Row]:
    return [(task.id, task.unique_key) for task in tasks if task.unique_key is not None]
