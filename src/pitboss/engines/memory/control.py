"""Reading and control: ledger, queues, handlers, desired state."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from pitboss.engines import scan
from pitboss.engines.memory.verbs import Verbs
from pitboss.engines.protocol import MOST_READ, Clock, Page
from pitboss.model.duration import Moment
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Count, Filter, by
from pitboss.model.finding import Finding, warning
from pitboss.model.ids import TaskId
from pitboss.model.lifecycle import MAX_RECORDED_RUNS, cancelled
from pitboss.model.limits import opens_at
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish, changed_queue
from pitboss.model.states import State
from pitboss.model.task import Attempt, Task, TaskChange, last_run


class ControlVerbs(Verbs):
    """The protocols `Ledger`, `Control`, `Queues`, `Handlers`, `Desired` and `Diagnosis`."""

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return [self.tables.tasks.get(task) for task in ids]

    async def find(
        self,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        oldest_first: bool = False,
        most: int = MOST_READ,
    ) -> Page:
        tasks, now = self._candidates(wanted, newest_first=not oldest_first), self.clock.now()
        return scan.find(tasks, wanted, now, limit=limit, after=after, oldest_first=oldest_first, most=most)

    async def count(self, wanted: Filter, *, most: int = MOST_READ) -> Count:
        return scan.count(self._candidates(wanted), wanted, self.clock.now(), most=most)

    async def failures(self, *, most: int = MOST_READ) -> list[FailureCount]:
        return scan.failures(self._candidates(by(state=State.FAILED), newest_first=True), most=most)

    async def tasks_before(self, task: TaskId, *, limit: int = 20_000) -> int | None:
        known = self.tables.tasks.get(task)
        if known is None or known.state is not State.PENDING:
            return None
        line = self.tables.indexes.first_pending(known.queue, limit)
        return line.index(task) if task in line else limit

    async def attempts(self, task: TaskId) -> list[Attempt]:
        known = self.tables.tasks.get(task)
        last = last_run(known) if known else None
        return [*self.tables.history.get(task, []), *([last] if last else [])][-MAX_RECORDED_RUNS:]

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        now = self.clock.now()
        chosen = scan.to_cancel(self._candidates(wanted), wanted, now, limit)
        for task in chosen.tasks:
            self.tables.write(cancelled(task, reason or "cancelled", now))
        self.batch_lifecycle.update_batches(now)
        self.audit()
        return chosen.answer()

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        now = self.clock.now()
        chosen = scan.to_retry(self._candidates(wanted), wanted, now, limit)
        refused = [task.id for task in chosen.tasks if not self._revive(task, keep_attempts)]
        for lane in {self.tables.batches[task.batch].lane: None for task in chosen.tasks if task.batch is not None}:
            self.batch_lifecycle.promote(lane, now)
        self.batch_lifecycle.update_batches(now)
        self.audit()
        return chosen.answer(refused)

    async def change_tasks(self, wanted: Filter, change: TaskChange, *, limit: int = 1000) -> Changed:
        chosen = scan.to_change(self._candidates(wanted), wanted, change, self.clock.now(), limit)
        for task in chosen.tasks:
            self.tables.write(change.applied_to(task))
        self.audit()
        return chosen.answer()

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        now = self.clock.now()
        if term is not None:
            self.check_term(term, now)
        chosen = scan.to_prune(
            self._candidates(wanted), wanted, now, limit, before=before, has_key=lambda task: self._has_key(task, now)
        )
        for task in chosen.tasks:
            self.tables.remove(task)
        self.audit()
        return chosen.answer()

    async def queues(self) -> list[Queue]:
        return [self._queue(name) for name in sorted(self.tables.queues)]

    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        self.tables.queues[name] = changed_queue(self.tables.queue(name), change, self.clock.now())
        self.ring([name])
        self.audit()
        return self._queue(name)

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        added, known, now = {handler.name: handler for handler in handlers}, self.tables.handlers, self.clock.now()
        for name, handler in added.items():
            number = max((one.number for one in known.values()), default=0) + 1
            known[name] = handler.registered(known.get(name), number, now)
        self._bind_queues()
        self.tables.release_held(added, now)
        self.audit()

    async def handlers(self) -> list[HandlerInfo]:
        return [self.tables.handlers[name] for name in sorted(self.tables.handlers)]

    async def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.tables.handlers.pop(name, None)
        self._bind_queues()
        self.audit()

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        self.tables.version += 1
        self.tables.wishes[key] = Wish(key=key, value=value, version=self.tables.version, by=by)
        self.ring(["*"])
        self.audit()
        return self.tables.version

    async def wishes(self, since: int = 0) -> list[Wish]:
        newer = (wish for wish in self.tables.wishes.values() if wish.version > since)
        return sorted(newer, key=lambda wish: wish.version)

    async def diagnose(self, clock: Clock) -> list[Finding]:
        return [
            warning(
                "durability",
                "everything is in the memory of one process",
                why="it is forgotten when the process ends",
                fix="name a SQLite file or a PostgreSQL server as the store",
            )
        ]

    def _queue(self, name: str) -> Queue:
        queue = self.tables.queues[name]
        opens = opens_at(queue.rate, self.tables.starts[name])
        return replace(
            queue,
            counts=dict(self.tables.counts[name]),
            resources=self.tables.bound.get(name),
            opens_at=opens if opens > self.clock.now() else None,
        )

    def _bind_queues(self) -> None:
        """The handlers changed, so queues may be bound to other pools; those may give more now."""
        before = self.tables.bound
        self.tables.bind_queues()
        changed = before.items() ^ self.tables.bound.items()
        self.ring(sorted({queue for queue, _ in changed}))

    def _has_key(self, task: Task, now: Moment) -> bool:
        return task.unique_key is not None and self.tables.key_holder(task.unique_key, now) == task.id

    def _candidates(self, wanted: Filter, *, newest_first: bool = False) -> Iterator[Task]:
        """The tasks in the states that the filter allows, in order of age."""
        states = wanted.states()
        narrow = states != set(State)
        ids = chain(*map(self.tables.indexes.in_state, states)) if narrow else self.tables.tasks
        return (self.tables.tasks[task] for task in sorted(ids, reverse=newest_first))
