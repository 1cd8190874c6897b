"""All managers of a store with their pools and workers, as their sessions tell; for whoever looks from elsewhere."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pitboss.model.duration import Moment
from pitboss.model.session import Session
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState, read
from pitboss.model.waiting import alive

# Workers in these states have no process; the others have one, or are about to.
GONE = frozenset({WorkerState.STOPPED, WorkerState.CRASHED})
READY = frozenset({WorkerState.IDLE, WorkerState.PROCESSING})


class Managed(NamedTuple):
    """A manager: its session, and what it last told of itself (nothing, if it told nothing that we can read)."""

    session: Session
    told: Snapshot

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
        """When it told this: each renewal gives the session its whole time to live again."""
        return self.session.expires_at - self.session.info.ttl

    @property
    def live(self) -> list[WorkerFigures]:
        return [worker for worker in self.told.workers if worker.state not in GONE]

    @property
    def running(self) -> int:
        return sum(worker.running for worker in self.told.workers)

    @property
    def process(self) -> tuple[str, str, int]:
        """What stays the same when a manager opens another session, because it lost one or has other handlers."""
        info = self.session.info
        return info.host, info.boot_id, info.pid


class Place(NamedTuple):
    """One pool in one manager."""

    manager: Managed
    pool: PoolFigures
    workers: tuple[WorkerFigures, ...]

    @property
    def live(self) -> list[WorkerFigures]:
        return [worker for worker in self.workers if worker.state not in GONE]

    @property
    def ready(self) -> list[WorkerFigures]:
        return [worker for worker in self.workers if worker.state in READY]

    @property
    def crashed(self) -> list[WorkerFigures]:
        return [worker for worker in self.workers if worker.state is WorkerState.CRASHED]

    @property
    def running(self) -> int:
        return sum(worker.running for worker in self.workers)


def managers(sessions: Sequence[Session], now: Moment) -> list[Managed]:
    """Those that are alive. One that is going over to another session counts once, with its newest."""
    living = (managed(one) for one in alive(sessions, now) if one.info.kind == "manager")
    newest = {one.process: one for one in sorted(living, key=lambda one: one.number)}
    return sorted(newest.values(), key=lambda one: one.number)


def managed(session: Session) -> Managed:
    return Managed(session, read(session.snapshot) or Snapshot())


def places(fleet: Iterable[Managed], pool: str | None = None, host: str | None = None) -> list[Place]:
    """The pools, each in each manager; all of them, or those of one name or host."""
    found = [
        Place(one, figures, tuple(worker for worker in one.told.workers if worker.pool == figures.name))
        for one in fleet
        if host in (None, one.host)
        for figures in _pools(one.told)
    ]
    return sorted(
        (place for place in found if pool in (None, place.pool.name)),
        key=lambda place: (place.pool.name, place.manager.host, place.manager.number),
    )


def doing(workers: Iterable[WorkerFigures]) -> str:
    """What workers are at, by handler: "2 × fetch, 1 × send"."""
    workers = tuple(workers)
    counts = Counter(task.handler for worker in workers for task in worker.tasks)
    untold = sum(worker.running for worker in workers) - counts.total()
    names = [f"{count} × {handler}" for handler, count in counts.most_common()]
    return ", ".join([*names, *([f"{untold} more"] if untold > 0 and names else [])])


def _pools(told: Snapshot) -> Sequence[PoolFigures]:
    """A manager that tells of no pools may still tell of workers in them."""
    if told.pools:
        return told.pools
    counts = Counter(worker.pool for worker in told.workers if worker.state not in GONE)
    return [
        PoolFigures(name=name, queues=told.queues, concurrency=told.concurrency, wanted=count, least=count, most=count)
        for name, count in counts.items()
    ]
