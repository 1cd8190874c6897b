"""Everything that the store holds, and what is derived from it. Every change of a task goes through `write`."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence

from msgspec.structs import replace

from pitboss.engines.memory.indexes import TaskIndexes
from pitboss.engines.memory.members import PoolMembers
from pitboss.model.access import ApiKey, AuditEntry, Remembered
from pitboss.model.alert import Silence
from pitboss.model.batch import OVER, Batch, BatchId
from pitboss.model.batching import Waiting, waits
from pitboss.model.canonical import Json
from pitboss.model.declared import Declared
from pitboss.model.duration import Moment, Span
from pitboss.model.event import Event
from pitboss.model.figures import RAW, FlowCounts, Sample, SampleKey, bucket
from pitboss.model.happening import Happening, HappeningId
from pitboss.model.ids import TaskId
from pitboss.model.lifecycle import MAX_RECORDED_RUNS, KeyHold, created, key_hold, moved, rebased, stepped
from pitboss.model.operation import Operation, OperationId
from pitboss.model.partition import Partition, partition_key
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import HandlerInfo, Queue, Wish, check_capacity, remote_queues
from pitboss.model.resource import Leased
from pitboss.model.schedule import Schedule
from pitboss.model.session import Session
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt, NewTask, Placed, Task
from pitboss.model.totals import Measured, Places


class Doorbell:
    """Wakes those that wait for queues. A ring is remembered until a wait hears it."""

    def __init__(self) -> None:
        self._rung: set[str] = set()
        # A dict keeps the order of arrival: a simulation must wake its waiters in the same order every time.
        self._waiters: dict[asyncio.Event, None] = {}

    def ring(self, queues: Iterable[str]) -> None:
        self._rung.update(queues)
        for event in self._waiters:
            event.set()

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        event = asyncio.Event()
        self._waiters[event] = None
        try:
            async with asyncio.timeout(timeout):
                while not self._heard(queues):
                    event.clear()
                    await event.wait()
                return True
        except TimeoutError:
            return False
        finally:
            self._waiters.pop(event, None)

    def _heard(self, queues: Sequence[str] | None) -> bool:
        heard = set(self._rung) if queues is None else self._rung.intersection(queues)
        self._rung -= heard
        return bool(heard)


class StoredFigures:
    """The flows of each bucket, by its length and its beginning, samples, and the totals of both."""

    def __init__(self) -> None:
        self.flows: dict[tuple[Span, Moment], FlowCounts] = defaultdict(FlowCounts)
        self.samples: dict[SampleKey, Sample] = {}
        self.ever = FlowCounts()
        self.measured = Measured()
        self._places = Places()

    def count(self, kind: str, queue: str, handler: str, now: Moment) -> None:
        self.flows[RAW, bucket(now, RAW)].add(kind, queue, handler)
        self._places.add([(queue, handler)])
        self.ever.add(kind, *self._places.counted(queue, handler))


class Tables:
    """A whole store. It has no clock: callers pass the moment."""

    # The newest term, which stays after it ended, and the session that leads under it.
    term = 0
    leader: int | None = None
    # Why new tasks are refused; None: they are not.
    refusing: str | None = None
    audit: dict[str, AuditEntry]
    happenings: dict[HappeningId, Happening]

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.history: dict[TaskId, list[Attempt]] = defaultdict(list)
        self.keys: dict[str, KeyHold] = {}
        self.queues: dict[str, Queue] = {}
        self.counts: dict[str, dict[State, int]] = defaultdict(dict)
        self.starts: dict[str, list[Moment]] = defaultdict(list)
        self.handlers: dict[str, HandlerInfo] = {}
        self.sessions: dict[int, Session] = {}
        self.wishes: dict[str, Wish] = {}
        self.version = 0
        self.pools: dict[str, PoolMembers] = {}
        self.leases: dict[str, Leased] = {}
        # Queue -> the pool whose members its tasks hold.
        self.bound: dict[str, str] = {}
        # Queues of which all handlers are remote.
        self.remote: set[str] = set()
        self.batches: dict[BatchId, Batch] = {}
        self.items: dict[BatchId, dict[str, dict[State, int]]] = defaultdict(lambda: defaultdict(dict))
        # Lane -> how many of its batches run at a time, and those that have not ended.
        self.lanes: dict[str, int] = {}
        self.lines: dict[str, dict[BatchId, Batch]] = defaultdict(dict)
        # Batches whose items changed since `BatchLifecycle.update_batches`, in the order of change.
        self.touched: dict[BatchId, None] = {}
        self.indexes = TaskIndexes()
        self.doorbell = Doorbell()
        # How far the wall clock is ahead of the store's, and the tasks that follow it (`NewTask.by_wall`).
        self.ahead: Span = 0
        self.api_keys: dict[str, ApiKey] = {}
        self.audit, self.happenings = {}, {}
        self.requests: dict[str, Remembered] = {}
        self.by_wall: dict[TaskId, int] = {}
        # Order key -> the unfinished task that is first in line; those behind it are held.
        self.heads: dict[str, TaskId] = {}
        # App -> what it declares, all fingerprints that it ever had, and that of each session.
        self.declared: dict[str, Declared] = {}
        self.fingerprints: dict[str, set[str]] = {}
        self.declarers: dict[str, dict[int, str]] = {}
        # Queue -> the app that declares it.
        self.queue_apps: dict[str, str] = {}
        self.schedules: dict[str, Schedule] = {}
        self.events: dict[str, Event] = {}
        self.operations: dict[OperationId, Operation] = {}
        # The operation that last retried a task.
        self.retried: dict[TaskId, OperationId] = {}
        # The slots of workers by name, and of each queue the partition keys.
        self.slots: dict[str, PoolSlot] = {}
        self.keys_of: dict[str, dict[str, Partition]] = defaultdict(dict)
        # What the leader knows of alerts, its version, and the silences of operators by rule.
        self.alert_notes: tuple[Json | None, int] = (None, 0)
        self.silences: dict[str, Silence] = {}
        self.figures = StoredFigures()

    def follow_wall(self, ahead: Span) -> None:
        """Move the tasks that follow the wall clock, if that was set."""
        if not stepped(self.ahead, ahead):
            return
        for name, flags in self.by_wall.items():
            if not self.tasks[name].state.finished:
                self.write(rebased(self.tasks[name], flags, ahead - self.ahead))
        self.ahead = ahead

    def write(self, task: Task) -> Task:
        """Store the task, and update everything derived from it."""
        old = self.tasks.get(task.id)
        if old:
            self._count(old, -1)
            self.indexes.remove(old)
        self.tasks[task.id] = task
        self._count(task, +1)
        self.indexes.add(task)
        if task.state in FINISHED:
            if old and old.state not in FINISHED:
                self.count_flow(task.state.value, task, task.finished_at or 0)
            self._free_key(task)
            self._next_in_order(task)
        return task

    def count_flow(self, kind: str, task: Task, now: Moment) -> None:
        self.figures.count(kind, task.queue, task.handler, now)

    def move(self, task: Task, state: State, **changes: object) -> Task:
        return self.write(replace(task, state=state, **changes))

    def remove(self, task: Task) -> None:
        self._count(task, -1)
        self.indexes.remove(task)
        del self.tasks[task.id]
        self.history.pop(task.id, None)
        self.by_wall.pop(task.id, None)
        self.retried.pop(task.id, None)
        if task.unique_key is not None and self.keys.get(task.unique_key, KeyHold("")).task == task.id:
            del self.keys[task.unique_key]

    def place(self, new: NewTask, now: Moment, batch: BatchId | None = None) -> Placed:
        """Create the task, or meet the one that has its id or its unique key."""
        met = self._met(new, now)
        if met is not None:
            task = self.tasks[met]
            return Placed(task.id, False, task.state, task.reason)
        self.queue(new.queue)
        if new.unique:
            self.keys[new.unique.key] = key_hold(new, now)
        known = new.handler in self.handlers
        behind = new.order_key is not None and self.heads.setdefault(new.order_key, new.id) != new.id
        partition = self._partition(new)
        task = self.write(
            created(new, now, known=known, batch=batch, ahead=self.ahead, behind=behind, partition=partition)
        )
        self.count_flow("put", task, now)
        if new.by_wall is not None:
            self.by_wall[new.id] = new.by_wall
        if task.state is State.PENDING:
            self.doorbell.ring([task.queue])
        return Placed(task.id, True, task.state, task.reason)

    def key_row(self, queue: str, key: str) -> Partition:
        """The row of a partition key, created if it is new."""
        return self.keys_of[queue].setdefault(key, Partition(queue=queue, key=key))

    def _partition(self, new: NewTask) -> str | None:
        spec = self.queues[new.queue].partitions
        key = None if spec is None else partition_key(spec.by, new.params)
        if key is not None:
            self.key_row(new.queue, key)
        return key

    def check_room(self, tasks: Iterable[NewTask], now: Moment) -> None:
        """Raise `QueueFull` if the new ones among these tasks overfill a queue. Nothing was written yet."""
        new_per_queue: Counter[str] = Counter()
        ids: set[str] = set()
        keys: set[str] = set()
        for new in tasks:
            key = new.unique.key if new.unique else None
            if new.id in ids or key in keys or self._met(new, now) is not None:
                continue
            new_per_queue[new.queue] += 1
            ids.add(new.id)
            if key is not None:
                keys.add(key)
        for name in sorted(new_per_queue.keys() & self.queues.keys()):
            check_capacity(self.queues[name], self._waiting(name), new_per_queue[name])

    def record(self, task: TaskId, run: Attempt) -> None:
        self.history[task] = [*self.history[task], run][-MAX_RECORDED_RUNS:]

    def release_held(self, handlers: Iterable[str], now: Moment, limit: int | None = None) -> int:
        """Let the tasks wait again that are held for one of these handlers."""
        held = [self.tasks[task] for task in self.indexes.held_for(handlers, limit)]
        for task in held:
            self.write(moved(task, self.waits(task, task.run_at, now)))
        self.doorbell.ring({task.queue for task in held})
        return len(held)

    def waits(self, task: Task, run_at: Moment | None, now: Moment) -> Waiting:
        """Where the task goes when it waits again. The next claim holds it if no live session knows its handler."""
        batch = None if task.batch is None else self.batches[task.batch].status
        return waits(batch, known=True, run_at=run_at, now=now)

    def key_holder(self, key: str, now: Moment) -> TaskId | None:
        """The task that has the key now."""
        hold = self.keys.get(key)
        return hold.task if hold is not None and hold.lasts(now) else None

    def queue(self, name: str) -> Queue:
        """The queue, created if it is new."""
        return self.queues.setdefault(name, Queue(name=name))

    def pending(self, queues: Iterable[str], closed: Container[str] = ()) -> Iterator[Task]:
        """Pending tasks of these queues in the order in which they should run."""
        return (self.tasks[task] for task in self.indexes.pending(queues, closed))

    def first_pending(self, queue: str, limit: int | None) -> list[Task]:
        return [self.tasks[task] for task in self.indexes.first_pending(queue, limit)]

    def pending_of(self, queue: str, key: str) -> list[Task]:
        return [self.tasks[task] for task in self.indexes.pending_of(queue, key)]

    def in_state(self, state: State) -> list[Task]:
        return [self.tasks[task] for task in self.indexes.in_state(state)]

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

    def bind_queues(self) -> None:
        """Bind each queue to the pool of the first of its handlers, by name, that needs one; note the remote queues."""
        self.remote = remote_queues(self.handlers.values())
        needing = (self.handlers[name] for name in sorted(self.handlers, reverse=True))
        self.bound = {info.queue: info.resources for info in needing if info.resources is not None}

    def queues_of(self, pool: str) -> list[str]:
        return [queue for queue, bound in self.bound.items() if bound == pool]

    def pool(self, name: str, now: Moment) -> PoolMembers:
        """The pool as it is now. An unknown pool has no members and is not created."""
        members = self.pools.get(name) or PoolMembers(name)
        members.wake(now)
        return members

    def _met(self, new: NewTask, now: Moment) -> TaskId | None:
        if new.id in self.tasks:
            return new.id
        return self.key_holder(new.unique.key, now) if new.unique else None

    def _waiting(self, queue: str) -> int:
        return sum(self.counts[queue].get(state, 0) for state in WAITING)

    def _free_key(self, task: Task) -> None:
        hold = None if task.unique_key is None else self.keys.get(task.unique_key)
        if hold is not None and hold.ends_with(task):
            del self.keys[task.unique_key or ""]

    def _next_in_order(self, task: Task) -> None:
        """The end of the first in line lets the next one wait."""
        key = task.order_key
        if key is None or self.heads.get(key) != task.id:
            return
        following = self.indexes.first_in_order(key)
        if following is None:
            del self.heads[key]
            return
        now, self.heads[key] = task.finished_at or 0, following
        behind = self.tasks[following]
        place = waits(None, known=behind.handler in self.handlers, run_at=behind.run_at, now=now)
        self.write(moved(behind, place))
        self.doorbell.ring([behind.queue])

    def _count(self, task: Task, change: int) -> None:
        _add(self.counts[task.queue], task.state, change)
        if task.batch is not None:
            _add(self.items[task.batch][task.queue], task.state, change)
            self.touched[task.batch] = None


def _add(counts: dict[State, int], state: State, change: int) -> None:
    counts[state] = counts.get(state, 0) + change
    if not counts[state]:
        del counts[state]
