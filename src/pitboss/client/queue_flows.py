"""Reads what becomes of queues: what came and went lately, who runs their tasks, and what these wait for.

Nothing that is read here grows with the number of stored tasks.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from pitboss.client.waiting import Waiting, WaitingTask, oldest_wait, read_waiting
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.model.batch import Batch
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.figures import MINUTE, RAW, Flow, bucket
from pitboss.model.fleet import WorkerPoolView, alive, live_managers, worker_pools
from pitboss.model.gates import Gate
from pitboss.model.leasing import in_service, limits_of
from pitboss.model.pool_state import PoolState, pool_state
from pitboss.model.queue import Queue
from pitboss.model.queue_forecast import QueueFlow, QueueForecast, forecast_queue
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView, steady
from pitboss.model.tides import Tide

# Buckets of ten seconds for the last minutes, of a minute before that.
_FINE: Span = 600 * SECOND
_MINUTES = 60


async def read_forecasts(
    store: Store,
    now: Moment,
    *,
    queues: Sequence[Queue] | None = None,
    sessions: Sequence[Session] | None = None,
    waiting: Waiting | None = None,
) -> dict[str, QueueForecast]:
    """What becomes of each queue, by name. What the caller has read already is not read again."""
    found = await store.queues() if queues is None else queues
    living = await store.sessions() if sessions is None else sessions
    scene = await read_waiting(store, found, living, now, sparing=True) if waiting is None else waiting
    history = await _read_history(store, now)
    served = _Serving(living, now, [one.name for one in found if one.counts.get(State.PENDING)])
    pools = {name: pool_state(view, now) for name, view in scene.scene.pools.items() if view.members}
    waits = {one.name: await _waited(store, one, scene, now) for one in found}
    return {one.name: _forecast(one, history, served, scene, pools, waits[one.name], now) for one in found}


async def _waited(store: Store, queue: Queue, waiting: Waiting, now: Moment) -> Span | None:
    """Of queues whose tasks were read."""
    line = waiting.scene.lines.get(queue.name)
    if line is None:
        return None if queue.counts.get(State.PENDING) else 0
    return await oldest_wait(store, queue, now, line)


def _forecast(
    queue: Queue,
    history: "_History",
    served: "_Serving",
    waiting: Waiting,
    pools: Mapping[str, PoolState],
    waited: Span | None,
    now: Moment,
) -> QueueForecast:
    own = [one for one in waiting.tasks if one.task.queue == queue.name]
    views = served.views(queue.name)
    ready = [(view.pool.concurrency, one) for view in views for one in view.ready]
    done = sum(one.processed for _, one in ready)
    mean = sum(one.mean * one.processed for _, one in ready) // done if done else _usual(own, views)
    resources = waiting.scene.pools.get(queue.resources or "")
    flow = QueueFlow(
        queue=queue,
        now=now,
        tides=history.tides(queue.name, now),
        drawn=_drawn(queue, waiting.running),
        served_since=served.since(queue.name),
        gate=_gate(own),
        waited=waited,
        seats=sum(seats for seats, _ in ready),
        busy=sum(one.running for _, one in ready),
        free=sum(view.free for view in views),
        mean=mean,
        expected=min(served.expected(queue.name, mean), _allowed(resources, mean, now)),
        pool=pools.get(queue.resources or ""),
    )
    minutes = history.minutes(queue.name, now)
    return msgspec.structs.replace(
        forecast_queue(flow),
        at_work=None if waiting.scene.remote else served.at_work(queue),
        came=tuple(one.came for one in minutes),
        went=tuple(one.went for one in minutes),
    )


def _usual(own: Sequence[WaitingTask], views: Sequence[WorkerPoolView]) -> Span:
    """How long its waiting tasks should take, as managers remember; 0 if they do not know."""
    usual = {name: time for view in views for name, time in view.manager.snapshot.usual.items()}
    known = [usual[one.task.handler] for one in own if one.task.handler in usual]
    return sum(known) // len(known) if known else 0


def _allowed(pool: ResourcePoolView | None, use: Span, now: Moment) -> float:
    """Tasks per second for which the members of its resource pool are enough."""
    if pool is None or not pool.members:
        return inf
    return sum(steady(limits_of(one, pool.rules), use) for one in pool.members if in_service(one, now))


def _drawn(queue: Queue, running: Iterable[Batch]) -> int:
    """Held items of running batches, as far as they are in this queue: claims draw them."""
    shares = (one.counts.get(State.HELD, 0) / len(one.queues) for one in running if queue.name in one.queues)
    return min(round(sum(shares)), queue.counts.get(State.HELD, 0))


def _gate(own: Sequence[WaitingTask]) -> Gate | None:
    """What the first of its oldest tasks waits at, if all that were looked at wait at something."""
    gates = [one.why.shut for one in own if one.task.state is State.PENDING] or [one.why.shut for one in own]
    return gates[0] if gates and all(one is not None for one in gates) else None


class _Serving:
    """Which worker pools take tasks of which queue, and since when."""

    def __init__(self, sessions: Sequence[Session], now: Moment, waiting: Sequence[str]) -> None:
        self._waiting = waiting
        self._managers = live_managers(sessions, now)
        self._views = worker_pools(self._managers)
        self._remote = [one.opened_at for one in alive(sessions, now) if one.info.kind != "manager"]

    def views(self, queue: str) -> list[WorkerPoolView]:
        taking = [one for one in self._views if not one.pool.paused and not one.manager.snapshot.draining]
        return [one for one in taking if _takes(one, queue)]

    def at_work(self, queue: Queue) -> int | None:
        """How many of its claimed tasks can have begun: there are no more seats for them. None without a manager. From
        seats, as the workers' own figures are some seconds old."""
        views = [one for one in self._views if _takes(one, queue.name)]
        return min(queue.counts.get(State.RUNNING, 0), sum(one.usable for one in views)) if views else None

    def expected(self, queue: str, mean: Span) -> float:
        """Tasks per second that its workers end if each takes `mean`, when all of them run; 0 if that is unknown. Those
        that take other queues with a backlog too have a part of their time for it."""
        total = 0.0
        for view in self.views(queue) if mean else ():
            pool, share = view.pool, sum(_takes(view, one) for one in self._waiting)
            seats = 0 if view.dead else pool.wanted * pool.concurrency
            total += seats * SECOND / (mean + sum(pool.delay) // 2) / max(1, share)
        return total

    def since(self, queue: str) -> Moment | None:
        """Since when one of the present managers has been there for this queue."""
        known = {view.manager.number for view in self._views}
        there = [view.manager.session.opened_at for view in self._views if _takes(view, queue)]
        # One that has not told of its workers yet may have some for this queue.
        there += [one.session.opened_at for one in self._managers if one.number not in known]
        return min([*there, *self._remote], default=None)


def _takes(view: WorkerPoolView, queue: str) -> bool:
    return view.pool.queues is None or queue in view.pool.queues


class _History(NamedTuple):
    """What happened by queue and bucket: in short buckets lately, in minutes before."""

    fine: Mapping[tuple[str, Moment], Flow]
    coarse: Mapping[tuple[str, Moment], Flow]
    turn: Moment

    def tides(self, queue: str, now: Moment) -> list[Tide]:
        before = range(self.turn - (_MINUTES * MINUTE - _FINE), self.turn, MINUTE)
        lately = range(self.turn, now + 1, RAW)
        found = [_tide(self.coarse.get((queue, at)), at, MINUTE) for at in before]
        return found + [_tide(self.fine.get((queue, at)), at, max(1, min(RAW, now - at))) for at in lately]

    def minutes(self, queue: str, now: Moment) -> list[Tide]:
        """Whole minutes of the last hour."""
        ended = bucket(now, MINUTE)
        first = ended - _MINUTES * MINUTE
        counts: dict[Moment, tuple[int, int]] = {}
        for one in self.tides(queue, now):
            at = bucket(one.at, MINUTE)
            came, went = counts.get(at, (0, 0))
            counts[at] = came + one.came, went + one.went
        return [Tide(at, MINUTE, *counts.get(at, (0, 0))) for at in range(first, ended, MINUTE)]


def _tide(flow: Flow | None, at: Moment, span: Span) -> Tide:
    return Tide(at, span) if flow is None else Tide(at, span, flow.arrived, flow.ended)


async def _read_history(store: Store, now: Moment) -> _History:
    """Nothing on a store without figures."""
    figures, turn = capabilities(store).figures, bucket(now - _FINE, MINUTE)
    if figures is None:
        return _History({}, {}, turn)
    coarse = await figures.flows(turn - (_MINUTES * MINUTE - _FINE), turn, span=MINUTE)
    fine = await figures.flows(turn, now + 1, span=RAW)
    return _History({(one.queue, one.at): one for one in fine}, {(one.queue, one.at): one for one in coarse}, turn)
