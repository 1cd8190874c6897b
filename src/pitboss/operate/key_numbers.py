"""The numbers at the head of the overview, and the hour of the queue that its verdict is about."""

from collections.abc import Sequence
from statistics import median

import msgspec

from pitboss.model.duration import Moment, Span
from pitboss.model.fleet import READY, ManagerView
from pitboss.model.queue import RESERVED, is_reserved
from pitboss.model.queue_forecast import Trend
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from pitboss.model.verdict import Health
from pitboss.operate.pulse import Pulse
from pitboss.operate.queue_flows import QueueFlow, slots_of
from pitboss.operate.status import Status

# The last minutes are compared with the hour.
_LATELY = 5
_WORSE = (Trend.GROWS, Trend.STALLED)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What came and ended in each minute of the last hour. Without a queue it is of all."""

    queue: str
    came: Sequence[float | None]
    went: Sequence[float | None]
    inflow: float
    outflow: float
    grows: bool


class KeyNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks and workers of the whole store. `growth` is that of the queues that grow, in tasks per second, and `oldest`
    the longest wait with its queue. `due`: tasks wait that could start. `short_of` is the resource pool that a queue
    lacks. `waits_over_time` are in seconds. `ending` and `usually_ending` are per second: of the last minutes and of
    the hour."""

    waiting: int
    of_users: str
    waiting_over_time: Sequence[float]
    waits_over_time: Sequence[float | None]
    usually_waiting: float | None
    growth: float
    grows_since: Moment | None
    oldest: tuple[Span, str] | None
    due: bool
    running: int
    slots: int
    short_of: str
    ending: float
    usually_ending: float
    failed: float
    ended: float
    ready: int
    workers: int
    crashed: int
    restarting: int


def evidence(status: Status, flows: Sequence[QueueFlow], pulse: Pulse) -> Evidence:
    """Of the queue that the verdict is about, or of that in which most waits if something is wrong."""
    named = [one for one in flows if one.queue.name == status.verdict.queue]
    if not named and status.verdict.health is not Health.HEALTHY:
        named = [one for one in flows if one.queue.waiting]
    if not named:
        came, went = pulse.whole(pulse.came), pulse.whole(pulse.ended)
        inflow, outflow = _lately(came), _lately(went)
        return Evidence(queue="", came=came, went=went, inflow=inflow, outflow=outflow, grows=False)
    found = named[0].forecast
    return Evidence(
        queue=named[0].queue.name,
        came=found.came,
        went=found.went,
        inflow=found.inflow,
        outflow=found.outflow,
        grows=found.trend is Trend.GROWS,
    )


def key_numbers(
    status: Status, flows: Sequence[QueueFlow], pulse: Pulse, managers: Sequence[ManagerView]
) -> KeyNumbers:
    workers = [worker for manager in managers for worker in manager.snapshot.workers]
    waits = [(one.forecast.waited, one.queue.name) for one in flows if one.forecast.waited]
    growing = [one.forecast for one in flows if one.forecast.trend is Trend.GROWS]
    waiting, running = sum(one.queue.waiting for one in flows), sum(one.running for one in flows)
    over_time = [max(0, (one or 0) - running) for one in pulse.unfinished(waiting + running)]
    return KeyNumbers(
        waiting=waiting,
        of_users=_of_users(status),
        waiting_over_time=over_time,
        waits_over_time=_waits(pulse.waited, over_time),
        usually_waiting=median(over_time) if over_time else None,
        growth=sum(one.inflow - one.outflow for one in growing),
        grows_since=min((one.since for one in growing if one.since is not None), default=None),
        oldest=max(waits, default=None),
        due=any(one.queue.counts.get(State.PENDING) for one in flows),
        running=running,
        slots=slots_of(managers),
        short_of=next((one.forecast.pinch.name for one in flows if _short(one)), ""),
        ending=_lately(pulse.whole(pulse.ended)),
        usually_ending=_per_second(pulse.ended, len(pulse.ended)),
        failed=sum(one or 0 for one in pulse.failed),
        ended=sum(one or 0 for one in pulse.ended),
        ready=sum(one.state in READY for one in workers),
        workers=len(workers),
        crashed=sum(one.state is WorkerState.CRASHED for one in workers),
        restarting=sum(one.state is WorkerState.RESTARTING for one in workers),
    )


def _waits(waited: Sequence[float | None], waiting: Sequence[float]) -> list[float | None]:
    """How long tasks waited: not at all in a minute in which none did, and none started that would say so."""
    return [0 if one is None and not number else one for one, number in zip(waited, waiting, strict=True)]


def _lately(numbers: Sequence[float | None]) -> float:
    return _per_second(numbers[-_LATELY:], _LATELY)


def _per_second(numbers: Sequence[float | None], minutes: int) -> float:
    return sum(one or 0 for one in numbers) / (minutes * 60) if minutes else 0.0


def _of_users(status: Status) -> str:
    """The end of a filter that leaves out what the numbers leave out: tasks of Pitboss itself, if there are any."""
    own = any(is_reserved(one.name) and any(one.counts.values()) for one in status.queues)
    return f" -queue:{RESERVED}*" if own else ""


def _short(one: QueueFlow) -> bool:
    """Whether it waits for members of a resource pool."""
    return one.forecast.trend in _WORSE and one.forecast.pinch.kind == "resource"
