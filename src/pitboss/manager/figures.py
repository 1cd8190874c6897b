"""What a manager tells of itself: pools and workers as people see them."""

import asyncio
from functools import cache
from importlib import metadata

from pitboss.manager.crew import Crew
from pitboss.manager.place import Place
from pitboss.manager.process import WorkerProcess
from pitboss.manager.staff import Staff
from pitboss.manager.vitals import cores, host_memory
from pitboss.model.duration import SECOND, Moment
from pitboss.model.snapshot import SHOWN_TASKS, CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState


def snapshot(target: str, staff: Staff, now: Moment, *, draining: bool, term: int, logs: str) -> Snapshot:
    """Everything as it is at this moment."""
    crews = staff.every_crew()
    return Snapshot(
        target=target,
        pools=tuple(_pool(staff, crew) for crew in crews),
        workers=tuple(
            figures for crew in crews for place in crew.every_place() for figures in _workers(place, crew, now)
        ),
        draining=draining,
        term=term,
        logs=logs,
        version=version(),
        cores=cores(),
        memory=host_memory(),
    )


@cache
def version() -> str:
    return metadata.version("pitboss")


def _pool(staff: Staff, crew: Crew) -> PoolFigures:
    wanted, why = staff.wanted(crew.spec)
    return PoolFigures(
        name=crew.spec.name,
        queues=crew.spec.queues,
        concurrency=crew.spec.concurrency,
        wanted=wanted,
        least=crew.spec.min_workers,
        most=crew.spec.max_workers,
        paused=crew.paused,
        generation=crew.edition[0],
        why=crew.trouble or why,
    )


def _workers(place: Place, crew: Crew, now: Moment) -> list[WorkerFigures]:
    """The workers of one place: usually one, two while one is replaced, none while it waits or was given up."""
    if not place.workers:
        return [
            WorkerFigures(name=place.name, pool=crew.spec.name, state=place.state, crashes=place.crashes, why=place.why)
        ]
    return [_worker(worker, place, crew, now) for worker in list(place.workers)]


def _worker(worker: WorkerProcess, place: Place, crew: Crew, now: Moment) -> WorkerFigures:
    # The loop's clock and the store's differ; ages are the same in both.
    ahead = now - round(asyncio.get_running_loop().time() * SECOND)
    since = {key: ahead + round(at * SECOND) for key, at in worker.since.items()}
    current = [
        CurrentTask(id=claim.id, handler=claim.handler, since=since[key])
        for key, claim in list(worker.claims.items())[:SHOWN_TASKS]
    ]
    return WorkerFigures(
        name=worker.name,
        pool=crew.spec.name,
        state=_state(worker),
        pid=worker.pid,
        generation=worker.edition[0],
        started_at=ahead + round(worker.began * SECOND),
        active_at=ahead + round(worker.heard_at * SECOND),
        running=len(worker.claims),
        tasks=tuple(current),
        crashes=place.crashes,
        processed=worker.processed,
        succeeded=worker.succeeded,
        failed=worker.failed,
        mean=worker.busy // worker.processed if worker.processed else 0,
        rss=worker.memory,
        cpu=round(worker.cpu, 3),
        why="its event loop is blocked" if worker.named_blocked else place.last_crash if place.crashes else "",
    )


def _state(worker: WorkerProcess) -> WorkerState:
    if worker.draining:
        return WorkerState.DRAINING
    if not worker.ready.is_set():
        return WorkerState.STARTING
    return WorkerState.PROCESSING if worker.claims else WorkerState.IDLE
