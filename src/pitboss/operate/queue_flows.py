"""Queues with what comes in and what ends: who waits the longest, how fast it drains, and whether it will."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from pitboss.client.waiting import explain_queues
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.eta import ENOUGH_ITEMS, Range
from pitboss.model.figures import HOUR
from pitboss.model.fleet import ManagerView, live_managers
from pitboss.model.queue import Queue
from pitboss.model.states import State
from pitboss.model.waiting import Why
from pitboss.operate.figures import FigureReading, Values, read_figures

# The speed of the last minutes decides what is expected.
LATELY: Span = 300 * SECOND
_SHORT_WAIT: Span = 10 * SECOND
_SPREAD = 0.25
_MOST_READ = 50


class Outlook(StrEnum):
    """What becomes of the tasks that wait."""

    PAUSED = "paused"
    IDLE = "idle"
    KEEPS_UP = "keeps_up"
    CLEARS = "clears"
    GROWS = "grows"
    STANDS = "stands"
    UNKNOWN = "unknown"


class QueueFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one moment. Rates are tasks per second of the last minutes; series are of the last hour. `slots` are
    those of the live workers that serve it. `clears` is when nothing will wait, from now; `why` is what its oldest task
    waits for."""

    queue: Queue
    arrived: Values
    ended: Values
    arriving: float
    ending: float
    oldest: Span | None
    slots: int
    run_p95: float | None
    outlook: Outlook
    clears: Range | None = None
    why: Why | None = None

    @property
    def running(self) -> int:
        return self.queue.counts.get(State.RUNNING, 0)


async def read_queue_flows(store: Store, now: Moment, *, since: Span = HOUR) -> list[QueueFlow]:
    """All queues, those in which most waits first; of the first `_MOST_READ` with their figures."""
    queues, sessions = await store.queues(), await store.sessions()
    managers = live_managers(sessions, now)
    longest: dict[str, tuple[Span, Why]] = {}
    for task, why in await explain_queues(store, queues, sessions, now):
        waited = max(0, now - max(task.created_at, task.run_at or 0))
        if task.queue not in longest or waited > longest[task.queue][0]:
            longest[task.queue] = waited, why
    found = []
    for place, queue in enumerate(sorted(queues, key=lambda one: (-one.waiting, one.name))):
        figures = await read_figures(store, now, since=since, queue=queue.name) if place < _MOST_READ else None
        found.append(_flow(queue, figures, longest.get(queue.name), managers))
    return found


def _flow(
    queue: Queue, figures: FigureReading | None, longest: tuple[Span, Why] | None, managers: Sequence[ManagerView]
) -> QueueFlow:
    series = {} if figures is None else figures.series
    step = HOUR if figures is None else figures.step
    lately = max(1, LATELY // step)
    arriving, ending = (sum(series.get(name, ())[-lately:]) * SECOND / (lately * step) for name in ("in", "out"))  # type: ignore[arg-type]
    slots = sum(_slots(one, queue.name) for one in managers)
    oldest, why = longest or (None, None)
    outlook = _outlook(queue, arriving, ending, oldest, slots)
    ended = round(ending * lately * step / SECOND)
    return QueueFlow(
        queue=queue,
        arrived=series.get("in", ()),
        ended=series.get("out", ()),
        arriving=arriving,
        ending=ending,
        oldest=oldest,
        slots=slots,
        run_p95=next((one for one in reversed(series.get("run_p95", ())) if one is not None), None),
        outlook=outlook,
        clears=_clears(queue.waiting, arriving, ending, ended) if outlook is Outlook.CLEARS else None,
        why=why,
    )


def _outlook(queue: Queue, arriving: float, ending: float, oldest: Span | None, slots: int) -> Outlook:
    pending = queue.counts.get(State.PENDING, 0)
    if queue.paused:
        return Outlook.PAUSED
    if not pending:
        return Outlook.KEEPS_UP if arriving or ending or queue.counts.get(State.RUNNING) else Outlook.IDLE
    if oldest is not None and oldest < _SHORT_WAIT:
        return Outlook.KEEPS_UP
    if not ending:
        return Outlook.STANDS if not slots or not queue.counts.get(State.RUNNING) else Outlook.UNKNOWN
    return Outlook.CLEARS if ending > arriving else Outlook.GROWS


def _clears(waiting: int, arriving: float, ending: float, ended: int) -> Range | None:
    """A range, because speeds vary; None while too few have ended."""
    if ended < ENOUGH_ITEMS:
        return None
    net = ending - arriving
    return Range(round(waiting / (net * (1 + _SPREAD)) * SECOND), round(waiting / (net * (1 - _SPREAD)) * SECOND))


def _slots(manager: ManagerView, queue: str) -> int:
    """The slots of its live workers that serve this queue."""
    serving = {one.name: one.concurrency for one in manager.snapshot.pools if _serves(one.queues, queue)}
    return sum(serving.get(worker.pool, 0) for worker in manager.live)


def _serves(queues: Iterable[str] | None, queue: str) -> bool:
    return queues is None or queue in queues
