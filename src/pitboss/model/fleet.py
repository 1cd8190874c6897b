"""All managers of a store with their worker pools and workers, read from the snapshots in their sessions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.queue import HandlerInfo
from pitboss.model.sealed import MissingKey
from pitboss.model.session import Session
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState, read

# Workers in these states have no process; the others have one, or will have one soon.
GONE = frozenset({WorkerState.STOPPED, WorkerState.CRASHED})
READY = frozenset({WorkerState.IDLE, WorkerState.PROCESSING})
# States of a worker pool, the worst first.
_WORST = ("dead", "crashed", "paused", "draining", "changing", "running")
# A task that has run for so long, and this many times as long as usual, may hang.
_HANGS: Span = 300 * SECOND
_FAR_LONGER = 10
_ODD = frozenset({WorkerState.CRASHED, WorkerState.RESTARTING, WorkerState.DRAINING})


class ManagerView(msgspec.Struct, frozen=True):
    """A manager: its session, and its latest snapshot (an empty one if it has none that we can read)."""

    session: Session
    snapshot: Snapshot

    @property
    def host(self) -> str:
        return self.session.info.host

    @property
    def number(self) -> int:
        return self.session.number

    @property
    def name(self) -> str:
        return f"{self.host} (manager {self.number})"

    @property
    def renewed_at(self) -> Moment:
        """When the snapshot was taken: each renewal extends the session by its whole time to live."""
        return self.session.expires_at - self.session.info.ttl

    @property
    def live(self) -> list[WorkerFigures]:
        return [worker for worker in self.snapshot.workers if worker.state not in GONE]

    @property
    def running(self) -> int:
        return sum(worker.running for worker in self.snapshot.workers)

    def knows(self, handler: str) -> bool:
        """Whether its workers can run this handler."""
        return self.snapshot.runs_tasks and (not self.session.info.handlers or handler in self.session.info.handlers)

    @property
    def process(self) -> tuple[str, str, int]:
        """Identifies the process: it stays the same when a manager replaces its session."""
        info = self.session.info
        return info.host, info.boot_id, info.pid


class WorkerPoolView(msgspec.Struct, frozen=True):
    """One worker pool in one manager."""

    manager: ManagerView
    pool: PoolFigures
    workers: tuple[WorkerFigures, ...]

    @property
    def live(self) -> list[WorkerFigures]:
        return [worker for worker in self.workers if worker.state not in GONE]

    @property
    def slots(self) -> int:
        return self.pool.concurrency * len(self.live)

    @property
    def ready(self) -> list[WorkerFigures]:
        return [worker for worker in self.workers if worker.state in READY]

    @property
    def free(self) -> int:
        """How many more tasks its ready workers take now."""
        return sum(self._room(worker) for worker in self.ready)

    @property
    def usable(self) -> int:
        """The seats of its live workers, without the empty ones beside a task that runs alone."""
        seats, pauses = self.pool.concurrency, any(self.pool.delay)
        return sum(1 if one.room == 0 and one.running == 1 and not pauses else seats for one in self.live)

    def _room(self, worker: WorkerFigures) -> int:
        if self.pool.paused or self.manager.snapshot.draining:
            return 0
        left = max(0, self.pool.concurrency - worker.running)
        return left if worker.room is None else min(left, worker.room)

    @property
    def crashed(self) -> list[WorkerFigures]:
        return [worker for worker in self.workers if worker.state is WorkerState.CRASHED]

    @property
    def running(self) -> int:
        return sum(worker.running for worker in self.workers)

    @property
    def dead(self) -> bool:
        """Whether its workers have crashed and none is alive. A pool that has only just begun to start is not dead."""
        up = any(worker.state in READY or worker.state is WorkerState.DRAINING for worker in self.workers)
        crashed = any(worker.crashes or worker.state is WorkerState.RESTARTING for worker in self.workers)
        return self.pool.wanted > 0 and not up and (crashed or bool(self.crashed))

    def next_start(self, now: Moment) -> str:
        """When the next worker of a dead pool starts, for a sentence."""
        if any(worker.state is WorkerState.STARTING for worker in self.workers):
            return "the next one starts now"
        moments = [worker.next_at for worker in self.workers if worker.next_at]
        if not moments:
            return "none will be started"
        left = max(1, min(moments) - now)
        return f"next in {spoken(left + -left % SECOND)}"

    @property
    def state(self) -> str:
        """The worst of: dead, crashed, paused, draining, changing, running."""
        if self.dead:
            return "dead"
        if self.crashed:
            return "crashed"
        if self.pool.paused:
            return "paused"
        if self.manager.snapshot.draining:
            return "draining"
        changing = len(self.live) != self.pool.wanted or len(self.ready) != len(self.live)
        return "changing" if changing else "running"


class OddWorker(msgspec.Struct, frozen=True):
    """A worker that an operator may want to look at. `full`: it uses more than its soft memory limit."""

    worker: WorkerFigures
    manager: ManagerView
    limit: int
    full: bool


def alive(sessions: Sequence[Session], now: Moment) -> list[Session]:
    """The sessions that are not over."""
    return [session for session in sessions if not session.ended and session.expires_at > now]


def live_managers(sessions: Sequence[Session], now: Moment) -> list[ManagerView]:
    """The managers that are alive. A process that replaces its session counts once, with the newest one."""
    living = (manager_view(one) for one in alive(sessions, now) if one.info.kind == "manager")
    newest = {one.process: one for one in sorted(living, key=lambda one: one.number)}
    return sorted(newest.values(), key=lambda one: one.number)


def manager_view(session: Session) -> ManagerView:
    return ManagerView(session, read(session.snapshot) or Snapshot())


def worker_pools(
    managers: Iterable[ManagerView], pool: str | None = None, host: str | None = None
) -> list[WorkerPoolView]:
    """Each worker pool of each manager; all of them, or those of one name or host."""
    found = [
        WorkerPoolView(one, figures, tuple(worker for worker in one.snapshot.workers if worker.pool == figures.name))
        for one in managers
        if host in (None, one.host)
        for figures in _figures(one.snapshot)
    ]
    return sorted(
        (view for view in found if pool in (None, view.pool.name)),
        key=lambda view: (view.pool.name, view.manager.host, view.manager.number),
    )


def worst_state(views: Iterable[WorkerPoolView]) -> str:
    """The state of a worker pool: the worst on any host."""
    return min((one.state for one in views), key=_WORST.index)


def mean_run(workers: Iterable[WorkerFigures]) -> Span | None:
    """How long a task takes on average in the processes that run now; None until one has ended."""
    workers = tuple(workers)
    done = sum(one.processed for one in workers)
    return sum(one.mean * one.processed for one in workers) // done if done else None


def odd_workers(managers: Iterable[ManagerView]) -> list[OddWorker]:
    """Workers that are not well: crashed, restarting, draining, with a reason or a crash, or over their memory."""
    found = []
    for manager in managers:
        limits = {one.name: one.memory for one in manager.snapshot.pools}
        for one in manager.snapshot.workers:
            limit = limits.get(one.pool, 0)
            full = bool(limit) and one.rss > limit
            if one.state in _ODD or one.why or one.crashes or full:
                found.append(OddWorker(one, manager, limit, full))
    return found


def locked_pools(managers: Iterable[ManagerView], handlers: Iterable[HandlerInfo]) -> dict[str, list[MissingKey]]:
    """Resource pools with secrets that no live manager which needs them can open: their tasks wait."""
    managers, handlers = tuple(managers), tuple(handlers)
    lacking: dict[str, dict[str, MissingKey]] = {}
    for one in managers:
        for key in one.snapshot.missing_keys:
            lacking.setdefault(key.pool, {})[key.key] = key
    return {
        pool: [keys[name] for name in sorted(keys)]
        for pool, keys in sorted(lacking.items())
        if not any(_opens(one, pool, {info.name for info in handlers if info.resources == pool}) for one in managers)
    }


def _opens(manager: ManagerView, pool: str, needing: set[str]) -> bool:
    """Whether it can start tasks of these handlers, which need the pool."""
    known = manager.session.info.handlers
    lacks = any(key.pool == pool for key in manager.snapshot.missing_keys)
    return manager.snapshot.runs_tasks and not lacks and (not known or not needing.isdisjoint(known))


class Hanging(NamedTuple):
    """What fills the seats of a queue and does not end, in words, and the filter that finds these tasks."""

    said: str
    filter: str


def hanging(managers: Iterable[ManagerView], queue: str, now: Moment) -> Hanging | None:
    """The handler whose tasks have most seats of the workers that serve this queue, if they have run for minutes and
    much longer than usual; None if there is none. Known from the workers' own figures."""
    views = [one for one in worker_pools(managers) if one.pool.queues is None or queue in one.pool.queues]
    usual = {name: span for one in views for name, span in one.manager.snapshot.usual.items()}
    tasks = [
        task
        for one in views
        for worker in one.live
        for task in worker.tasks
        if task.since and now - task.since >= max(_HANGS, _FAR_LONGER * usual.get(task.handler, 0))
    ]
    if not tasks:
        return None
    ((handler, number),) = Counter(task.handler for task in tasks).most_common(1)
    longest = now - min(task.since for task in tasks if task.handler == handler)
    known = spoken(usual[handler]) if handler in usual else "unknown"
    hidden = any(worker.running > len(worker.tasks) for one in views for worker in one.live)
    said = (
        f"{'at least ' if hidden else ''}{number:,} × {handler} run, the longest for {spoken(longest)} (usual: {known})"
    )
    return Hanging(said, f"state:running handler:{handler} ran:>{spoken(_HANGS)}")


def doing(workers: Iterable[WorkerFigures]) -> str:
    """The tasks that workers run, by handler: "2 × fetch, 1 × send"."""
    workers = tuple(workers)
    counts = Counter(task.handler for worker in workers for task in worker.tasks)
    unnamed = sum(worker.running for worker in workers) - counts.total()
    names = [f"{count} × {handler}" for handler, count in counts.most_common()]
    return ", ".join([*names, *([f"{unnamed} more"] if unnamed > 0 and names else [])])


def _figures(snapshot: Snapshot) -> Sequence[PoolFigures]:
    """A snapshot without pools may still have workers in them."""
    if snapshot.pools:
        return snapshot.pools
    counts = Counter(worker.pool for worker in snapshot.workers if worker.state not in GONE)
    return [
        PoolFigures(
            name=name,
            queues=snapshot.queues,
            concurrency=snapshot.concurrency,
            wanted=count,
            least=count,
            most=count,
        )
        for name, count in counts.items()
    ]
