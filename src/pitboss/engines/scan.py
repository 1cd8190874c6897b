"""Which tasks a filter chooses, for engines that read their tasks one by one.

`model.matching` says whether a task matches. These functions say what the verbs of `Ledger` and `Control` do with that.
An engine may leave out tasks that cannot match, such as those in none of the filter's states. `tasks` come oldest
first, except where `find` asks otherwise; they are read no further than needed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from pitboss.engines.protocol import MOST_READ, Page
from pitboss.model.duration import Moment
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Count, Filter
from pitboss.model.ids import TaskId, moment_of
from pitboss.model.matching import matches
from pitboss.model.queue import Changed
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Task, TaskChange

CANCELLABLE = frozenset(State) - FINISHED
RETRYABLE = frozenset({State.FAILED, State.CANCELLED})


class Chosen(NamedTuple):
    """The tasks that a verb of `Control` changes, and whether its limit left some out."""

    tasks: list[Task]
    more: bool

    def answer(self, refused: Sequence[TaskId] = ()) -> Changed:
        """The verb's answer, once it has changed all of these tasks but the refused ones."""
        asked = sum(task.state is State.RUNNING for task in self.tasks)
        changed = len(self.tasks) - asked - len(refused)
        return Changed(changed=changed, asked=asked, refused=tuple(refused), more=self.more)


def matching(tasks: Iterable[Task], wanted: Filter, now: Moment) -> Iterator[Task]:
    return (task for task in tasks if matches(wanted, task, now))


def find(
    tasks: Iterable[Task],
    wanted: Filter,
    now: Moment,
    *,
    limit: int,
    after: TaskId | None,
    oldest_first: bool,
    most: int = MOST_READ,
) -> Page:
    """A page. `tasks` come in the order of the page: newest first, unless `oldest_first`."""
    if after is not None:
        tasks = (task for task in tasks if (task.id > after if oldest_first else task.id < after))
    found: list[Task] = []
    last, most = "", max(most, limit)
    for looked, task in enumerate(tasks):
        if looked == most:
            return Page(found, last, moment_of(last))
        last = task.id
        if not matches(wanted, task, now):
            continue
        if len(found) == limit:
            return Page(found, found[-1].id)
        found.append(task)
    return Page(found, None)


def count(tasks: Iterable[Task], wanted: Filter, now: Moment, *, most: int = MOST_READ) -> Count:
    """A filter of states and queues only counts all `tasks`."""
    if all(term.field in ("queue", "state") for term in wanted.terms):
        return Count(sum(1 for _ in matching(tasks, wanted, now)))
    looked = list(islice(tasks, most + 1))
    number = sum(1 for _ in matching(looked, wanted, now))
    return Count(min(number, most), len(looked) > most)


def failures(tasks: Iterable[Task], *, most: int = MOST_READ) -> list[FailureCount]:
    """The groups of failed tasks. `tasks` come newest first."""
    groups: dict[tuple[str | None, str], list[Task]] = defaultdict(list)
    for task in tasks:
        if task.state is State.FAILED:
            groups[task.error.fingerprint if task.error else None, task.handler].append(task)
    return [_group(*key, groups[key], most) for key in groups]


def _group(fingerprint: str | None, handler: str, tasks: list[Task], most: int) -> FailureCount:
    ends = [task.finished_at or 0 for task in tasks[:most]]
    return FailureCount(
        fingerprint=fingerprint,
        handler=handler,
        count=Count(len(ends), len(tasks) > most),
        first=min(ends),
        last=max(ends),
        newest=tasks[0].id,
    )


def to_cancel(tasks: Iterable[Task], wanted: Filter, now: Moment, limit: int) -> Chosen:
    """The tasks to hand to `lifecycle.cancelled`."""
    unfinished = (task for task in tasks if task.state in CANCELLABLE and not task.cancel_asked)
    return _first(matching(unfinished, wanted, now), limit)


def to_retry(tasks: Iterable[Task], wanted: Filter, now: Moment, limit: int) -> Chosen:
    """The tasks to hand to `lifecycle.retried`, unless another task has their unique key."""
    ended = (task for task in tasks if task.state in RETRYABLE)
    return _first(matching(ended, wanted, now), limit)


def to_change(tasks: Iterable[Task], wanted: Filter, change: TaskChange, now: Moment, limit: int) -> Chosen:
    """The tasks that are different after `change.applied_to`."""
    waiting = (task for task in tasks if task.state in WAITING and change.applied_to(task) is not task)
    return _first(matching(waiting, wanted, now), limit)


def to_prune(
    tasks: Iterable[Task],
    wanted: Filter,
    now: Moment,
    limit: int,
    *,
    before: Moment | None,
    has_key: Callable[[Task], bool],
) -> Chosen:
    """The tasks to delete. `has_key` says whether a task holds its unique key now. Items go with their batch."""
    finished = (
        task
        for task in tasks
        if task.finished_at is not None
        and task.state in FINISHED
        and task.batch is None
        and (before is None or task.finished_at < before)
        and not has_key(task)
    )
    return _first(matching(finished, wanted, now), limit)


def _first(tasks: Iterator[Task], limit: int) -> Chosen:
    found = list(islice(tasks, limit + 1))
    return Chosen(found[:limit], len(found) > limit)
