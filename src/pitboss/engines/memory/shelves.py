"""Which tasks are where: lists in the order in which they are looked for, so that the others cost nothing."""

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

Rank = tuple[int, TaskId]
_Shelf = list[Rank]


class Shelves:
    """Follows every task that the book writes."""

    def __init__(self) -> None:
        self._states: dict[State, dict[TaskId, None]] = {state: {} for state in State}
        self._pending: dict[str, _Shelf] = defaultdict(list)
        self._scheduled: dict[str, _Shelf] = defaultdict(list)
        self._held_for: dict[str, _Shelf] = defaultdict(list)
        self._undrawn: dict[tuple[BatchId, str], _Shelf] = defaultdict(list)
        self._ended: dict[BatchId, _Shelf] = defaultdict(list)
        self._items: dict[BatchId, dict[TaskId, None]] = defaultdict(dict)

    def enter(self, task: Task) -> None:
        self._states[task.state][task.id] = None
        if task.batch is not None:
            self._items[task.batch][task.id] = None
        shelf, rank = self._place(task)
        if shelf is not None:
            insort(shelf, rank)

    def leave(self, task: Task) -> None:
        del self._states[task.state][task.id]
        if task.batch is not None:
            del self._items[task.batch][task.id]
        shelf, rank = self._place(task)
        if shelf is not None:
            del shelf[bisect_left(shelf, rank)]

    def in_state(self, state: State) -> list[TaskId]:
        """Oldest first."""
        return sorted(self._states[state])

    def pending(self, queues: Iterable[str], closed: Container[str] = ()) -> Iterator[TaskId]:
        """As they should run: priority, then age. A queue that is closed on the way gives no more."""
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

    def has_pending(self, queue: str) -> bool:
        return bool(self._pending[queue])

    def due(self, queue: str, now: Moment) -> list[TaskId]:
        """The scheduled tasks of a queue whose time has come."""
        shelf = self._scheduled[queue]
        return [task for _, task in shelf[: bisect_left(shelf, (now + 1, ""))]]

    def next_due(self, queue: str) -> Moment | None:
        shelf = self._scheduled[queue]
        return shelf[0][0] if shelf else None

    def held_for(self, handlers: Iterable[str], limit: int | None) -> list[TaskId]:
        """Tasks that are held because of these handlers, oldest first."""
        return sorted(task for name in set(handlers) for _, task in self._held_for[name])[:limit]

    def undrawn(self, batch: BatchId, queues: Iterable[str], limit: int) -> list[TaskId]:
        """The next items of a batch."""
        return [task for _, task in islice(merge(*(self._undrawn[batch, queue] for queue in queues)), limit)]

    def items(self, batch: BatchId) -> list[TaskId]:
        """Oldest first."""
        return sorted(self._items.get(batch, ()))

    def ended_since(self, batch: BatchId, moment: Moment) -> int:
        shelf = self._ended.get(batch, [])
        return len(shelf) - bisect_left(shelf, (moment, ""))

    def _place(self, task: Task) -> tuple[_Shelf | None, Rank]:
        if task.state is State.PENDING:
            return self._pending[task.queue], (task.priority, task.id)
        if task.state is State.SCHEDULED:
            return self._scheduled[task.queue], (task.run_at or 0, task.id)
        if task.state is State.HELD and task.reason == "handler":
            return self._held_for[task.handler], (task.priority, task.id)
        if task.state is State.HELD and task.batch is not None:
            return self._undrawn[task.batch, task.queue], (task.priority, task.id)
        if task.state in FINISHED and task.batch is not None:
            return self._ended[task.batch], (task.finished_at or 0, task.id)
        return None, (0, "")
