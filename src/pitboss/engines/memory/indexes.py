"""Sorted lists of task ids, so that a verb reads the tasks it needs and no others."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heapreplace, merge
from itertools import islice

from pitboss.model.batch import BatchId
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Task

# A number to sort by (priority or a moment), then the id.
Entry = tuple[int, TaskId]
_Index = list[Entry]


class TaskIndexes:
    """`Tables` adds and removes every task that it writes."""

    def __init__(self) -> None:
        self._states: dict[State, dict[TaskId, None]] = {state: {} for state in State}
        self._pending: dict[str, _Index] = defaultdict(list)
        self._scheduled: dict[str, _Index] = defaultdict(list)
        self._held_for: dict[str, _Index] = defaultdict(list)
        self._in_order: dict[str, _Index] = defaultdict(list)
        self._undrawn: dict[tuple[BatchId, str], _Index] = defaultdict(list)
        self._ended: dict[BatchId, _Index] = defaultdict(list)
        self._items: dict[BatchId, dict[TaskId, None]] = defaultdict(dict)
        # By queue and partition key.
        self._pending_of: dict[tuple[str, str], _Index] = defaultdict(list)
        self._running_of: dict[tuple[str, str], int] = defaultdict(int)

    def add(self, task: Task) -> None:
        self._states[task.state][task.id] = None
        if task.batch is not None:
            self._items[task.batch][task.id] = None
        index, entry = self._entry(task)
        if index is not None:
            insort(index, entry)
        if task.partition is not None and task.state is State.PENDING:
            insort(self._pending_of[task.queue, task.partition], entry)
        elif task.partition is not None and task.state is State.RUNNING:
            self._running_of[task.queue, task.partition] += 1

    def remove(self, task: Task) -> None:
        del self._states[task.state][task.id]
        if task.batch is not None:
            del self._items[task.batch][task.id]
        index, entry = self._entry(task)
        if index is not None:
            del index[bisect_left(index, entry)]
        if task.partition is not None and task.state is State.PENDING:
            keyed = self._pending_of[task.queue, task.partition]
            del keyed[bisect_left(keyed, entry)]
        elif task.partition is not None and task.state is State.RUNNING:
            self._running_of[task.queue, task.partition] -= 1

    def in_state(self, state: State) -> list[TaskId]:
        """Oldest first."""
        return sorted(self._states[state])

    def pending(self, queues: Iterable[str], closed: Container[str] = ()) -> Iterator[TaskId]:
        """By priority, then age. The caller may add a queue to `closed` on the way: it gives no more then."""
        lines = [(iter(list(self._pending[queue])), queue) for queue in sorted(set(queues))]
        heads = [(head, number) for number, (line, _) in enumerate(lines) if (head := next(line, None))]
        heapify(heads)
        while heads:
            (_, task), number = heads[0]
            line, queue = lines[number]
            following = None
            if queue not in closed:
                yield task
                following = next(line, None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following, number))

    def first_pending(self, queue: str, limit: int | None) -> list[TaskId]:
        return [task for _, task in self._pending[queue][:limit]]

    def pending_of(self, queue: str, key: str) -> list[TaskId]:
        """The pending tasks with this partition key, by priority, then age."""
        return [task for _, task in self._pending_of[queue, key]]

    def running_of(self, queue: str, key: str) -> int:
        """How many tasks with this partition key run."""
        return self._running_of[queue, key]

    def has_pending(self, queue: str) -> bool:
        return bool(self._pending[queue])

    def due(self, queue: str, now: Moment) -> list[TaskId]:
        """The scheduled tasks of a queue whose time has come."""
        index = self._scheduled[queue]
        return [task for _, task in index[: bisect_left(index, (now + 1, ""))]]

    def next_due(self, queue: str) -> Moment | None:
        index = self._scheduled[queue]
        return index[0][0] if index else None

    def held_for(self, handlers: Iterable[str], limit: int | None) -> list[TaskId]:
        """Tasks that are held for one of these handlers, oldest first."""
        return sorted(task for name in set(handlers) for _, task in self._held_for[name])[:limit]

    def first_in_order(self, key: str) -> TaskId | None:
        """The oldest of the tasks that are held behind the first one with this key."""
        index = self._in_order.get(key)
        return index[0][1] if index else None

    def undrawn(self, batch: BatchId, queues: Iterable[str], limit: int) -> list[TaskId]:
        """The next items of a batch to draw."""
        return [task for _, task in islice(merge(*(self._undrawn[batch, queue] for queue in queues)), limit)]

    def items(self, batch: BatchId) -> list[TaskId]:
        """Oldest first."""
        return sorted(self._items.get(batch, ()))

    def ended_since(self, batch: BatchId, moment: Moment) -> int:
        index = self._ended.get(batch, [])
        return len(index) - bisect_left(index, (moment, ""))

    def _entry(self, task: Task) -> tuple[_Index | None, Entry]:
        if task.state is State.PENDING:
            return self._pending[task.queue], (task.priority, task.id)
        if task.state is State.SCHEDULED:
            return self._scheduled[task.queue], (task.run_at or 0, task.id)
        if task.state is State.HELD and task.reason == "handler":
            return self._held_for[task.handler], (task.priority, task.id)
        if task.state is State.HELD and task.reason == "order":
            return self._in_order[task.order_key or ""], (task.created_at, task.id)
        if task.state is State.HELD and task.batch is not None:
            return self._undrawn[task.batch, task.queue], (task.priority, task.id)
        if task.state in FINISHED and task.batch is not None:
            return self._ended[task.batch], (task.finished_at or 0, task.id)
        return None, (0, "")
