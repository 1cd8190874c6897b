"""The snapshot of a manager: its pools and workers, as other hosts see them."""

import asyncio
from collections.abc import Callable
from functools import cache
from importlib import metadata

import msgspec

from pitboss.manager import host
from pitboss.manager.host_memory import total_memory
from pitboss.manager.pool_set import PoolSet
from pitboss.manager.worker_pool import WorkerPool
from pitboss.manager.worker_process import WorkerProcess
from pitboss.manager.worker_slot import WorkerSlot
from pitboss.model.duration import SECOND, Moment
from pitboss.model.snapshot import SHOWN_TASKS, CurrentTask, PoolFigures, Snapshot, WorkerFigures

TasksMemory = tuple[int, int, dict[str, int]]


def snapshot(
    target: str,
    pool_set: PoolSet,
    now: Moment,
    *,
    draining: bool,
    term: int,
    logs: str,
    tasks_memory: TasksMemory,
    room: Callable[[str], int],
) -> Snapshot:
    """Everything as it is now. `room` is how many more tasks the worker with this id takes."""
    pools = pool_set.every_pool()
    budget, in_use, needs = tasks_memory
    return Snapshot(
        target=target,
        pools=tuple(_pool(pool_set, pool) for pool in pools),
        workers=tuple(
            msgspec.structs.replace(figures, slot=pool_set.slot_number(pool.spec.name, slot.place))
            for pool in pools
            for slot in pool.every_slot()
            for figures in _workers(slot, pool, now, room)
        ),
        draining=draining,
        term=term,
        logs=logs,
        version=version(),
        cores=host.cores(),
        memory=total_memory(),
        budget=budget,
        in_use=in_use,
        needs=needs,
        runs_tasks=bool(target),
    )


@cache
def version() -> str:
    return metadata.version("pitboss")


def _pool(pool_set: PoolSet, pool: WorkerPool) -> PoolFigures:
    wanted, why = pool_set.wanted(pool.spec)
    ordered = pool_set.desired_pool(pool.spec.name)
    return PoolFigures(
        name=pool.spec.name,
        queues=pool.spec.queues,
        concurrency=pool.spec.concurrency,
        wanted=len(pool.spec.places(wanted)),
        least=pool.spec.min_workers,
        most=pool.spec.max_workers,
        only=pool.spec.only,
        paused=pool.paused,
        paused_by=ordered.paused_by,
        paused_at=ordered.paused_at,
        paused_reason=ordered.paused_reason,
        delay=pool_set.configured(pool.spec).delay,
        generation=pool.edition[0],
        why=pool.trouble or why,
        memory=pool.spec.soft or 0,
    )


def _workers(slot: WorkerSlot, pool: WorkerPool, now: Moment, room: Callable[[str], int]) -> list[WorkerFigures]:
    """The workers of one slot: usually one, two during a replacement, none while it waits or was given up."""
    if not slot.workers:
        return [
            WorkerFigures(
                name=slot.name,
                pool=pool.spec.name,
                state=slot.state,
                crashes=slot.crashes,
                next_at=slot.next_at or 0,
                why=slot.why,
            )
        ]
    found = [(_worker(worker, slot, pool, now), room(worker.id)) for worker in list(slot.workers)]
    return [msgspec.structs.replace(figures, room=left) for figures, left in found]


def _worker(worker: WorkerProcess, slot: WorkerSlot, pool: WorkerPool, now: Moment) -> WorkerFigures:
    # The loop's clock and the store's clock differ; ages are the same in both.
    ahead = now - round(asyncio.get_running_loop().time() * SECOND)
    since = {key: ahead + round(at * SECOND) for key, at in worker.since.items()}
    current = [
        CurrentTask(id=claim.id, handler=claim.handler, since=since[key])
        for key, claim in list(worker.claims.items())[: min(SHOWN_TASKS, worker.capacity)]
    ]
    return WorkerFigures(
        name=worker.name,
        pool=pool.spec.name,
        state=worker.state,
        pid=worker.pid,
        generation=worker.edition[0],
        started_at=ahead + round(worker.began * SECOND),
        active_at=ahead + round(worker.heard_at * SECOND),
        # The others wait in the worker, so that it need not wait for them.
        running=min(len(worker.claims), worker.capacity),
        tasks=tuple(current),
        crashes=slot.crashes,
        processed=worker.processed,
        succeeded=worker.succeeded,
        failed=worker.failed,
        mean=worker.busy // worker.processed if worker.processed else 0,
        rss=worker.memory,
        cpu=round(worker.cpu, 3),
        why=worker.blocked or (slot.last_crash if slot.crashes else ""),
    )
