"""The tasks, and what is derived from them. Every change goes through `write`, so nothing derived can drift."""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from pitboss.model.duration import Moment
from pitboss.model.errors import QueueFull
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo, Queue, Wish
from pitboss.model.session import Session
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt, NewTask, Placed, Task

MAX_ATTEMPT_RECORDS = 100
_Rank = tuple[int, TaskId]


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
        self._pending: dict[str, list[_Rank]] = defaultdict(list)

    def write(self, task: Task) -> Task:
        """Store a task as it is now and bring the derived figures along."""
        old = self.tasks.get(task.id)
        if old:
            self._count(old, -1)
            if old.state is State.PENDING:
                self._pending[old.queue].remove((old.priority, old.id))
        self.tasks[task.id] = task
        self._count(task, +1)
        if task.state is State.PENDING:
            insort(self._pending[task.queue], (task.priority, task.id))
        if task.state in FINISHED:
            self._free_key(task)
        return task

    def move(self, task: Task, state: State, **changes: object) -> Task:
        return self.write(msgspec.structs.replace(task, state=state, **changes))

    def remove(self, task: Task) -> None:
        self._count(task, -1)
        del self.tasks[task.id]
        self.history.pop(task.id, None)
        if task.unique_key is not None and self.keys.get(task.unique_key, ("", None))[0] == task.id:
            del self.keys[task.unique_key]

    def pending(self, queues: Iterable[str]) -> Iterator[Task]:
        """Pending tasks of these queues as they should run: priority, then age."""
        ranks = sorted(rank for queue in set(queues) for rank in self._pending[queue])
        return (self.tasks[task] for _, task in ranks)

    def has_pending(self, queue: str) -> bool:
        return bool(self._pending[queue])

    def in_state(self, state: State) -> list[Task]:
        return [task for task in self.tasks.values() if task.state is state]

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

    def place(self, new: NewTask, now: Moment) -> Placed:
        """Create the task, or meet the one that is there."""
        met = self._met(new, now)
        if met is not None:
            task = self.tasks[met]
            return Placed(task.id, False, task.state, task.reason)
        self.queue(new.queue)
        if new.unique:
            period = new.unique.period
            self.keys[new.unique.key] = (new.id, None if period is None else now + period)
        task = self.write(self._created(new, now))
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

    def _created(self, new: NewTask, now: Moment) -> Task:
        due = new.due(now)
        state, reason = (State.SCHEDULED if due else State.PENDING), None
        if new.handler not in self.handlers:
            state, reason = State.HELD, "handler"
        return Task(
            id=new.id,
            handler=new.handler,
            queue=new.queue,
            state=state,
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
            reason=reason,
        )

    def _free_key(self, task: Task) -> None:
        if task.unique_key is not None and self.keys.get(task.unique_key) == (task.id, None):
            del self.keys[task.unique_key]

    def _count(self, task: Task, change: int) -> None:
        counts = self.counts[task.queue]
        counts[task.state] = counts.get(task.state, 0) + change
        if not counts[task.state]:
            del counts[task.state]


def last_run(task: Task) -> Attempt | None:
    """The run that finished the task, which its own row tells; earlier ones stand in the history."""
    if task.state not in FINISHED or task.started_at is None or task.finished_at is None:
        return None
    return Attempt(
        claim=task.claim,
        attempt=task.attempts,
        outcome=task.outcome or "",
        started_at=task.started_at,
        ended_at=task.finished_at,
        session=task.session,
        worker=task.worker,
        error=task.error,
    )
