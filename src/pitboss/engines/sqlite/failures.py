"""What follows tasks that have failed for good. `model.failure` has the rule."""

from collections.abc import Iterable
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.put import put_follow_ups
from pitboss.engines.sqlite.rows import handler_of, task_of
from pitboss.model.failure import failed_for_good, failure_tasks, needed_handlers
from pitboss.model.ids import TaskId
from pitboss.model.states import State


def may_be_followed(state: State, reason: str | None) -> bool:
    """Whether `follow` should look at the task."""
    return state is State.FAILED or (state is State.CANCELLED and reason == "expired")


def follow(act: Act, ended: Iterable[TaskId]) -> bool:
    """Put what follows those of these tasks that have failed for good; False if nothing does.

    Where no handler has routes this is one small read.
    """
    routed: list[Any] = list(act.rows("handler_list_routed"))
    if not routed:
        return False
    rows: Iterable[Any] = act.rows("task_get", json_list(ended))
    failed = [task for task in map(task_of, rows) if failed_for_good(task)]
    needed = needed_handlers(failed, dict(routed))
    if not needed:
        return False
    known: Iterable[Any] = act.rows("handler_list_named", json_list(sorted(needed)))
    handlers = {one.name: one for one in map(handler_of, known)}
    return bool(put_follow_ups(act, [new for task in failed for new in failure_tasks(task, handlers)]))
