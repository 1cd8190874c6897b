"""Whether the backlog of a queue clears, and when: from what came and went lately, and from what limits it.

Rates are those since the load last changed, so that a rush that is over says nothing of what comes. A short rush is a
burst: it is a part of the backlog, and no rate.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import inf, sqrt
from typing import Any, NamedTuple

import msgspec

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.eta import LIKELY, Range
from pitboss.model.gates import Gate
from pitboss.model.pool_state import PoolState
from pitboss.model.queue import Queue
from pitboss.model.states import State
from pitboss.model.text import counted
from pitboss.model.tides import Arrivals, Speed, Tide, arrivals, levels, rate_of

# A backlog that is gone within this time is none: the next tasks start soon.
SOON: Span = 10 * SECOND
# A task that has waited for less may be one of a normal flow.
_FRESH: Span = 30 * SECOND
# Members that are back within this time are away for a moment only.
_BACK_SOON: Span = 30 * SECOND
# After its start a manager starts workers for some seconds, which says nothing of their speed.
_STARTING: Span = 10 * SECOND
_QUIET: Span = 300 * SECOND
# By how many standard deviations in and out differ, if the backlog really grows or shrinks.
_SURE = 2.0
# Without an end for as long as usually this many tasks end, a queue stands still.
_MISSED, _STILL = 8, 60 * SECOND
_MINUTE, _HOUR, _DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
_ROUND_FROM, _NARROW = 90 * SECOND, 1.35
# The share of its rate limit from which on that limit is what holds a queue back.
_NEAR_LIMIT = 0.85
_BUSY = ("busy", "slot-busy")
# All members that fit have failed or were refused: nothing starts before one is back.
_AWAY = ("cooling", "blacklisted", "key-cooling", "key-blacklisted")
# What grows has more unfinished tasks than at some moment of this time.
_GROWN_SINCE: Span = 120 * SECOND
_GROWN_UNTIL: Span = 20 * SECOND
# Two bursts are no rhythm: only more of them say how often one comes.
_RHYTHM = 3
# By which share a speed may be off that follows from how long tasks take (one standard deviation).
_GUESSED = 0.15
_READABLE, _ROUNDED = 0.2, 10
# From when on the present backlog has a speed of its own, and by how many standard deviations it must differ.
_ENOUGH_TIME: Span = 5 * SECOND
_ENOUGH_ENDS, _OTHER = 20, 4.0


class Trend(StrEnum):
    """What becomes of a queue's backlog. `HOLDS`: it neither grows nor shrinks. `UNKNOWN`: it is too early to say."""

    IDLE = "idle"
    KEEPS_UP = "keeps up"
    CLEARS = "clears"
    HOLDS = "holds"
    GROWS = "grows"
    STALLED = "stalled"
    PAUSED = "paused"
    UNKNOWN = "unknown"


class Pinch(NamedTuple):
    """What limits a queue: a stable cause, one line, and what that is about, by kind and name."""

    cause: str = ""
    said: str = ""
    kind: str = ""
    name: str = ""


class QueueFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one queue at one moment.

    `tides` are those of the last hour, oldest first, the last one up to now. `drawn` are held items of running batches:
    claims draw them as workers become free. `served_since` is since when managers have run for it without a break; None
    if none does. `gate` is the first shut one of its oldest tasks, and `waited` how long the oldest has waited, but for
    items of batches; None if that is not known.
    `seats` are those of its ready workers, `busy` the tasks that these run, `free` how many of the seats take a task
    now, and `mean` what one takes there, or took
    before. `expected` is how many tasks per second should end if each takes that; 0: unknown. `pool` is the state of
    its resource pool, if its members were read.
    """

    queue: Queue
    now: Moment
    tides: Sequence[Tide] = ()
    drawn: int = 0
    served_since: Moment | None = None
    gate: Gate | None = None
    waited: Span | None = 0
    seats: int = 0
    busy: int = 0
    free: int = 0
    mean: Span = 0
    expected: float = 0.0
    pool: PoolState | None = None

    @property
    def backlog(self) -> int:
        return self.queue.counts.get(State.PENDING, 0) + self.drawn

    @property
    def running(self) -> int:
        return self.queue.counts.get(State.RUNNING, 0)

    @property
    def limit(self) -> float | None:
        """Starts per second that its rate limit allows in the long run."""
        return min((one.count * SECOND / one.per for one in self.queue.rate), default=None)

    @property
    def period(self) -> Span:
        """Over such a time and longer, ends of tasks are even: windows give their budget at once, and workers that
        began together end together."""
        return max(self.mean, *(one.per for one in self.queue.rate), self.pool.period if self.pool else 0, 0)


class QueueForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a queue. `inflow` and `outflow` are tasks per second, `clears` is when the backlog is gone, from
    now, and `likely` the best guess in that range. `bursts` are short rushes of the last hour with `rushed` tasks: they
    are no part of `inflow`, unless they come so regularly that the queue grows by them. `at_work` is how many of its
    claimed tasks have begun at most; None if that is not known: the others wait in a manager for a free seat.
    `since` is when it began to grow, stands still or was paused, `until` when what it waits for ends by itself, if that
    is known. `waited` is as in `QueueFlow`. `came` and `went` are tasks per minute of the last hour, oldest first."""

    trend: Trend
    backlog: int = 0
    inflow: float = 0.0
    outflow: float = 0.0
    clears: Range | None = None
    likely: Span | None = None
    since: Moment | None = None
    until: Moment | None = None
    waited: Span | None = 0
    pinch: Pinch = Pinch()
    pool: PoolState | None = None
    came: tuple[int, ...] = ()
    went: tuple[int, ...] = ()
    bursts: int = 0
    rushed: int = 0
    at_work: int | None = None


def forecast_queue(flow: QueueFlow) -> QueueForecast:
    """What becomes of this queue."""
    came, out = arrivals(flow.tides), _outflow(flow)
    known: dict[str, Any] = {
        "backlog": flow.backlog,
        "inflow": came.speed.rate,
        "outflow": out.rate,
        "bursts": len(came.bursts),
        "rushed": sum(number for _, number in came.bursts),
        "waited": flow.waited,
        "pool": flow.pool,
    }
    queue = flow.queue
    if queue.paused:
        pinch = Pinch("paused", "it is paused", "queue", queue.name)
        return QueueForecast(trend=Trend.PAUSED, since=queue.paused_at, pinch=pinch, **known)
    until = flow.gate.until if flow.gate is not None else None
    held = {"pinch": pinched(flow, out.rate), "until": until}
    if not flow.backlog:
        return QueueForecast(
            trend=(trend := _without_backlog(flow)), **known | held if trend is Trend.STALLED else known
        )
    known |= held
    if _stands_still(flow):
        return QueueForecast(trend=Trend.STALLED, since=_still_since(flow), **known | {"outflow": 0.0})
    if _short(flow, out):
        return QueueForecast(trend=Trend.KEEPS_UP, **known | {"pinch": Pinch()})
    if not out.rate or not out.known:
        return QueueForecast(trend=Trend.UNKNOWN, **known)
    return _moving(flow, came, out, known)


def _without_backlog(flow: QueueFlow) -> Trend:
    if not flow.running and flow.queue.counts.get(State.HELD):
        # Items of a batch that waits for its turn are no fault, but nothing keeps up there either.
        return Trend.STALLED if flow.gate is not None and flow.gate.stuck else Trend.IDLE
    lately = [one for one in flow.tides if one.until > flow.now - _QUIET]
    quiet = not flow.running and not any(one.came or one.went for one in lately)
    return Trend.IDLE if quiet else Trend.KEEPS_UP


def _short(flow: QueueFlow, out: Speed) -> bool:
    """Whether its backlog is the normal one of a queue that keeps up: it is gone soon, or has only just come."""
    if flow.gate is not None and (flow.gate.stuck or flow.gate.cause in _AWAY):
        return False
    soon = flow.backlog <= max(1.0, out.rate * SOON / SECOND)
    return (flow.waited or 0) < _FRESH and (soon or not out.rate)


def _moving(flow: QueueFlow, came: Arrivals, out: Speed, known: dict[str, Any]) -> QueueForecast:
    """It grows only if more comes than ends, and clears only if less does: which of both is told with its rates."""
    off = sqrt(out.unsure**2 + came.speed.unsure**2)
    likely = came.time_to_clear(flow.backlog, out.rate, flow.now)
    if likely is None and len(came.bursts) >= _RHYTHM:
        known |= {"inflow": came.with_bursts}
    spare, usual = out.rate - known["inflow"], out.rate - came.speed.rate
    if spare < -_SURE * off and _has_grown(flow):
        return QueueForecast(trend=Trend.GROWS, since=_grows_since(flow), **known)
    if likely is None and spare > 0:
        # Bursts without a rhythm, or with one that it can follow in the long run: what waits now clears.
        likely = round(flow.backlog / usual * SECOND)
    if likely is None or usual <= _SURE * off:
        return QueueForecast(trend=Trend.HOLDS, **known)
    earliest = round(likely * usual / (usual + LIKELY * off))
    latest = round(likely * usual / (usual - LIKELY * off)) if usual > LIKELY * off else None
    return QueueForecast(trend=Trend.CLEARS, clears=Range(earliest, latest), likely=likely, **known)


def _has_grown(flow: QueueFlow) -> bool:
    """Whether more is unfinished than at some moment of the last two minutes: a chance of the rates is no growth."""
    unfinished = flow.backlog + flow.running
    first, last = flow.now - _GROWN_SINCE, flow.now - _GROWN_UNTIL
    began = zip(flow.tides, levels(flow.tides, unfinished), strict=True)
    before = [level for tide, level in began if first <= tide.at <= last]
    return not before or unfinished > min(before)


def _outflow(flow: QueueFlow) -> Speed:
    """How fast tasks end while some wait: what the queue can do. No faster than its rate limit in the long run."""
    unfinished = flow.backlog + flow.running
    began = levels(flow.tides, unfinished)
    ended = [*began[1:], unfinished]
    least = max(1, flow.running)
    chosen = [
        tide
        for tide, first, last in zip(flow.tides, began, ended, strict=True)
        if min(first, last) >= least and _served(flow, tide)
    ]
    if not flow.backlog:
        chosen = [tide for tide in flow.tides if _served(flow, tide)]
    speed = rate_of(chosen, lambda one: one.went, flow.period)
    if flow.backlog and chosen and (latest := _latest(flow, chosen, speed)) is not None:
        speed = latest
    if flow.backlog and not (speed.rate and speed.known) and _expects(flow, speed):
        speed = Speed(flow.expected, flow.expected * _GUESSED)
    if flow.limit is not None and flow.backlog and speed.rate > flow.limit:
        return Speed(flow.limit, speed.unsure * flow.limit / speed.rate, speed.known)
    return speed


def _latest(flow: QueueFlow, chosen: Sequence[Tide], speed: Speed) -> Speed | None:
    """The speed since the present backlog came, if it surely is another one than before: what ended before may have
    been other tasks. None if it is not."""
    place = len(chosen) - 1
    while place and chosen[place - 1].until == chosen[place].at:
        place -= 1
    run = chosen[place:]
    time = sum(one.span for one in run)
    if not place or chosen[-1].until < flow.now or time < max(_ENOUGH_TIME, 2 * flow.period):
        return None
    number = sum(one.went for one in run)
    rate, unsure = number * SECOND / time, sqrt(number) * SECOND / time
    if number < _ENOUGH_ENDS or abs(speed.rate - rate) < _OTHER * sqrt(unsure**2 + speed.unsure**2):
        return None
    return Speed(rate, unsure)


def _expects(flow: QueueFlow, seen: Speed) -> bool:
    """Whether its speed follows from how long tasks take: its tasks wait for nothing but a free worker, and some ended,
    or none had to yet."""
    if not flow.expected or flow.served_since is None or (flow.gate is not None and flow.gate.cause not in _BUSY):
        return False
    if seen.rate > 0:
        # What ended lately says more than a mean over all handlers of the workers.
        return abs(flow.expected - seen.rate) <= _OTHER * max(seen.unsure, flow.expected * _GUESSED)
    late = flow.now - flow.served_since - _STARTING - flow.mean
    return flow.expected * late / SECOND < _MISSED


def _served(flow: QueueFlow, tide: Tide) -> bool:
    return flow.served_since is not None and tide.at >= flow.served_since + _STARTING


def _stands_still(flow: QueueFlow) -> bool:
    """Whether tasks wait and none ends, nor will without a change."""
    gate = flow.gate
    if not flow.running and gate is not None and (gate.stuck or _all_away(gate, flow.now)):
        return True
    last = _last_end(flow)
    quiet = flow.now - (last if last is not None else flow.tides[0].at if flow.tides else flow.now)
    if flow.served_since is not None:
        quiet = min(quiet, flow.now - flow.served_since)
    quiet = min(quiet, flow.waited) if flow.waited else quiet
    if quiet < _STILL:
        return False
    if not flow.running:
        return True
    before = [one for one in flow.tides if last is not None and one.until <= last]
    usual = rate_of(before, lambda one: one.went, flow.period).rate
    # A long task is no standstill, unless many of them should have ended by now.
    return usual * quiet / SECOND > _MISSED and quiet > 2 * flow.period


def _all_away(gate: Gate, now: Moment) -> bool:
    """Whether it waits for members of a pool that have failed, and for more than a moment."""
    return gate.cause in _AWAY and (gate.until is None or gate.until - now > _BACK_SOON)


def _last_end(flow: QueueFlow) -> Moment | None:
    return next((min(one.until, flow.now) for one in reversed(flow.tides) if one.went), None)


def _still_since(flow: QueueFlow) -> Moment | None:
    """When its last task ended, or when its oldest task came, if that was later."""
    came = flow.now - flow.waited if flow.waited else 0
    return max(_last_end(flow) or 0, came) or None


def _grows_since(flow: QueueFlow) -> Moment:
    """When the backlog was smallest within the hour."""
    began = levels(flow.tides, flow.backlog + flow.running)
    least = min(began, default=0)
    places = [place for place, level in enumerate(began) if level <= least + max(1, flow.running)]
    return flow.tides[places[-1]].at if places else flow.now


def pinched(flow: QueueFlow, out: float) -> Pinch:
    """What limits how fast its tasks end."""
    queue, gate, pool = flow.queue, flow.gate, flow.pool
    free = flow.free
    if gate is not None and gate.name in _OF_GATES and gate.cause not in _BUSY:
        # A key is also full for moments while the rate is what holds the queue back.
        of_rate = gate.cause == "max-per-key" and _rate_binds(flow, out)
        return Pinch("rate", _rate_limit(flow), "queue", queue.name) if of_rate else _of_gate(flow, gate)
    if flow.limit is not None and (out >= flow.limit * _NEAR_LIMIT or (free > 0 and pool is None)):
        return Pinch("rate", _rate_limit(flow), "queue", queue.name)
    if pool is not None and (free > 0 or (pool.away and pool.usable < flow.seats)):
        return _of_pool(pool)
    if flow.seats:
        return Pinch("workers", _busy_workers(flow) if free <= 0 else "its workers", "queue", queue.name)
    return Pinch("not-ready", "no worker is ready", "queue", queue.name)


def _busy_workers(flow: QueueFlow) -> str:
    seats = counted(flow.seats, "seat")
    if flow.busy >= flow.seats:
        return f"all {seats} of its workers are busy"
    return f"no worker takes a task now: {flow.busy:,} of {seats} are in use, and the others pause or run a task alone"


def _rate_binds(flow: QueueFlow, out: float) -> bool:
    """Whether tasks end about as fast as the rate limit allows, or even one key alone could be that fast."""
    if flow.limit is None:
        return False
    of_key = (flow.queue.max_per_key or 0) * SECOND / flow.mean if flow.mean else 0.0
    return max(out / _NEAR_LIMIT, of_key) >= flow.limit


# Gates that limit a queue, and the kind of thing that they are about.
_OF_GATES = {
    "manager": "manager",
    "handler": "handler",
    "workers": "worker-pool",
    "keys": "resource",
    "resource": "resource",
    "rate": "queue",
    "memory": "worker-pool",
    "partition": "partitions",
    "batch": "batch",
    "order": "queue",
    "remote": "task-type",
    "queue": "queue",
}


def _of_gate(flow: QueueFlow, gate: Gate) -> Pinch:
    queue = flow.queue
    if gate.name == "resource" and flow.pool is not None:
        return _of_pool(flow.pool)
    if gate.name == "rate" and flow.limit is not None:
        return Pinch("rate", _rate_limit(flow), "queue", queue.name)
    name = (queue.resources or "") if gate.name in ("keys", "resource") else queue.name
    return Pinch(gate.cause, gate.sentence, _OF_GATES[gate.name], name)


def _rate_limit(flow: QueueFlow) -> str:
    said = ", ".join(f"{window.count:,} per {spoken(window.per)}" for window in flow.queue.rate)
    return f"its rate limit of {said}"


def _of_pool(pool: PoolState) -> Pinch:
    said = pool.said if pool.usable < pool.total else f"its {pool.total:,} {pool.name} are in use or rest"
    return Pinch("resources", said, "resource", pool.name)


def per(rate: float, beside: float = 0.0) -> str:
    """A rate per second, minute or hour, whichever makes a readable number; with another one beside it, of the larger
    one."""
    for unit, name in ((1, "s"), (60, "min"), (3600, "h")):
        if max(rate, beside) * unit >= _READABLE or name == "h":
            value = rate * unit
            return f"{value:,.0f}/{name}" if value >= _ROUNDED else f"{value:.2g}/{name}"
    return "0/s"


def spoken_clear(found: QueueForecast) -> str:
    """When the backlog is gone: "~6 min", or "28-80 min" if that is not sure."""
    if found.clears is None or found.likely is None:
        return "unknown"
    earliest, latest = found.clears.earliest, found.clears.latest
    if latest is not None and latest <= earliest * _NARROW:
        return f"~{_about(found.likely)}"
    size, unit = _unit(found.likely)
    low, high = round(earliest / size), round((latest or inf) / size) if latest is not None else None
    if high is None:
        return f"at least {_about(earliest)}"
    return f"~{_about(found.likely)}" if low == high else f"{low}-{high} {unit}"


def _about(time: Span) -> str:
    size, unit = _unit(time)
    value = time / size
    return f"{value:.0f} {unit}" if value >= _ROUNDED or unit in ("s", "min") else f"{value:.1f} {unit}"


def _unit(time: Span) -> tuple[Span, str]:
    if time < _ROUND_FROM:
        return SECOND, "s"
    if time < 100 * _MINUTE:
        return _MINUTE, "min"
    return (_HOUR, "h") if time < 48 * _HOUR else (_DAY, "days")


def spoken_forecast(found: QueueForecast, time: Callable[[Moment], str]) -> str:
    """One phrase for a table: "clears in ~6 min". `time` says a moment as a time of day."""
    since = f" since {time(found.since)}" if found.since is not None else ""
    match found.trend:
        case Trend.CLEARS:
            return f"clears in {spoken_clear(found)}"
        case Trend.GROWS:
            return f"grows: {per(found.inflow, found.outflow)} in, {per(found.outflow, found.inflow)} out"
        case Trend.HOLDS:
            return f"holds: {per(found.inflow, found.outflow)} in, {per(found.outflow, found.inflow)} out"
        case Trend.STALLED | Trend.PAUSED:
            return f"{found.trend}{since}"
        case Trend.UNKNOWN:
            return "too early to say"
    return found.trend.value


def spoken_since(found: QueueForecast, now: Moment) -> str:
    """ "for 26m", for a sentence."""
    return "" if found.since is None or now - found.since < SECOND else f"for {spoken(now - found.since)}"
