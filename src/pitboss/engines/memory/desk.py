"""Reading and control over a `Book`: ledger, queues, handlers, desired state."""

from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.memory.gates import Gates
from pitboss.engines.protocol import Clock, Page
from pitboss.model.batch import OVER
from pitboss.model.batching import waits
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.finding import Finding, warning
from pitboss.model.ids import TaskId
from pitboss.model.matching import matches
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Attempt, Task, last_run

_RETRYABLE = (State.FAILED, State.CANCELLED)


class Desk(Gates):
    """The small protocols of an engine; the verbs stand in `engine.py`."""

    def check_term(self, term: int, now: Moment) -> None:
        """Refuse whoever does not lead under this term now."""
        raise NotImplementedError

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return [self.book.tasks.get(task) for task in ids]

    async def find(
        self, wanted: Filter, *, limit: int = 50, after: str | None = None, oldest_first: bool = False
    ) -> Page:
        found = sorted(self._matching(wanted), key=lambda task: task.id, reverse=not oldest_first)
        if after is not None:
            found = [task for task in found if (task.id > after if oldest_first else task.id < after)]
        page = found[:limit]
        return Page(page, page[-1].id if len(found) > limit else None)

    async def count(self, wanted: Filter) -> int:
        return len(self._matching(wanted))

    async def attempts(self, task: TaskId) -> list[Attempt]:
        known = self.book.tasks.get(task)
        last = last_run(known) if known else None
        return [*self.book.history.get(task, []), *([last] if last else [])][-100:]

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        found = [task for task in self._matching(wanted) if task.state not in FINISHED and not task.cancel_asked]
        found.sort(key=lambda task: task.id)
        now = self.clock.now()
        for task in found[:limit]:
            self.call_off(task, reason or "cancelled", now)
        self.close_batches(now)
        asked = sum(task.state is State.RUNNING for task in found[:limit])
        return Changed(changed=len(found[:limit]) - asked, asked=asked, more=len(found) > limit)

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        found = sorted((task for task in self._matching(wanted) if task.state in _RETRYABLE), key=lambda task: task.id)
        refused = [task.id for task in found[:limit] if not self._revive(task, keep_attempts)]
        for lane in {self.book.batches[task.batch].lane: None for task in found[:limit] if task.batch is not None}:
            self.promote(lane, self.clock.now())
        self.close_batches(self.clock.now())
        return Changed(changed=len(found[:limit]) - len(refused), refused=tuple(refused), more=len(found) > limit)

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        now = self.clock.now()
        if term is not None:
            self.check_term(term, now)
        found = [
            task
            for task in self._matching(wanted)
            if task.finished_at is not None
            and task.state in FINISHED
            and task.batch is None
            and (before is None or task.finished_at < before)
            and not self._key_still_taken(task, now)
        ]
        found.sort(key=lambda task: task.id)
        for task in found[:limit]:
            self.book.remove(task)
        return Changed(changed=len(found[:limit]), more=len(found) > limit)

    async def queues(self) -> list[Queue]:
        return [self._queue(name) for name in sorted(self.book.queues)]

    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        queue = self.book.queue(name)
        if change.paused is not msgspec.UNSET:
            queue = msgspec.structs.replace(
                queue,
                paused=change.paused,
                paused_by=change.by if change.paused else None,
                paused_at=self.clock.now() if change.paused else None,
            )
        if change.capacity is not msgspec.UNSET:
            queue = msgspec.structs.replace(queue, capacity=change.capacity)
        if change.rate is not msgspec.UNSET:
            queue = msgspec.structs.replace(queue, rate=change.rate)
        self.book.queues[name] = queue
        self.ring([name])
        return self._queue(name)

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        added = {handler.name: handler for handler in handlers}
        self.book.handlers.update(added)
        self._bind_queues()
        self.release_held(added, self.clock.now())

    async def handlers(self) -> list[HandlerInfo]:
        return [self.book.handlers[name] for name in sorted(self.book.handlers)]

    async def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.book.handlers.pop(name, None)
        self._bind_queues()

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        self.book.version += 1
        self.book.wishes[key] = Wish(key=key, value=value, version=self.book.version, by=by)
        self.ring(["*"])
        return self.book.version

    async def wishes(self, since: int = 0) -> list[Wish]:
        return sorted(
            (wish for wish in self.book.wishes.values() if wish.version > since), key=lambda wish: wish.version
        )

    async def diagnose(self, clock: Clock) -> list[Finding]:
        return [
            warning(
                "durability",
                "everything is in the memory of one process",
                why="it is forgotten when the process ends",
                fix="name a SQLite file or a PostgreSQL server as the store",
            )
        ]

    def release_held(self, handlers: Iterable[str], now: Moment, limit: int | None = None) -> int:
        held = [self.book.tasks[task] for task in self.book.shelves.held_for(handlers, limit)]
        for task in held:
            place = self.book.waits(task, task.run_at, now)
            self.book.move(task, place.state, reason=place.reason)
        self.ring({task.queue for task in held})
        return len(held)

    def _revive(self, task: Task, keep_attempts: bool) -> bool:
        """An ended task waits again, unless another one has its key."""
        key = task.unique_key
        if key is not None and not self._retake(key, task):
            return False
        last = last_run(task)
        if last:
            self.book.record(task.id, last)
        batch = None if task.batch is None else self.book.batches[task.batch]
        if batch is not None and batch.status in OVER:
            batch = self.back_in_line(batch)
        known = task.handler in self.book.handlers
        place = waits(None if batch is None else batch.status, known=known, run_at=None, now=self.clock.now())
        counters = {} if keep_attempts else {"attempts": 0, "losses": 0, "crashes": 0}
        self.book.move(
            task,
            place.state,
            reason=place.reason,
            run_at=None,
            expires_at=None,
            started_at=None,
            finished_at=None,
            result=None,
            tried=(),
            rotations=0,
            **counters,
        )
        self.ring([task.queue])
        return True

    def _queue(self, name: str) -> Queue:
        return msgspec.structs.replace(
            self.book.queues[name], counts=dict(self.book.counts[name]), resources=self.book.bound.get(name)
        )

    def _bind_queues(self) -> None:
        """What queues are bound to follows the handlers; one that is bound no more, or anew, may give more."""
        before = self.book.bound
        self.book.bind_queues()
        changed = before.items() ^ self.book.bound.items()
        self.ring(sorted({queue for queue, _ in changed}))

    def _retake(self, key: str, task: Task) -> bool:
        """Take the key again for a task that lives again, unless another task has it."""
        holder = self.book.key_holder(key, self.clock.now())
        if holder is None:
            self.book.keys[key] = (task.id, None)
        return holder is None or holder == task.id

    def _key_still_taken(self, task: Task, now: Moment) -> bool:
        return task.unique_key is not None and self.book.key_holder(task.unique_key, now) == task.id

    def _matching(self, wanted: Filter) -> list[Task]:
        now = self.clock.now()
        possible = wanted.states()
        known = self.book.tasks.values() if possible == set(State) else self._in_states(possible)
        return [task for task in known if matches(wanted, task, now)]

    def _in_states(self, states: Iterable[State]) -> list[Task]:
        return [task for state in states for task in self.book.in_state(state)]
