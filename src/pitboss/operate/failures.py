"""Failed tasks, grouped by cause."""

import msgspec

from pitboss.engines.protocol import Ledger
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.filter import Filter, by
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.text import one_line

MOST_READ = 10_000
_PAGE = 500


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failures with one cause. `sample` is the newest of them."""

    fingerprint: str
    handler: str
    error: str
    message: str
    count: int
    first: Moment
    last: Moment
    sample: TaskId


class FailureGroups(msgspec.Struct, frozen=True):
    """The largest group first. `more`: there are more failures than the newest `MOST_READ`, which were read."""

    groups: tuple[FailureGroup, ...]
    more: bool = False


async def failure_groups(store: Ledger, wanted: Filter) -> FailureGroups:
    found: dict[tuple[str, str], FailureGroup] = {}
    seen, after = 0, None
    failed = wanted.also(state=State.FAILED)
    while seen < MOST_READ:
        page = await store.find(failed, limit=_PAGE, after=after)
        for task in page.tasks:
            key = task.error.fingerprint if task.error else "", task.handler
            found[key] = _added(found[key], task) if key in found else _first(task)
        seen += len(page.tasks)
        after = page.next
        if after is None:
            break
    ordered = sorted(found.values(), key=lambda group: (-group.count, -group.last))
    return FailureGroups(tuple(ordered), after is not None)


async def find_failure_group(store: Ledger, name: str) -> FailureGroup:
    """The group with this fingerprint, or with one that begins like this."""
    found = await failure_groups(store, by(fingerprint=f"{name}*"))
    if not found.groups:
        raise NotFound(
            f'there is no group of failures "{name}"',
            why="no failed task has a fingerprint that begins like this",
            fix="pitboss dead list shows the groups",
        )
    return found.groups[0]


def _first(task: Task) -> FailureGroup:
    error = task.error
    return FailureGroup(
        fingerprint=error.fingerprint if error else "",
        handler=task.handler,
        error=(error.type or error.category) if error else "",
        message=one_line(error.message if error else task.reason or ""),
        count=1,
        first=_ended(task),
        last=_ended(task),
        sample=task.id,
    )


def _added(group: FailureGroup, task: Task) -> FailureGroup:
    first, last = min(group.first, _ended(task)), max(group.last, _ended(task))
    return msgspec.structs.replace(group, count=group.count + 1, first=first, last=last)


def _ended(task: Task) -> Moment:
    return task.finished_at or task.created_at
