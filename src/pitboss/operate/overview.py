"""How workers and tasks did over a time, altogether and worker by worker, also before their last restart.

Numbers of tasks are exact: the store counts them. What only managers know comes from their samples, and from their
snapshots for this moment.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pitboss.client.samples import read_samples
from pitboss.engines.capabilities import figures_of
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.errors import InvalidInput
from pitboss.model.figures import (
    HOUR,
    MINUTE,
    RAW,
    Flow,
    HandlerFigures,
    Histogram,
    SampleSum,
    WorkerSample,
    bucket,
)
from pitboss.model.fleet import READY, ManagerView, live_managers
from pitboss.model.queue import Queue, is_reserved
from pitboss.model.retention import Retention
from pitboss.model.snapshot import WorkerFigures, WorkerState
from pitboss.model.states import State
from pitboss.operate.documents import Document, utc

_SOON_LOST: Span = 2 * HOUR
_KEPT = Retention()
_GONE = "gone"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that ended in a time. `share` is the part of the processed ones that succeeded; None without any."""

    successful: int = 0
    failed: int = 0
    within: Span = 0

    @property
    def processed(self) -> int:
        return self.successful + self.failed

    @property
    def share(self) -> float | None:
        return self.successful / self.processed if self.processed else None

    @property
    def per_second(self) -> float:
        """Completed tasks per second."""
        return self.successful * SECOND / self.within if self.within else 0.0


class QueueOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: how many tasks wait and run now, and what became of others in the time."""

    name: str
    waiting: int
    running: int
    work: Work
    processing: Histogram
    retried: int = 0


class WorkerOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A worker and its successors of the same name. `state` is "gone" if none is there now; `uptime` is that of its
    process, and `alive` for how long of the time one was there."""

    host: str
    name: str
    pool: str
    state: str
    work: Work
    mean: Span | None = None
    uptime: Span | None = None
    alive: Span = 0
    memory: int | None = None
    crashes: int = 0
    last: Moment | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a time. `active` workers run tasks now. `covered` is the part of the time in which a manager ran,
    `lost` are runs that were lost with their worker or manager. Where managers wrote more samples than are read, what
    they measured is that since `measured_since`."""

    since: Moment
    until: Moment
    work: Work
    cancelled: int
    retried: int
    lost: int
    processing: Histogram
    waited: Histogram
    covered: float
    restarts: int
    crashes: int
    workers: tuple[WorkerOverview, ...]
    queues: tuple[QueueOverview, ...]
    measured_since: Moment | None = None

    @property
    def present(self) -> list[WorkerOverview]:
        return [one for one in self.workers if one.state != _GONE]

    @property
    def active(self) -> int:
        return sum(one.state == WorkerState.PROCESSING for one in self.workers)

    @property
    def uptime(self) -> Span | None:
        """The average of the present workers."""
        known = [one.uptime for one in self.present if one.uptime is not None]
        return sum(known) // len(known) if known else None

    @property
    def memory(self) -> int:
        return sum(one.memory or 0 for one in self.present)

    @property
    def last(self) -> Moment | None:
        return max((one.last for one in self.workers if one.last is not None), default=None)


async def read_overview(store: Store, now: Moment, since: Span = 24 * HOUR) -> Overview:
    """The last `since`. Times of more than two hours ago are rounded to whole minutes, or to whole hours."""
    if since < MINUTE:
        raise InvalidInput(
            f"figures of {spoken(since)} cannot be read", why="they are kept for a minute and more", fix="ask for 1h"
        )
    figures, step = figures_of(store), _step(since)
    first = bucket(now - since, step)
    flows = await figures.flows(first, now + 1, span=step)
    measured = SampleSum(first, now - first)
    known = await read_samples(figures, first, now, measured.add)
    queues = [one for one in await store.queues() if not is_reserved(one.name)]
    managers = live_managers(await store.sessions(), now)
    own = [one for one in flows if not is_reserved(one.queue)]
    handlers = [one for one in measured.handlers.values() if not is_reserved(one.queue)]
    pools = measured.pools.values()
    return Overview(
        since=first,
        until=now,
        work=_work(own, now - first),
        cancelled=sum(one.cancelled for one in own),
        retried=sum(one.retried for one in own),
        lost=sum(one.lost for one in own),
        processing=_together(one.run for one in handlers),
        waited=_together(one.wait for one in handlers),
        covered=min(1.0, measured.covered * SECOND / max(SECOND, now - (known or first))),
        restarts=sum(one.restarts for one in pools),
        crashes=sum(one.crashes for one in pools),
        workers=tuple(_workers(managers, measured.workers, now, now - first)),
        queues=tuple(_queue(one, own, handlers, now - first) for one in queues),
        measured_since=known,
    )


def _step(since: Span) -> Span:
    """The length of the oldest buckets of this time, unless the settings say otherwise."""
    if _KEPT.figures_1m is not None and since > _KEPT.figures_1m:
        return HOUR
    return MINUTE if since > _SOON_LOST else RAW


def _work(flows: Iterable[Flow], within: Span) -> Work:
    ended = list(flows)
    return Work(successful=sum(one.completed for one in ended), failed=sum(one.failed for one in ended), within=within)


def _together(found: Iterable[Histogram]) -> Histogram:
    total = Histogram()
    for one in found:
        total.merge(one)
    return total


def _queue(queue: Queue, flows: Sequence[Flow], handlers: Sequence[HandlerFigures], within: Span) -> QueueOverview:
    own = [one for one in flows if one.queue == queue.name]
    return QueueOverview(
        name=queue.name,
        waiting=queue.waiting,
        running=queue.counts.get(State.RUNNING, 0),
        work=_work(own, within),
        retried=sum(one.retried for one in own),
        processing=_together(one.run for one in handlers if one.queue == queue.name),
    )


def _workers(
    managers: Sequence[ManagerView], known: Mapping[tuple[str, str], WorkerSample], now: Moment, within: Span
) -> list[WorkerOverview]:
    """Those that are there, and those that were there in the time, busiest first."""
    present = [
        (one.host, worker)
        for one in managers
        for worker in one.snapshot.workers
        if worker.state is not WorkerState.STOPPED
    ]
    # During a replacement two workers have one name: the one that stays counts.
    present.sort(key=lambda found: found[1].state is not WorkerState.DRAINING)
    there = {(host, worker.name): worker for host, worker in present}
    found = [
        _worker(host, name, there.get((host, name)), known, now, within)
        for host, name in sorted({*known, *there}, key=lambda key: key not in there)
    ]
    return sorted(found, key=lambda one: (one.state == _GONE, one.pool, one.host, one.name))


def _worker(
    host: str,
    name: str,
    live: WorkerFigures | None,
    known: Mapping[tuple[str, str], WorkerSample],
    now: Moment,
    within: Span,
) -> WorkerOverview:
    measured = known.get((host, name)) or WorkerSample(host, name)
    done = measured.succeeded + measured.failed
    mean = measured.busy // done if done else None
    last = max(measured.last, live.active_at if live is not None and live.running else 0)
    there = live is not None and live.state in (*READY, WorkerState.DRAINING)
    return WorkerOverview(
        host=host,
        name=name,
        pool=live.pool if live is not None else measured.pool,
        state=_GONE if live is None else live.state,
        work=Work(successful=measured.succeeded, failed=measured.failed, within=within),
        mean=mean,
        uptime=now - live.started_at if live is not None and there and live.started_at else None,
        alive=measured.alive * SECOND,
        memory=live.rss if live is not None and there else None,
        crashes=live.crashes if live is not None else 0,
        last=last or None,
    )


def overview_document(found: Overview) -> Document:
    """Spans are seconds, memory is in bytes, shares are from 0 to 1."""
    return {
        "since": utc(found.since),
        "until": utc(found.until),
        "covered": round(found.covered, 4),
        "measured_since": utc(found.measured_since),
        "workers_total": len(found.present),
        "workers_active": found.active,
        "average_uptime": _seconds(found.uptime),
        "memory": found.memory,
        "restarts": found.restarts,
        "crashes": found.crashes,
        "last_activity": utc(found.last),
        **_work_document(found.work),
        "cancelled": found.cancelled,
        "retried": found.retried,
        "lost": found.lost,
        **_times(found.processing, "processing_time"),
        **_times(found.waited, "wait_time"),
        "workers": [_worker_document(one) for one in found.workers],
        "queues": [
            {
                "name": one.name,
                "waiting": one.waiting,
                "running": one.running,
                **_work_document(one.work),
                "retried": one.retried,
                **_times(one.processing, "processing_time"),
            }
            for one in found.queues
        ],
    }


def _work_document(work: Work) -> Document:
    share = work.share
    return {
        "processed": work.processed,
        "successful": work.successful,
        "failed": work.failed,
        "success_rate": None if share is None else round(share, 4),
        "error_rate": None if share is None else round(1 - share, 4),
        "completed_per_second": round(work.per_second, 4),
    }


def _times(found: Histogram, name: str) -> Document:
    return {f"average_{name}": _seconds(found.mean), f"{name}_p95": _seconds(found.quantile(0.95))}


def _worker_document(one: WorkerOverview) -> Document:
    return {
        "name": one.name,
        "host": one.host,
        "pool": one.pool,
        "state": one.state,
        **_work_document(one.work),
        "average_processing_time": _seconds(one.mean),
        "uptime": _seconds(one.uptime),
        "alive": _seconds(one.alive),
        "memory": one.memory,
        "crashes": one.crashes,
        "last_activity": utc(one.last),
    }


def _seconds(value: Span | None) -> float | None:
    return None if value is None else round(value / SECOND, 6)
