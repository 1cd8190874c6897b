"""When a batch starts and ends, as a range of spans from now.

The earliest end follows from its recent speed and the limits of its resources at best; the latest from its slowest
likely speed, or from the steady rate of its share of the resources. Without enough data there is no range.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil, floor, inf, sqrt

import msgspec

from pitboss.model.batch import IN_SLOT, RECENT, Batch, BatchId, BatchStatus, Lane
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.supply import Supply, soonest

ENOUGH_ITEMS = 20
ENOUGH_TIME: Span = 60 * SECOND
# Nine of ten counts of random events lie within this many square roots of the count around the mean.
LIKELY = 1.64
_MINUTE, _HOUR, _DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
_MINUTES_UP_TO, _HOURS_UP_TO, _ROUND_FROM = 100 * _MINUTE, 48 * _HOUR, 10


class Range(msgspec.Struct, frozen=True):
    """Between two spans from now. `latest` None is unknown."""

    earliest: Span
    latest: Span | None


class Pace(msgspec.Struct, frozen=True):
    """Items per second: the slowest and the fastest likely speed."""

    slow: float
    fast: float


class Forecast(msgspec.Struct, frozen=True):
    """None is unknown. A batch that has started has no start, and one that is neither running nor queued no end."""

    starts: Range | None = None
    ends: Range | None = None


def pace(batch: Batch, now: Moment) -> Pace | None:
    """How fast its items ended lately; None until enough of them have."""
    if batch.started_at is None or not batch.recent:
        return None
    elapsed = min(RECENT, now - batch.started_at)
    if elapsed <= 0 or (batch.recent < ENOUGH_ITEMS and elapsed < ENOUGH_TIME):
        return None
    rate = batch.recent * SECOND / elapsed
    spread = 1 + LIKELY / sqrt(batch.recent)
    return Pace(rate / spread, rate * spread)


def ends(left: int, speed: Pace | None, supply: Supply | None, share: float = 1.0) -> Range | None:
    """When this many items will have ended. `supply` None: they need no resource. The batch gets `share` of it."""
    if left <= 0:
        return Range(0, 0)
    if supply is None:
        return None if speed is None else _at_pace(left, speed, 0, inf)
    at_best, kept_up = soonest(supply, left), supply.steady * share
    if at_best is None:
        return None
    if supply.wait:
        # All members are away, so the speed until now says nothing.
        return Range(max(at_best, supply.wait), max(at_best, round(left / kept_up * SECOND)) + supply.wait)
    if speed is None:
        return Range(at_best, None) if at_best else None
    return _at_pace(left, speed, at_best, kept_up)


def _at_pace(left: int, speed: Pace, at_best: Span, kept_up: float) -> Range:
    earliest = max(at_best, round(left / speed.fast * SECOND))
    return Range(earliest, max(earliest, round(left / min(speed.slow, kept_up) * SECOND)))


def forecast(
    batches: Sequence[Batch],
    lanes: Iterable[Lane],
    supplies: Mapping[BatchId, Supply],
    now: Moment,
    *,
    stuck: Collection[BatchId] = (),
) -> dict[BatchId, Forecast]:
    """For all batches that have a slot or are queued. `supplies` has those whose items all need a resource. `stuck`:
    these do not go on without a person, so their end is unknown, and that of those behind them."""
    slots = {lane.name: lane.max_running for lane in lanes}
    found: dict[BatchId, Forecast] = {}
    for name in dict.fromkeys(batch.lane for batch in batches):
        line = [batch for batch in batches if batch.lane == name]
        found |= _lane_forecast(line, slots.get(name, 1), supplies, now, stuck)
    return found


def _lane_forecast(
    line: Sequence[Batch], slots: int, supplies: Mapping[BatchId, Supply], now: Moment, stuck: Collection[BatchId]
) -> dict[BatchId, Forecast]:
    slotted = [batch for batch in line if batch.status in IN_SLOT]
    paces = {batch.id: pace(batch, now) for batch in slotted}
    found = {
        batch.id: Forecast(None, None if batch.id in stuck else _running_end(batch, paces, slotted, supplies, now))
        for batch in slotted
    }
    early, late = _slots_free(slotted, found, slots)
    for batch in sorted((one for one in line if one.position), key=lambda one: one.position or 0):
        starts_early, starts_late = heapq.heappop(early), heapq.heappop(late)
        speed = _borrowed(batch, slotted, paces)
        supply = supplies.get(batch.id)
        took = ends(batch.left, speed, None if supply is None else msgspec.structs.replace(supply, wait=0), 1 / slots)
        ended_early = starts_early + (took.earliest if took else 0)
        ended_late = starts_late + (took.latest if took and took.latest is not None else inf)
        heapq.heappush(early, ended_early)
        heapq.heappush(late, ended_late)
        found[batch.id] = Forecast(
            _range(starts_early, starts_late), _range(ended_early, ended_late) if took is not None else None
        )
    return found


def _running_end(
    batch: Batch,
    paces: Mapping[BatchId, Pace | None],
    slotted: Sequence[Batch],
    supplies: Mapping[BatchId, Supply],
    now: Moment,
) -> Range | None:
    speed = paces[batch.id]
    young = batch.started_at is None or now - batch.started_at < ENOUGH_TIME
    if batch.status is not BatchStatus.RUNNING or (speed is None and young):
        return None
    rivals = [one for one in slotted if one.status is BatchStatus.RUNNING and {*one.queues} & {*batch.queues}]
    return ends(batch.left, speed, supplies.get(batch.id), 1 / max(1, len(rivals)))


def _slots_free(
    slotted: Sequence[Batch], found: Mapping[BatchId, Forecast], slots: int
) -> tuple[list[float], list[float]]:
    """When each slot of a lane is free, at the earliest and at the latest, as heaps.

    More batches may run than the lane has slots (`batches start`): the surplus must end before a slot is free.
    """
    # A batch that is pausing or cancelling leaves its slot when its running items end: soon.
    still = [found[one.id].ends if one.status is BatchStatus.RUNNING else Range(0, 0) for one in slotted]
    early: list[float] = sorted(0 if one is None else one.earliest for one in still)
    late: list[float] = sorted(inf if one is None or one.latest is None else one.latest for one in still)
    surplus = max(0, len(slotted) - slots)
    free = [0.0] * max(0, slots - len(slotted))
    return [*free, *early[surplus:]], [*free, *late[surplus:]]


def _borrowed(batch: Batch, slotted: Sequence[Batch], paces: Mapping[BatchId, Pace | None]) -> Pace | None:
    """The pace of the batches that run now on the same queues: the best guess for one that has not begun."""
    known = [paces[one.id] for one in slotted if {*one.queues} & {*batch.queues}]
    speeds = [speed for speed in known if speed is not None]
    if not speeds:
        return None
    return Pace(min(speed.slow for speed in speeds), max(speed.fast for speed in speeds))


def _range(earliest: float, latest: float) -> Range | None:
    if latest == inf:
        return Range(round(earliest), None) if earliest else None
    return Range(round(earliest), max(round(earliest), round(latest)))


def spoken_range(found: Range | None) -> str:
    """As a person says it: "about 12-18 min"."""
    if found is None:
        return "unknown"
    earliest, latest = found.earliest, found.latest
    if latest is None:
        size, unit = _unit(earliest)
        return f"at least {_rounded(earliest / size, unit, floor)} {unit}" if earliest >= _MINUTE else "unknown"
    if latest < _MINUTE:
        return "less than a minute"
    size, unit = _unit(latest)
    low, high = _rounded(earliest / size, unit, floor), _rounded(latest / size, unit, ceil)
    if low == high:
        return f"about {high} {unit}"
    return f"up to {high} {unit}" if low == "0" else f"about {low}-{high} {unit}"


def _unit(time: Span) -> tuple[Span, str]:
    if time < _MINUTES_UP_TO:
        return _MINUTE, "min"
    return (_HOUR, "h") if time < _HOURS_UP_TO else (_DAY, "days")


def _rounded(value: float, unit: str, towards: Callable[[float], int]) -> str:
    """Whole minutes; hours and days with a decimal while they are few."""
    fine = 1 if unit == "min" or value >= _ROUND_FROM else 10
    return f"{towards(value * fine) / fine:g}"
