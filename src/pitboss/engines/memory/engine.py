"""The memory engine: ten groups of verbs on one set of tables. The other engines must behave exactly like it."""

from collections import Counter
from collections.abc import Sequence

from pitboss.engines.memory.access import AccessVerbs
from pitboss.engines.memory.alerts import AlertVerbs
from pitboss.engines.memory.batches import BatchVerbs
from pitboss.engines.memory.claim import ClaimVerb
from pitboss.engines.memory.declared import DeclaredVerbs
from pitboss.engines.memory.figures import FigureVerbs
from pitboss.engines.memory.happenings import HappeningVerbs
from pitboss.engines.memory.operations import OperationVerbs
from pitboss.engines.memory.partitions import PartitionVerbs
from pitboss.engines.memory.resources import ResourceVerbs
from pitboss.engines.memory.sessions import SessionVerbs
from pitboss.engines.memory.tables import Tables
from pitboss.engines.memory.usage import UsageVerbs
from pitboss.engines.protocol import Clock, Failpoint
from pitboss.model.batch import BatchStatus
from pitboss.model.duration import Moment
from pitboss.model.figures import kinds_of_end
from pitboss.model.outcome import Transition
from pitboss.model.outdone import SentAway
from pitboss.model.resource import Report, UseEnd
from pitboss.model.session import Reclaimed, Renewal
from pitboss.model.settlement import ClaimEnd, Progress, SettleAnswer, Settlement, effect, lives, lost
from pitboss.model.states import FINISHED, State
from pitboss.model.task import NewTask, Placed, Task, Token
from pitboss.model.usage import check_taking


class MemoryEngine(
    ClaimVerb,
    OperationVerbs,
    BatchVerbs,
    ResourceVerbs,
    SessionVerbs,
    AccessVerbs,
    DeclaredVerbs,
    PartitionVerbs,
    HappeningVerbs,
    UsageVerbs,
    AlertVerbs,
    FigureVerbs,
):
    """A whole store in one object: clients share the store by sharing the object."""

    name = "memory"

    def __init__(self, *, clock: Clock, failpoint: Failpoint | None = None, tables: Tables | None = None) -> None:
        super().__init__(tables or Tables(), clock, failpoint)

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self.ring(self.tables.queues)

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        self._reach("put.before")
        now = self.look()
        check_taking(self.tables.refusing)
        self.tables.check_room(tasks, now)
        placed = [self.tables.place(new, now) for new in tasks]
        self._reach("put.after")
        return placed

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        self._reach("renew.before")
        now = self.clock.now()
        if not self._alive(session, now):
            return Renewal(alive=False)
        renewed = self.tables.sessions[session].renewed(now, snapshot)
        self.tables.sessions[session] = renewed
        cancels = tuple(
            (task.id, Token(session, task.claim))
            for task in self.tables.in_state(State.RUNNING)
            if task.session == session and task.cancel_asked
        )
        self._reach("renew.after")
        return Renewal(alive=True, expires_at=renewed.expires_at, cancels=cancels, desired=self.tables.version)

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        self._reach("settle.before")
        now = self.clock.now()
        answers = []
        for settlement in settlements:
            answers.append(self._settle(settlement, now))
            self.batch_lifecycle.update_batches(now)
        self._reach("settle.after")
        return answers

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        self._reach("reclaim.before")
        now = self.look()
        orphans = [
            task
            for task in self.tables.in_state(State.RUNNING)
            if not lives(task, self._alive(task.session or 0, now), now)
        ]
        ends = Counter(self._lose(task, now) for task in orphans[:limit])
        cancelled, failed = ends[State.CANCELLED], ends[State.FAILED]
        released = self.tables.release_held(self._known_alive(now) & self.tables.handlers.keys(), now, limit)
        leases = self.end_old_leases(limit, now)
        items, more = self.batch_lifecycle.sweep(limit, now)
        self._forget_old_sessions(now)
        self.forget_old_requests(now)
        self._reach("reclaim.after")
        return Reclaimed(
            lost=len(orphans[:limit]) - cancelled - failed,
            cancelled=cancelled + items,
            failed=failed,
            released=released,
            leases=leases,
            more=more or len(orphans) > limit or limit in (released, leases),
        )

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        return await self.tables.doorbell.wait(queues, timeout)

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        alive = self._alive(settlement.token.session, now)
        answer, change = effect(task, settlement, alive=alive, batch=self._batch_status(task), now=now)
        if task is not None and isinstance(change, Progress):
            self.tables.write(change.applied_to(task))
        elif task is not None and isinstance(change, ClaimEnd):
            away = self._end_claim(task, change, settlement.report, now, settlement.use_end)
            self._count_run(task, change.state, now, transition=settlement.transition)
            for new in settlement.transition.follow_ups:
                self.tables.place(new, now)
            return answer._replace(away=tuple(away)) if away else answer
        return answer

    def _end_claim(
        self, task: Task, end: ClaimEnd, report: Report | None, now: Moment, use_end: UseEnd | None = None
    ) -> list[SentAway]:
        if end.run is not None:
            self.tables.record(task.id, end.run)
        self.follow_failure(self.tables.write(end.applied_to(task)), now)
        away = self.hand_back(task, report, now, use_end, completed=end.state is State.COMPLETED)
        capped = task.partition is not None and self.tables.queues[task.queue].max_per_key is not None
        if end.state is State.PENDING or capped:
            self.ring([task.queue])
        return away

    def _count_run(self, task: Task, state: State, now: Moment, transition: Transition | None = None) -> None:
        """Without a transition the run was lost. The end of the task is counted where it is written."""
        charged, was_lost = (False, True) if transition is None else (transition.charged, transition.lost)
        for kind in kinds_of_end(state, charged=charged, lost=was_lost):
            if kind != state.value:
                self.tables.count_flow(kind, task, now)

    def _batch_status(self, task: Task | None) -> BatchStatus | None:
        return None if task is None or task.batch is None else self.tables.batches[task.batch].status

    def _lose(self, task: Task, now: Moment) -> State:
        """Take a task back from a dead session or a remote worker; its state after that."""
        end = lost(task, batch=self._batch_status(task), now=now)
        self._end_claim(task, end, None, now)
        self._count_run(task, end.state, now)
        if end.state not in FINISHED:
            self.ring([task.queue])
        self.batch_lifecycle.update_batches(now)
        return end.state
