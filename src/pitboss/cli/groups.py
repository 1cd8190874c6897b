"""Failed tasks, grouped by what went wrong."""

from typing import TYPE_CHECKING, Any

import msgspec

from pitboss.cli.words import one_line, utc
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.filter import Filter, by
from pitboss.model.states import State
from pitboss.model.task import Task

if TYPE_CHECKING:
    from pitboss.engines.protocol import Ledger

LOOKED_AT = 10_000
_PAGE = 500


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Failures with one cause. `sample` is the newest of them."""

    fingerprint: str
    handler: str
    error: str
    message: str
    count: int
    first: Moment
    last: Moment
    sample: str

    def also(self, task: Task) -> "Group":
        moment = _ended(task)
        first, last = min(self.first, moment), max(self.last, moment)
        return msgspec.structs.replace(self, count=self.count + 1, first=first, last=last)

    def document(self) -> dict[str, Any]:
        return {**msgspec.structs.asdict(self), "first": utc(self.first), "last": utc(self.last)}


async def groups(store: "Ledger", wanted: Filter) -> tuple[list[Group], bool]:
    """The groups, the largest first; True if there were more failures than are looked at, the newest."""
    found: dict[tuple[str, str], Group] = {}
    seen, after = 0, None
    failed = wanted.also(state=State.FAILED)
    while seen < LOOKED_AT:
        page = await store.find(failed, limit=_PAGE, after=after)
        for task in page.tasks:
            key = task.error.fingerprint if task.error else "", task.handler
            found[key] = found[key].also(task) if key in found else _first(task)
        seen += len(page.tasks)
        after = page.next
        if after is None:
            break
    return sorted(found.values(), key=lambda group: (-group.count, -group.last)), after is not None


async def group_of(store: "Ledger", name: str) -> Group:
    """The group that a fingerprint, or the beginning of one, names."""
    found, _ = await groups(store, by(fingerprint=f"{name}*"))
    if not found:
        raise NotFound(
            f'there is no group of failures "{name}"',
            why="no failed task has a fingerprint that begins so",
            fix="pitboss dead list shows the groups",
        )
    return found[0]


def _first(task: Task) -> Group:
    error = task.error
    return Group(
        fingerprint=error.fingerprint if error else "",
        handler=task.handler,
        error=(error.type or error.category) if error else "",
        message=one_line(error.message if error else task.reason or ""),
        count=1,
        first=_ended(task),
        last=_ended(task),
        sample=task.id,
    )


def _ended(task: Task) -> Moment:
    return task.finished_at or task.created_at
