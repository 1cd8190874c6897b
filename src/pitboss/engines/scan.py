"""Which tasks a filter chooses, for engines that read their tasks one by one.

`model.matching` says whether a task matches. These functions say what the verbs of `Ledger` and `Control` do with that.
An engine may leave out tasks that cannot match, such as those in none of the filter's states. `tasks` come oldest
first, except where `find` asks otherwise; they are read no further than needed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from pitboss.engines.protocol import Page
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
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
    tasks: Iterable[Task], wanted: Filter, now: Moment, *, limit: int, after: TaskId | None, oldest_first: bool
) -> Page:
    """A page. `tasks` come in the order of the page: newest first, unless `oldest_first`."""
    if after is not None:
        tasks = (task for task in tasks if (task.id > after if oldest_first else task.id < after))
    found, more = _first(matching(tasks, wanted, now), limit)
    return Page(found, found[-1].id if more else None)


def count(tasks: Iterable[Task], wanted: Filter, now: Moment) -> int:
    return sum(1 for _ in matching(tasks, wanted, now))


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
