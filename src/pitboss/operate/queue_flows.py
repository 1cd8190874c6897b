"""Queues as lists of pages show them: with their forecasts, the slots of the workers that serve them, and run times."""

from collections.abc import Mapping, Sequence

import msgspec

from pitboss.model.fleet import ManagerView, WorkerPoolView, live_managers, worker_pools
from pitboss.model.queue import Queue, is_reserved
from pitboss.model.queue_forecast import QueueForecast, Trend
from pitboss.model.states import State
from pitboss.model.verdict_case import serves
from pitboss.operate.pulse import RunTimes
from pitboss.operate.status import Status

_UNKNOWN = QueueForecast(trend=Trend.UNKNOWN)
_UNKNOWN_RUNS = RunTimes()


class QueueFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one moment. `slots` are those of the live workers that serve it, for other queues too."""

    queue: Queue
    forecast: QueueForecast
    slots: int
    runs: RunTimes

    @property
    def running(self) -> int:
        return self.queue.counts.get(State.RUNNING, 0)


def queue_flows(status: Status, runs: Mapping[str, RunTimes]) -> list[QueueFlow]:
    """All queues but the reserved ones, those in which most waits first."""
    views = worker_pools(live_managers(status.sessions, status.now))
    return [
        QueueFlow(
            queue=queue,
            forecast=status.forecasts.get(queue.name, _UNKNOWN),
            slots=_slots(views, queue.name),
            runs=runs.get(queue.name, _UNKNOWN_RUNS),
        )
        for queue in sorted(status.queues, key=lambda one: (-one.waiting, one.name))
        if not is_reserved(queue.name)
    ]


def slots_of(managers: Sequence[ManagerView]) -> int:
    """The slots of all live workers."""
    return sum(view.slots for view in worker_pools(managers))


class ServingPool(msgspec.Struct, frozen=True, kw_only=True):
    """A worker pool that serves a queue, on all its hosts."""

    name: str
    hosts: tuple[str, ...]
    workers: int
    slots: int


def serving_pools(views: Sequence[WorkerPoolView], queue: str) -> list[ServingPool]:
    """The worker pools that serve this queue, by name."""
    found: dict[str, list[WorkerPoolView]] = {}
    for view in views:
        if serves(view, queue):
            found.setdefault(view.pool.name, []).append(view)
    return [
        ServingPool(
            name=name,
            hosts=tuple(sorted({one.manager.host for one in own})),
            workers=sum(len(one.live) for one in own),
            slots=sum(one.slots for one in own),
        )
        for name, own in sorted(found.items())
    ]


def _slots(views: Sequence[WorkerPoolView], queue: str) -> int:
    return sum(one.slots for one in serving_pools(views, queue))
