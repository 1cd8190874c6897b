"""Failed tasks, grouped by cause."""

from collections.abc import Sequence

import msgspec

from pitboss.engines.protocol import MOST_READ, Ledger
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import NotFound
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Filter, Term, by, written
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.text import one_line

_PAGE = 500
# What a filter may name, so that the store's own groups answer it.
_OF_GROUPS = ("state", "fingerprint", "task")


# The name of the failures whose error has no fingerprint.
NO_FINGERPRINT = "-"
_WITHOUT_ERROR = Filter((*by(state=State.FAILED).terms, Term(field="fingerprint", values=("*",), negated=True)))


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failures with one cause. `sample` is the newest of them. `more`: there are more of them than `count`."""

    fingerprint: str
    handler: str
    error: str
    message: str
    count: int
    more: bool = False
    first: Moment
    last: Moment
    sample: TaskId

    @property
    def name(self) -> str:
        return self.fingerprint or NO_FINGERPRINT

    @property
    def filter(self) -> str:
        """The filter that selects its tasks."""
        return written(self.cause.also(task=self.handler))

    @property
    def cause(self) -> Filter:
        """Failures with its fingerprint, of every handler."""
        return _of_cause(self.fingerprint) if self.error else _WITHOUT_ERROR


class FailureCause(msgspec.Struct, frozen=True):
    """All failures with one fingerprint, by handler, the largest group first."""

    groups: tuple[FailureGroup, ...]

    @property
    def name(self) -> str:
        return self.groups[0].name

    @property
    def count(self) -> int:
        return sum(one.count for one in self.groups)

    @property
    def more(self) -> bool:
        return any(one.more for one in self.groups)

    @property
    def first(self) -> Moment:
        return min(one.first for one in self.groups)

    @property
    def last(self) -> Moment:
        return max(one.last for one in self.groups)

    @property
    def filter(self) -> str:
        return written(self.groups[0].cause)


class FailureGroups(msgspec.Struct, frozen=True):
    """The largest group first. `back_to`: only failed tasks that were created since then were read, and there are older
    ones; None: all were."""

    groups: tuple[FailureGroup, ...]
    back_to: Moment | None = None

    @property
    def more(self) -> bool:
        return self.back_to is not None


async def failure_groups(store: Ledger, wanted: Filter, *, most: int | None = None) -> FailureGroups:
    """The groups of all failures, or of the newest ones (at most `most`) that the filter chooses."""
    failed = wanted.also(state=State.FAILED)
    if all(term.field in _OF_GROUPS for term in failed.terms):
        return FailureGroups(_largest_first(await _all_groups(store, failed)))
    found: dict[tuple[str, str], FailureGroup] = {}
    seen, after = 0, None
    while True:
        page = await store.find(failed, limit=_PAGE, after=after)
        for task in page.tasks:
            key = task.error.fingerprint if task.error else "", task.handler
            found[key] = _added(found[key], task) if key in found else _first(task)
        seen, after = seen + len(page.tasks), page.next
        if after is None or page.covered is not None or seen >= (most or MOST_READ):
            groups = _largest_first(list(found.values()))
            return FailureGroups(groups, None if after is None else page.covered or page.tasks[-1].created_at)


async def failures_over_time(store: Ledger, wanted: Filter, now: Moment, *, step: Span, steps: int) -> list[int]:
    """How many of the newest failures that the filter chooses ended in each step until now, the oldest step first."""
    counts = [0] * steps
    for task in (await store.find(wanted.also(state=State.FAILED), limit=_PAGE)).tasks:
        ago = (now - (task.finished_at or 0)) // step
        if 0 <= ago < steps:
            counts[steps - 1 - ago] += 1
    return counts


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


async def find_failure_cause(store: Ledger, name: str) -> FailureCause:
    """All groups with this fingerprint, or with the largest one that begins like this; `NO_FINGERPRINT` for those
    without one."""
    if name == NO_FINGERPRINT:
        groups = (await failure_groups(store, _of_cause(""))).groups
        groups = groups or (await failure_groups(store, _WITHOUT_ERROR)).groups
    else:
        groups = (await failure_groups(store, (await find_failure_group(store, name)).cause)).groups
    if not groups:
        raise NotFound(
            "no failed task is without a fingerprint",
            why="they were retried or deleted since",
            fix="pitboss dead list shows the groups",
        )
    return FailureCause(groups)


def _of_cause(fingerprint: str) -> Filter:
    return by(state=State.FAILED, fingerprint=fingerprint)


async def _all_groups(store: Ledger, failed: Filter) -> list[FailureGroup]:
    if State.FAILED not in failed.states():
        return []
    counts = [one for one in await store.failures(most=MOST_READ) if _admitted(failed, one)]
    groups: list[FailureGroup] = []
    for start in range(0, len(counts), _PAGE):
        some = counts[start : start + _PAGE]
        for one, task in zip(some, await store.get([one.newest for one in some]), strict=True):
            # It may have been retried or deleted since.
            if task is not None:
                count, more = one.count
                groups.append(
                    msgspec.structs.replace(_first(task), count=count, more=more, first=one.first, last=one.last)
                )
    return groups


def _admitted(failed: Filter, one: FailureCount) -> bool:
    marks = () if one.fingerprint is None else (one.fingerprint,)
    return failed.admits("fingerprint", *marks) and failed.admits("task", one.handler)


def _largest_first(groups: Sequence[FailureGroup]) -> tuple[FailureGroup, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.count, -group.last)))


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
