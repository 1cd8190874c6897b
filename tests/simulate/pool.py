"""A worker pool in virtual time: tasks arrive and run, workers take a second to start, scaling decides every two.

The decision, the estimate of durations, the smoothed arrivals and the rate windows are the real ones.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from random import Random

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.limits import allowed, opens_at
from pitboss.model.limits import rate as windows_of
from pitboss.model.pool import PoolSpec
from pitboss.model.quantiles import Quantiles
from pitboss.model.scaling import Arrivals, PoolLoad, ScalingState, decide

TICK: Span = 2 * SECOND
Service = Callable[[Random], Span]


def around(seconds: float) -> Service:
    """Exponential: most tasks are short, some take several times the mean."""
    return lambda luck: round(luck.expovariate(1 / seconds) * SECOND)


def poisson(rate: Callable[[float], float], seconds: float, *, most: float, seed: int = 1) -> list[Moment]:
    """Arrivals at random, `rate` of the second at each second, which is never above `most`."""
    luck, at, found = Random(seed), 0.0, list[Moment]()
    while (at := at + luck.expovariate(most)) < seconds:
        if luck.random() * most < rate(at):
            found.append(round(at * SECOND))
    return found


@dataclass
class Worker:
    busy: int = 0
    ready: bool = False
    leaving: bool = False


@dataclass
class Sample:
    """What was measured and decided at a tick."""

    at: Moment
    size: int
    pending: int
    oldest: Span
    running: int
    why: str


@dataclass
class Course:
    samples: list[Sample] = field(default_factory=list)
    waits: list[Span] = field(default_factory=list)
    starts: list[Moment] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        return [sample.size for sample in self.samples]

    def turns(self) -> list[float]:
        """The seconds at which the size changed its direction."""
        last, found = 0, []
        for before, after in pairwise(self.samples):
            way = (after.size > before.size) - (after.size < before.size)
            if way and last == -way:
                found.append(after.at / SECOND)
            last = way or last
        return found

    def recovered(self, target: Span, since: float) -> float:
        """Seconds from `since` until the oldest wait is under the target and stays there."""
        late = [sample.at for sample in self.samples if sample.oldest > target and sample.at >= since * SECOND]
        return (max(late) + TICK) / SECOND - since if late else 0.0

    def late_share(self, target: Span) -> float:
        return sum(wait > target for wait in self.waits) / len(self.waits)

    def row(self, name: str, target: Span) -> str:
        waits, sizes = sorted(self.waits), self.sizes
        late = sum(sample.oldest > target for sample in self.samples) * TICK / SECOND
        longest = max(sample.oldest for sample in self.samples) / SECOND
        return (
            f"{name:34} {len(waits):7} {min(sizes):5} {sum(sizes) / len(sizes):6.1f} {max(sizes):5} "
            f"{waits[int(len(waits) * 0.99)] / SECOND:7.1f} {longest:8.1f} {late:6.0f} {len(self.turns()):6}"
        )


HEADING = (
    f"{'load':34} {'started':>7} {'least':>5} {'mean':>6} {'most':>5} "
    f"{'p99 s':>7} {'oldest s':>8} {'late s':>6} {'turns':>6}"
)


class SimulatedPool:
    """`rate` limits the starts like the rate of a queue; with `told` false the decision does not know it."""

    def __init__(
        self,
        spec: PoolSpec,
        service: Service,
        *,
        rate: str = "",
        told: bool = True,
        start: Span = SECOND,
        state: ScalingState | None = None,
    ) -> None:
        self.spec, self.service, self.told, self.start = spec, service, told, start
        self.windows = windows_of(rate) if rate else ()
        self.state = state or ScalingState()
        self.course = Course()
        self.now: Moment = 0
        self._luck = Random(7)
        self._events: list[tuple[Moment, int, Callable[[], None]]] = []
        self._numbered = 0
        self._workers: list[Worker] = []
        self._waiting: deque[Moment] = deque()
        self._recent: list[Moment] = []
        self._opening: Moment = 0
        self._arrived = 0
        self._arrivals, self._durations = Arrivals(), Quantiles()

    def run(self, arrivals: Iterable[Moment], seconds: int) -> Course:
        for moment in arrivals:
            self._plan(moment, self._arrive)
        for moment in range(0, seconds * SECOND, TICK):
            self._plan(moment, self._tick)
        while self._events and self._events[0][0] < seconds * SECOND:
            self.now, _, act = heappop(self._events)
            act()
            self._hand_out()
        return self.course

    def _plan(self, moment: Moment, act: Callable[[], None]) -> None:
        self._numbered += 1
        heappush(self._events, (moment, self._numbered, act))

    def _arrive(self) -> None:
        self._arrived += 1
        self._waiting.append(self.now)

    def _hand_out(self) -> None:
        while self._waiting and (worker := self._roomy()) is not None:
            if allowed(self.windows, self._recent, self.now) == 0:
                self._wait_for(opens_at(self.windows, self._recent))
                return
            self._start(worker, self._waiting.popleft())

    def _wait_for(self, opening: Moment) -> None:
        if opening > self._opening:
            self._opening = opening
            self._plan(opening, lambda: None)

    def _roomy(self) -> Worker | None:
        there = [worker for worker in self._workers if worker.ready and not worker.leaving]
        least = min(there, key=lambda worker: worker.busy, default=None)
        return least if least is not None and least.busy < self.spec.concurrency else None

    def _start(self, worker: Worker, came: Moment) -> None:
        worker.busy += 1
        self.course.waits.append(self.now - came)
        self.course.starts.append(self.now)
        self._recent = [*self._recent, self.now][-max((window.count for window in self.windows), default=1) :]
        took = self.service(self._luck)
        self._plan(self.now + took, partial(self._end, worker, took))

    def _end(self, worker: Worker, took: Span) -> None:
        worker.busy -= 1
        self._durations.add(took)
        self._sweep()

    def _sweep(self) -> None:
        self._workers = [worker for worker in self._workers if worker.busy or not worker.leaving]

    def _tick(self) -> None:
        load = self._load()
        found = decide(load, self.spec, self.state, self.now)
        self.state = found.state
        self._resize(found.size)
        sample = Sample(self.now, found.size, load.pending, load.oldest_wait, load.running, found.why)
        self.course.samples.append(sample)

    def _load(self) -> PoolLoad:
        arrived, self._arrived = self._arrived, 0
        ready = [worker for worker in self._workers if worker.ready and not worker.leaving]
        limits = [window.count * SECOND / window.per for window in self.windows]
        return PoolLoad(
            pending=len(self._waiting),
            oldest_wait=self.now - self._waiting[0] if self._waiting else 0,
            arrivals=self._arrivals.count(arrived, self.now),
            rate=min(limits) if limits and self.told else None,
            running=sum(worker.busy for worker in self._workers),
            ready=len(ready),
            free=sum(self.spec.concurrency - worker.busy for worker in ready),
            mean=self._durations.mean,
            p90=self._durations.quantile(0.9),
        )

    def _resize(self, size: int) -> None:
        staying = [worker for worker in self._workers if not worker.leaving]
        for _ in range(size - len(staying)):
            worker = Worker()
            self._workers.append(worker)
            self._plan(self.now + self.start, partial(setattr, worker, "ready", True))
        for worker in sorted(staying, key=lambda worker: worker.busy)[: max(0, len(staying) - size)]:
            worker.leaving = True
        self._sweep()
