"""What every conformance test works with: an engine, a clock that the test moves, and short calls for the verbs.

After every call the bench checks the whole store: the queues' figures must equal a recount, every task must be
consistent and must have reached its state by a legal move, and members, batches and keys must pass `inspection`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Self

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import Batch, BatchAct, BatchChanged, Delete, Lane, NewBatch
from pitboss.model.duration import span
from pitboss.model.filter import EVERYTHING, Filter, by
from pitboss.model.ids import IdMaker, TaskId
from pitboss.model.outcome import Completed, Outcome, Transition, decide, progressed
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange
from pitboss.model.session import Claimed, ClaimRequest, Reclaimed, Renewal, Session, SessionInfo, Slot
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Attempt, Claim, NewTask, Placed, Task, TaskChange, TaskError
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance.inspection import (
    assert_batches_sound,
    assert_members_sound,
    assert_partitions_sound,
)
from pitboss.testing.conformance.soundness import assert_sound
from pitboss.testing.plugin import InLoop

# Without jitter a test knows when a retry falls due.
STEADY = Policy(backoff=Backoff(base=5_000_000, factor=3.0, jitter=0.0))
BROKEN = TaskError(category="net", message="connection reset", type="ConnectionError", fingerprint="0123456789ab")
PAGE = 1000


MakeEngine = Callable[[FakeClock], Awaitable[Any]]


class Bench(InLoop):
    """One store for one test. `me` is a live session that knows the handler "job"; that handler is registered."""

    store: FullStore
    me: Session

    def __init__(self, make: MakeEngine) -> None:
        self.clock = FakeClock()
        self.ids = IdMaker(self.clock.now, Random(7).getrandbits)
        self.watching = True
        # A test sets this when it starts a batch by force or narrows a lane: the lane may be overfull from then on.
        self.forced = False
        self._make = make
        self._opened: list[FullStore] = []
        self._last: dict[TaskId, Task] = {}

    async def __aenter__(self) -> Self:
        self.store = await self.open_engine()
        await self.register("job")
        self.me = await self.session("job", ttl=span("1h"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for store in self._opened:
            await store.close()

    async def open_engine(self) -> FullStore:
        """Open one more engine on the same store, as another process would."""
        store: FullStore = await self._make(self.clock)
        self._opened.append(store)
        return store

    @property
    def now(self) -> int:
        return self.clock.now()

    def new(self, **options: Any) -> NewTask:
        """A task with an unused id; its handler is "job" by default."""
        return NewTask(**{"id": self.ids(), "handler": "job"} | options)

    async def put(self, *tasks: NewTask) -> list[Placed]:
        placed = await self.store.put(tasks)
        await self.look()
        return placed

    async def add(self, **options: Any) -> Task:
        """Put one task, which must be new. Returns it as the ledger has it."""
        new = self.new(**options)
        (placed,) = await self.put(new)
        task = await self.task(new.id)
        assert placed == Placed(new.id, True, task.state, task.reason)
        return task

    async def session(self, *handlers: str, **options: Any) -> Session:
        session = await self.store.open_session(SessionInfo(host="here", handlers=handlers, **options))
        await self.look()
        return session

    async def end(self, session: Session) -> None:
        await self.store.end_session(session.number)
        await self.look()

    async def renew(self, session: Session, snapshot: str | None = None) -> Renewal:
        renewal = await self.store.renew(session.number, snapshot)
        await self.look()
        return renewal

    async def ask(self, *slots: Slot, session: Session | None = None, handlers: Sequence[str] | None = None) -> Claimed:
        """Claim for these slots, or one task of any queue."""
        request = ClaimRequest(
            session=(session or self.me).number,
            slots=slots or (Slot(free=1),),
            handlers=None if handlers is None else frozenset(handlers),
        )
        claimed = await self.store.claim(request)
        await self.look()
        return claimed

    async def claim(self, free: int = 1, *queues: str, session: Session | None = None) -> list[Claim]:
        return (await self.ask(Slot(free=free, queues=queues or None), session=session)).claims

    async def take(self, *queues: str, session: Session | None = None) -> Claim:
        """Claim one task; there must be one."""
        claims = await self.claim(1, *queues, session=session)
        assert len(claims) == 1, "there was nothing to claim"
        return claims[0]

    async def started(self, **options: Any) -> Claim:
        """A new task, claimed."""
        task = await self.add(**options)
        claim = await self.take(task.queue)
        assert claim.id == task.id, "another task was claimed"
        return claim

    async def write(self, claim: Claim, transition: Transition, **options: Any) -> SettleAnswer:
        """Settle with this transition."""
        settlement = Settlement(id=claim.id, token=claim.token, transition=transition, **options)
        (answer,) = await self.settle(settlement)
        return answer

    async def settle(self, *settlements: Settlement) -> list[SettleAnswer]:
        answers = await self.store.settle(settlements)
        await self.look()
        return answers

    async def report(self, claim: Claim, outcome: Outcome, policy: Policy = STEADY, **options: Any) -> SettleAnswer:
        """Settle the claim with this outcome, as the policy decides."""
        return await self.write(claim, decide(claim, outcome, policy, self.now, 0.5), **options)

    async def complete(self, claim: Claim, result: str | None = None, *follow_ups: NewTask) -> SettleAnswer:
        return await self.report(claim, Completed(result, follow_ups))

    async def progress(self, claim: Claim, percent: int, note: str | None = None) -> SettleAnswer:
        return await self.write(claim, progressed(percent, note))

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        reclaimed = await self.store.reclaim(limit)
        await self.look()
        return reclaimed

    async def cancel(self, wanted: Filter | TaskId, **options: Any) -> Changed:
        changed = await self.store.cancel(_filter(wanted), **options)
        await self.look()
        return changed

    async def retry(self, wanted: Filter | TaskId, **options: Any) -> Changed:
        changed = await self.store.retry(_filter(wanted), **options)
        await self.look(revived=True)
        return changed

    async def change_tasks(self, wanted: Filter | TaskId, *, limit: int = 1000, **options: Any) -> Changed:
        changed = await self.store.change_tasks(_filter(wanted), TaskChange(**options), limit=limit)
        await self.look()
        return changed

    async def prune(self, wanted: Filter | TaskId = EVERYTHING, **options: Any) -> Changed:
        changed = await self.store.prune(_filter(wanted), **options)
        await self.look(pruned=True)
        return changed

    async def change(self, queue: str, **options: Any) -> Queue:
        changed = await self.store.change_queue(queue, QueueChange(**options))
        await self.look()
        return changed

    async def register(self, *names: str) -> None:
        await self.store.register([HandlerInfo(name=name) for name in names])
        await self.look()

    async def create(self, *items: NewTask, **options: Any) -> Batch:
        """Create a batch of these items, in the default lane by default."""
        batch = await self.store.create_batch(NewBatch(**{"id": self.ids()} | options), items)
        await self.look()
        return batch

    async def act(self, batch: Batch, act: BatchAct, **options: Any) -> BatchChanged:
        changed = await self.store.act_on_batch(batch.id, act, **options)
        await self.look(revived=True, deleted=isinstance(act, Delete))
        return changed

    async def batch(self, batch: Batch) -> Batch:
        """The batch as it is now."""
        (found,) = await self.store.batches([batch.id])
        return found

    async def widen(self, lane: str, max_running: int) -> Lane:
        changed = await self.store.change_lane(lane, max_running)
        await self.look()
        return changed

    async def task(self, task_id: TaskId) -> Task:
        (task,) = await self.store.get([task_id])
        assert task is not None, f"task {task_id} is gone"
        return task

    async def states(self, *tasks: Task | Claim | NewTask | Placed) -> list[State]:
        found = await self.store.get([task.id for task in tasks])
        return [task.state for task in found if task is not None]

    async def history(self, task: Task | Claim) -> list[Attempt]:
        return await self.store.attempts(task.id)

    async def queue(self, name: str = "default") -> Queue:
        return next(queue for queue in await self.store.queues() if queue.name == name)

    async def became(self, before: Task, **changes: Any) -> Task:
        """The task as it is now. It must differ from `before` in exactly these fields."""
        after = await self.task(before.id)
        assert after == msgspec.structs.replace(before, **changes)
        return after

    async def every_task(self) -> list[Task]:
        """The whole ledger, oldest first, read page by page."""
        tasks: list[Task] = []
        after = None
        while True:
            page = await self.store.find(EVERYTHING, limit=PAGE, after=after, oldest_first=True)
            tasks += page.tasks
            after = page.next
            if after is None:
                return tasks

    async def look(self, *, revived: bool = False, pruned: bool = False, deleted: bool = False) -> None:
        """Check that the store is consistent, and that it got there by legal moves."""
        if not self.watching:
            return
        tasks = {task.id: task for task in await self.every_task()}
        recount: Counter[tuple[str, State]] = Counter((task.queue, task.state) for task in tasks.values())
        figures = {(queue.name, state): n for queue in await self.store.queues() for state, n in queue.counts.items()}
        assert figures == dict(recount), "the queues' figures do not equal a recount of the ledger"
        for task in tasks.values():
            assert_sound(task, self._last.get(task.id), revived=revived)
        gone = [task for task in self._last.values() if task.id not in tasks]
        assert not gone or pruned or deleted, f"tasks vanished: {gone}"
        assert all(task.state.finished or deleted for task in gone), f"unfinished tasks were pruned: {gone}"
        self._last = tasks
        await assert_members_sound(self.store, self.now, tasks.values())
        await assert_batches_sound(self.store, tasks.values(), forced=self.forced)
        await assert_partitions_sound(self.store, tasks.values())


def _filter(wanted: Filter | TaskId) -> Filter:
    return by(id=wanted) if isinstance(wanted, str) else wanted
