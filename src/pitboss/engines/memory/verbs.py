"""What the verbs of the memory engine share."""

from collections.abc import Iterable

from msgspec.structs import replace

from pitboss.engines.memory.batch_lifecycle import BatchLifecycle
from pitboss.engines.memory.tables import Tables
from pitboss.engines.protocol import Clock, Failpoint
from pitboss.model.access import AuditEntry
from pitboss.model.batch import OVER
from pitboss.model.batching import HELD_IN_ORDER, waits
from pitboss.model.duration import Moment
from pitboss.model.errors import NotLeader
from pitboss.model.failure import failed_for_good, failure_tasks
from pitboss.model.lifecycle import KeyHold, retried
from pitboss.model.session import Lead, known_handlers, lead_of
from pitboss.model.task import Task, last_run


class Verbs:
    """The base of each group of verbs. `_alive` and `_lead` decide who may call the fenced ones."""

    def __init__(self, tables: Tables, clock: Clock, failpoint: Failpoint | None) -> None:
        self.tables, self.clock = tables, clock
        self.batch_lifecycle = BatchLifecycle(tables)
        self._failpoint = failpoint
        # What an operator does through this engine, for the audit log.
        self.entry: AuditEntry | None = None

    def audit(self) -> None:
        """Store the entry with the change that was just made."""
        if self.entry is not None:
            self.tables.audit.setdefault(self.entry.id, replace(self.entry, at=self.clock.now()))

    def look(self) -> Moment:
        """The moment of an act that gives out or repairs tasks. Notices that the wall clock was set."""
        now = self.clock.now()
        self.tables.follow_wall(self.clock.wall() - now)
        return now

    def ring(self, queues: Iterable[str]) -> None:
        self.tables.doorbell.ring(queues)

    def check_term(self, term: int, now: Moment) -> None:
        """Raise `NotLeader` unless this very term lasts."""
        lead = self._lead(now)
        if lead is None or lead.term != term:
            raise NotLeader(term)

    def _lead(self, now: Moment) -> Lead | None:
        leader = self.tables.leader
        return lead_of(None if leader is None else self.tables.sessions.get(leader), self.tables.term, now)

    def _alive(self, session: int, now: Moment) -> bool:
        known = self.tables.sessions.get(session)
        return known is not None and known.alive(now)

    def _known_alive(self, now: Moment) -> set[str]:
        """The handlers that a live session or a remote worker can run."""
        return known_handlers(self.tables.sessions.values(), self.tables.handlers.values(), now)

    def _revive(self, task: Task, keep_attempts: bool) -> bool:
        """Let a finished task wait again; False if another task has its key."""
        now = self.clock.now()
        if not self._retake_key(task, now):
            return False
        last = last_run(task)
        if last:
            self.tables.record(task.id, last)
        batch = None if task.batch is None else self.tables.batches[task.batch]
        if batch is not None and batch.status in OVER:
            batch = self.batch_lifecycle.back_in_line(batch)
        known, key = task.handler in self.tables.handlers, task.order_key
        place = waits(None if batch is None else batch.status, known=known, run_at=None, now=now)
        if key is not None and self.tables.heads.setdefault(key, task.id) != task.id:
            place = HELD_IN_ORDER
        self.tables.retried.pop(task.id, None)
        self.tables.write(retried(task, place, now, keep_attempts=keep_attempts))
        self.tables.count_flow("revived", task, now)
        self.ring([task.queue])
        return True

    def _retake_key(self, task: Task, now: Moment) -> bool:
        if task.unique_key is None:
            return True
        holder = self.tables.key_holder(task.unique_key, now)
        if holder is None:
            self.tables.keys[task.unique_key] = KeyHold(task.id)
        return holder is None or holder == task.id

    def follow_failure(self, task: Task, now: Moment) -> None:
        """Put what follows a task that has just failed for good."""
        if failed_for_good(task):
            for new in failure_tasks(task, self.tables.handlers):
                self.tables.place(new, now)

    def _reach(self, name: str) -> None:
        if self._failpoint is not None:
            self._failpoint(name)
