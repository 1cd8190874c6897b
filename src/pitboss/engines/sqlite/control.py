"""What operators do to many tasks at once. A filter picks them; each act is bounded."""

from collections.abc import Iterable

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.filters import STATE_INDEXES, matching, names_ids
from pitboss.engines.sqlite.history import record
from pitboss.engines.sqlite.lead import check_term
from pitboss.engines.sqlite.rows import TASK_COLUMNS, last_run, task_of
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.queue import Changed
from pitboss.model.states import State
from pitboss.model.task import Task

_CANCELLABLE = (State.HELD, State.SCHEDULED, State.PENDING, State.RUNNING)
_RETRYABLE = (State.FAILED, State.CANCELLED)
# The first line is the condition of the index on the end of tasks, word for word: only so does SQLite see that it fits.
_PRUNABLE = """
    state IN ('completed', 'failed', 'cancelled')
    AND finished_at < ?
    AND NOT EXISTS (
        SELECT 1 FROM pitboss_uniques
        WHERE key = unique_key AND task = pitboss_tasks.id AND (until IS NULL OR until > ?)
    )
"""
_NEVER: Moment = 2**62


def cancel(act: Act, wanted: Filter, reason: str, limit: int) -> Changed:
    """Waiting tasks end; running ones are marked."""
    found = _picked(act, wanted, _CANCELLABLE, limit + 1, "AND cancel_asked = 0")
    tasks = found[:limit]
    running = [task for task in tasks if task.state is State.RUNNING]
    waiting = [task for task in tasks if task.state is not State.RUNNING]
    if running:
        act.run("cancel_ask", reason or "cancelled", json_list(task.id for task in running))
    if waiting:
        act.run("cancel_waiting", reason or "cancelled", act.now, json_list(task.id for task in waiting))
        act.bulk("key_free", _keys(waiting))
    for task in waiting:
        act.moved(task.queue, task.state.value, "cancelled")
    return Changed(changed=len(waiting), asked=len(running), more=len(found) > limit)


def retry(act: Act, wanted: Filter, keep_attempts: bool, limit: int) -> Changed:
    """Failed and cancelled tasks live again, unless another task has their key by now."""
    found = _picked(act, wanted, _RETRYABLE, limit + 1)
    tasks = found[:limit]
    refused = tuple(task.id for task in tasks if task.unique_key is not None and not _retaken(act, task))
    revived = [task for task in tasks if task.id not in refused]
    runs = [(task.id, run) for task in revived if (run := last_run(task)) is not None]
    if runs:
        record(act, runs)
    known = {name for name in {task.handler for task in revived} if act.one("handler_known", name)}
    for task in revived:
        ready = task.handler in known
        act.run("retry", task.id, *(("pending", None) if ready else ("held", "handler")), int(keep_attempts))
        act.moved(task.queue, task.state.value, "pending" if ready else "held")
        act.rings.add(task.queue)
    return Changed(changed=len(revived), refused=refused, more=len(found) > limit)


def prune(act: Act, wanted: Filter, before: Moment | None, limit: int, term: int | None) -> Changed:
    """Delete finished tasks, their history and what is left of their keys; with a term, as its leader only."""
    if term is not None:
        check_term(act, term)
    chosen = matching(wanted, act.now)
    index = "" if names_ids(wanted) else "INDEXED BY pitboss_tasks_finished"
    where = f"{index} WHERE {_PRUNABLE} AND {chosen.sql} ORDER BY finished_at LIMIT ?"
    ended = _NEVER if before is None else before
    found = _selected(act, where, [ended, act.now, *chosen.values, limit + 1])
    tasks = found[:limit]
    if tasks:
        ids = json_list(task.id for task in tasks)
        act.run("prune_attempts", ids)
        act.run("prune_keys", ids, json_list(task.unique_key for task in tasks if task.unique_key is not None))
        act.run("prune_tasks", ids)
    for task in tasks:
        act.moved(task.queue, task.state.value, None)
    return Changed(changed=len(tasks), more=len(found) > limit)


def _picked(act: Act, wanted: Filter, states: Iterable[State], limit: int, extra: str = "") -> list[Task]:
    """The oldest matching tasks of these states, through the states' own indexes: finished tasks cost nothing."""
    chosen, by_id = matching(wanted, act.now), names_ids(wanted)
    found: list[Task] = []
    for state in wanted.states().intersection(states):
        index = "" if by_id else f"INDEXED BY {STATE_INDEXES[state]}"
        where = f"{index} WHERE state = '{state.value}' {extra} AND {chosen.sql} ORDER BY id LIMIT ?"
        found += _selected(act, where, [*chosen.values, limit])
    return sorted(found, key=lambda task: task.id)[:limit]


def _selected(act: Act, where: str, values: list[object]) -> list[Task]:
    return [task_of(row) for row in act.query(f"SELECT {TASK_COLUMNS} FROM pitboss_tasks {where}", values)]


def _retaken(act: Act, task: Task) -> bool:
    """The task has its key, still or again."""
    holder = act.one("key_holder", task.unique_key, act.now)
    if holder is None:
        act.run("key_take", task.unique_key, task.id, None)
    return holder is None or holder[0] == task.id


def _keys(tasks: list[Task]) -> list[Row]:
    return [(task.id, task.unique_key) for task in tasks if task.unique_key is not None]
