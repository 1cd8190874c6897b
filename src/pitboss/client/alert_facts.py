"""Reads what alerts are judged by. Nothing that is read here grows with the number of stored tasks."""

from collections.abc import Iterable, Mapping, Sequence

from pitboss.client.waiting import oldest_wait
from pitboss.engines.capabilities import Capabilities, capabilities
from pitboss.engines.protocol import Store
from pitboss.model.alert_facts import (
    COMPLETED,
    CRASHES,
    FAILED,
    AlertFacts,
    HandlerFacts,
    MemberFacts,
    PoolFacts,
    QueueFacts,
)
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.figures import HOUR, RAW, bucket
from pitboss.model.filter import by
from pitboss.model.fleet import ManagerView, WorkerPoolView, alive, live_managers, worker_pools
from pitboss.model.leasing import condition
from pitboss.model.queue import HandlerInfo, Queue, is_reserved, remote_queues
from pitboss.model.resource import Condition, ResourcePool, Stage
from pitboss.model.session import Session
from pitboss.model.states import State

# Beyond these, the fullest queues are looked at, and the members of a resource pool are not.
_QUEUES = 100
_MEMBERS = 2000
_LATE_SHOWN = 100
# A schedule fires within a second of its tick, and a new leader within some seconds.
_PUNCTUAL: Span = SECOND
_UNUSABLE = (Condition.COOLING, Condition.BLACKLISTED)
Totals = dict[tuple[str, str, str], int]


async def read_alert_facts(
    store: Store,
    *,
    since: Moment | None = None,
    window: Span = HOUR,
    answered: Span | None = None,
    handlers: Mapping[str, HandlerFacts] | None = None,
) -> AlertFacts:
    """The facts now. `since` is the look before; without one, what ended within the `window` counts. The caller
    measures `answered`, how long the store took for a small write, and brings the facts of `handlers`, because they are
    not read at each look."""
    now, has = store.clock.now(), capabilities(store)
    sessions, known = await store.sessions(), await store.handlers()
    queues = [one for one in await store.queues() if not is_reserved(one.name)]
    managers = live_managers(sessions, now)
    totals = _crashes(managers) | await _ended(has, now - window if since is None else since, now)
    usage = await has.usage.usage() if has.usage is not None else None
    return AlertFacts(
        now=now,
        pools=_pool_facts(worker_pools(managers)),
        queues=await _queue_facts(store, queues, _Served(sessions, managers, known, now), now),
        handlers=dict(handlers or {}),
        resources=await _member_facts(has, now),
        late=await _late(has, store.clock.wall()),
        answered=answered,
        free=None if usage is None else usage.free,
        refusing=None if usage is None else usage.refusing,
        totals=totals,
    )


def _crashes(managers: Iterable[ManagerView]) -> Totals:
    """The crashes of each worker pool since its manager started. Two workers may share a slot, and its crashes."""
    totals = Totals()
    for one in managers:
        for (pool, _), crashes in {(it.pool, it.name): it.crashes for it in one.snapshot.workers}.items():
            key = CRASHES, pool, f"{one.host}:{one.session.info.pid}"
            totals[key] = totals.get(key, 0) + crashes
    return totals


async def _ended(has: Capabilities, since: Moment, now: Moment) -> Totals:
    """How many tasks ended, by queue and bucket, from the bucket of the look before on: what that bucket has by now is
    compared with what it had then. Not the numbers of stored tasks, which retries and deletions change."""
    if has.figures is None:
        return {}
    # An act that was under way at that look counts in the bucket in which it began.
    began = bucket(max(since, now - HOUR), RAW) - RAW
    flows = [one for one in await has.figures.flows(began, now + 1, span=RAW) if not is_reserved(one.queue)]
    failed = {(FAILED, one.queue, str(one.at)): one.failed for one in flows if one.failed}
    return failed | {(COMPLETED, one.queue, str(one.at)): one.completed for one in flows if one.completed}


def _pool_facts(views: Sequence[WorkerPoolView]) -> dict[str, PoolFacts]:
    found = dict[str, PoolFacts]()
    for name in dict.fromkeys(view.pool.name for view in views):
        shares = {
            f"{worker.name} on {view.manager.host} (pid {worker.pid})": worker.rss / view.pool.memory
            for view in views
            if view.pool.name == name and view.pool.memory
            for worker in view.live
        }
        found[name] = PoolFacts(
            workers=sum(len(view.live) for view in views if view.pool.name == name),
            full={worker: share for worker, share in shares.items() if share > 1},
            fullest=max(shares.values(), default=None),
        )
    return found


class _Served:
    """Which queues have live workers."""

    def __init__(
        self,
        sessions: Sequence[Session],
        managers: Sequence[ManagerView],
        handlers: Iterable[HandlerInfo],
        now: Moment,
    ) -> None:
        self._views = [view for view in worker_pools(managers) if not view.dead and not view.manager.snapshot.draining]
        self._remote = remote_queues(handlers)
        self._remote_workers = any(one.info.kind == "remote" for one in alive(sessions, now))

    def serves(self, queue: Queue) -> bool:
        if queue.name in self._remote:
            # Remote workers need not say that they are there, but one that is there takes tasks.
            return self._remote_workers or bool(queue.counts.get(State.RUNNING))
        return any(view.pool.queues is None or queue.name in view.pool.queues for view in self._views)


async def _queue_facts(store: Store, queues: Sequence[Queue], served: _Served, now: Moment) -> dict[str, QueueFacts]:
    fullest = sorted(queues, key=lambda one: -one.counts.get(State.PENDING, 0))[:_QUEUES]
    found = {one.name: await _queue_fact(store, one, served, now) for one in fullest}
    if any(one.counts.get(State.HELD) for one in queues):
        # No worker knows their handler: at least one of them is in that queue.
        for task in (await store.find(by(state=State.HELD, reason="handler"), limit=1)).tasks:
            if task.queue in found:
                before = found[task.queue]
                found[task.queue] = QueueFacts(paused=before.paused, waited=before.waited, unserved=before.unserved + 1)
    return found


async def _queue_fact(store: Store, queue: Queue, served: _Served, now: Moment) -> QueueFacts:
    waiting = queue.counts.get(State.PENDING, 0)
    unserved = 0 if queue.paused or served.serves(queue) else waiting
    return QueueFacts(
        paused=queue.paused, waited=await oldest_wait(store, queue, now) if waiting else 0, unserved=unserved
    )


async def _member_facts(has: Capabilities, now: Moment) -> dict[str, MemberFacts]:
    if has.resources is None:
        return {}
    found = dict[str, MemberFacts]()
    for pool in await has.resources.resource_pools():
        if pool.members > _MEMBERS:
            continue
        if not pool.stages.get(Stage.AWAY):
            # None of them is sent away, and those that are out were disabled by operators.
            enabled = pool.members - pool.stages.get(Stage.OUT, 0)
            found[pool.name] = MemberFacts(enabled=enabled, usable=enabled)
        else:
            found[pool.name] = await _looked_at(has, pool, now)
    return found


async def _looked_at(has: Capabilities, pool: ResourcePool, now: Moment) -> MemberFacts:
    assert has.resources is not None
    members = [one for one in await has.resources.resources(pool.name) if one.enabled]
    usable = sum(condition(one, pool.rules, now)[0] not in _UNUSABLE for one in members)
    return MemberFacts(enabled=len(members), usable=usable)


async def _late(has: Capabilities, wall: Moment) -> dict[str, Span]:
    """The schedules whose tick has passed and did not fire, and by how much."""
    if has.leader_acts is None:
        return {}
    due = (await has.leader_acts.due_schedules(_LATE_SHOWN)).schedules
    late = {one.name: wall - one.next_at for one in due if one.next_at is not None}
    return {name: by for name, by in late.items() if by > _PUNCTUAL}
