"""The tasks, and what is derived from them. Every change goes through `write`, so nothing derived can drift."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator

import msgspec

from pitboss.engines.memory.members import Members
from pitboss.engines.memory.shelves import Shelves
from pitboss.model.batch import OVER, Batch, BatchId
from pitboss.model.batching import HELD_BY_BATCH, HELD_FOR_HANDLER, Waiting, waits
from pitboss.model.duration import Moment
from pitboss.model.errors import QueueFull
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo, Queue, Wish
from pitboss.model.resource import Leased
from pitboss.model.session import Session
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt, NewTask, Placed, Task

MAX_ATTEMPT_RECORDS = 100


class Book:
    """All that a store holds. No clock and no waiting in here: moments are handed in."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.history: dict[TaskId, list[Attempt]] = defaultdict(list)
        self.keys: dict[str, tuple[TaskId, Moment | None]] = {}
        self.queues: dict[str, Queue] = {}
        self.counts: dict[str, dict[State, int]] = defaultdict(dict)
        self.starts: dict[str, list[Moment]] = defaultdict(list)
        self.handlers: dict[str, HandlerInfo] = {}
        self.sessions: dict[int, Session] = {}
        self.wishes: dict[str, Wish] = {}
        self.version = 0
        # The newest term, also after it ended, and the session that leads under it.
        self.term = 0
        self.leader: int | None = None
        self.pools: dict[str, Members] = {}
        self.leases: dict[str, Leased] = {}
        # Queue -> the pool of which its tasks hold a member.
        self.bound: dict[str, str] = {}
        self.batches: dict[BatchId, Batch] = {}
        self.items: dict[BatchId, dict[str, dict[State, int]]] = defaultdict(lambda: defaultdict(dict))
        # Lane -> how many batches run there at a time, and those of it that have not ended.
        self.lanes: dict[str, int] = {}
        self.lines: dict[str, dict[BatchId, Batch]] = defaultdict(dict)
        # Batches whose items have changed since somebody looked, in the order of changing.
        self.touched: dict[BatchId, None] = {}
        self.shelves = Shelves()

    def write(self, task: Task) -> Task:
        """Store a task as it is now and bring the derived figures along."""
        old = self.tasks.get(task.id)
        if old:
            self._count(old, -1)
            self.shelves.leave(old)
        self.tasks[task.id] = task
        self._count(task, +1)
        self.shelves.enter(task)
        if task.state in FINISHED:
            self._free_key(task)
        return task

    def move(self, task: Task, state: State, **changes: object) -> Task:
        return self.write(msgspec.structs.replace(task, state=state, **changes))

    def remove(self, task: Task) -> None:
        self._count(task, -1)
        self.shelves.leave(task)
        del self.tasks[task.id]
        self.history.pop(task.id, None)
        if task.unique_key is not None and self.keys.get(task.unique_key, ("", None))[0] == task.id:
            del self.keys[task.unique_key]

    def write_batch(self, batch: Batch) -> Batch:
        self.batches[batch.id] = batch
        self.lanes.setdefault(batch.lane, 1)
        if batch.status in OVER:
            self.lines[batch.lane].pop(batch.id, None)
        else:
            self.lines[batch.lane][batch.id] = batch
        return batch

    def remove_batch(self, batch: Batch) -> None:
        del self.batches[batch.id]
        self.lines[batch.lane].pop(batch.id, None)
        self.items.pop(batch.id, None)
        self.touched.pop(batch.id, None)

    def waits(self, task: Task, run_at: Moment | None, now: Moment) -> Waiting:
        """Where the task goes if it goes back to waiting. Whether its handler is known is seen to at the next claim."""
        batch = None if task.batch is None else self.batches[task.batch].status
        return waits(batch, known=True, run_at=run_at, now=now)

    def bind_queues(self) -> None:
        """Each queue to the pool of the first of its registered handlers, by name, that asks for one."""
        asking = (self.handlers[name] for name in sorted(self.handlers, reverse=True))
        self.bound = {info.queue: info.resources for info in asking if info.resources is not None}

    def queues_of(self, pool: str) -> list[str]:
        return [queue for queue, bound in self.bound.items() if bound == pool]

    def pending(self, queues: Iterable[str], closed: Container[str] = ()) -> Iterator[Task]:
        """Pending tasks of these queues as they should run: priority, then age."""
        return (self.tasks[task] for task in self.shelves.pending(queues, closed))

    def has_pending(self, queue: str) -> bool:
        return self.shelves.has_pending(queue)

    def in_state(self, state: State) -> list[Task]:
        return [self.tasks[task] for task in self.shelves.in_state(state)]

    def waiting(self, queue: str) -> int:
        return sum(self.counts[queue].get(state, 0) for state in WAITING)

    def key_holder(self, key: str, now: Moment) -> TaskId | None:
        """The task that has the key at this moment."""
        task, until = self.keys.get(key, (None, None))
        if task is None or (until is not None and until <= now):
            return None
        return task

    def queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue(name=name))

    def place(self, new: NewTask, now: Moment, batch: BatchId | None = None) -> Placed:
        """Create the task, or meet the one that is there. An item of a batch is held until it is drawn."""
        met = self._met(new, now)
        if met is not None:
            task = self.tasks[met]
            return Placed(task.id, False, task.state, task.reason)
        self.queue(new.queue)
        if new.unique:
            period = new.unique.period
            self.keys[new.unique.key] = (new.id, None if period is None else now + period)
        task = self.write(self._created(new, now, batch))
        return Placed(task.id, True, task.state, task.reason)

    def check_room(self, tasks: Iterable[NewTask], now: Moment) -> None:
        """Refuse before anything is written if the new ones among the tasks overfill a queue."""
        asked: dict[str, int] = defaultdict(int)
        fresh_ids: set[str] = set()
        fresh_keys: set[str] = set()
        for new in tasks:
            key = new.unique.key if new.unique else None
            if new.id in fresh_ids or key in fresh_keys or self._met(new, now) is not None:
                continue
            asked[new.queue] += 1
            fresh_ids.add(new.id)
            if key is not None:
                fresh_keys.add(key)
        for name in sorted(asked):
            capacity = self.queues[name].capacity if name in self.queues else None
            if capacity is not None and self.waiting(name) + asked[name] > capacity:
                raise QueueFull(name, capacity, self.waiting(name), asked[name])

    def record(self, task: TaskId, attempt: Attempt) -> None:
        self.history[task] = [*self.history[task], attempt][-MAX_ATTEMPT_RECORDS:]

    def _met(self, new: NewTask, now: Moment) -> TaskId | None:
        if new.id in self.tasks:
            return new.id
        return self.key_holder(new.unique.key, now) if new.unique else None

    def _created(self, new: NewTask, now: Moment, batch: BatchId | None) -> Task:
        due = new.due(now)
        place = Waiting(State.SCHEDULED if due else State.PENDING)
        if batch is not None:
            place = HELD_BY_BATCH
        elif new.handler not in self.handlers:
            place = HELD_FOR_HANDLER
        return Task(
            id=new.id,
            handler=new.handler,
            queue=new.queue,
            state=place.state,
            params=new.params,
            priority=new.priority,
            created_at=now,
            run_at=due,
            max_attempts=new.max_attempts,
            timeout=new.timeout,
            expires_at=new.expiry(now),
            unique_key=new.unique.key if new.unique else None,
            tags=new.tags,
            parent=new.parent,
            reason=place.reason,
            batch=batch,
            want=new.want,
        )

    def _free_key(self, task: Task) -> None:
        if task.unique_key is not None and self.keys.get(task.unique_key) == (task.id, None):
            del self.keys[task.unique_key]

    def _count(self, task: Task, change: int) -> None:
        _add(self.counts[task.queue], task.state, change)
        if task.batch is not None:
            _add(self.items[task.batch][task.queue], task.state, change)
            self.touched[task.batch] = None


def _add(counts: dict[State, int], state: State, change: int) -> None:
    counts[state] = counts.get(state, 0) + change
    if not counts[state]:
        del counts[state]
