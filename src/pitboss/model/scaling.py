"""How many workers a pool should have now. The manager asks every two seconds, and keeps the state between calls."""

from collections.abc import Iterator
from math import ceil, sqrt
from operator import itemgetter

import msgspec

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.pool import PoolSpec

COOL_DOWN: Span = 60 * SECOND
STEP: Span = 3 * SECOND
FRESH: Span = 45 * SECOND
IDLE: Span = 60 * SECOND
LATE: Span = 30 * SECOND
SMOOTHED: Span = 10 * SECOND
# If more than this share of the slots is free, tasks wait for something else than workers.
SPARE = 0.25
# A cut must save this share of the workers; a smaller one would soon be reversed.
WORTH = 1 / 6
# This share of the target wait may pass before workers that were just ended are started again.
MISSED = 0.75
# Rounding error of a product of floats that is a whole number.
_DUST = 1e-9


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a pool, and its means. None is "not known"; `rate` None is "without limit".

    Of the queues, for all managers: `pending` tasks that could start now (none of a paused queue), of which the oldest
    has waited for `oldest_wait`; `coming` ones that the next batch will bring; `arrivals`, and the starts that `rate`
    limits allow, both per second. `managers` run this pool now; this one has place `rank` among them, from 0.

    Of this manager: `running` tasks; `ready` workers, with `free` slots that could start a task at once (a worker that
    pauses between tasks, or has one that runs alone, has none). `mean` and `p90` are how long a task takes;
    `worker_memory` is the need of a worker, `free_memory` what the host has left.

    `feed` is how many tasks can hold a resource at a time, on all managers together, if all that wait need one.
    """

    pending: int = 0
    coming: int = 0
    oldest_wait: Span = 0
    arrivals: float = 0.0
    rate: float | None = None
    feed: int | None = None
    managers: int = 1
    rank: int = 0
    running: int = 0
    ready: int | None = None
    free: int = 0
    mean: Span | None = None
    p90: Span | None = None
    cores: int | None = None
    free_memory: int | None = None
    worker_memory: int | None = None


class ScalingState(msgspec.Struct, frozen=True, kw_only=True):
    """Remembered from one decision to the next.

    `direction` is that of the last change (-1, 0, 1), at `changed_at`; a raise is not followed by a cut before
    `quiet_until`. Since `below_since` fewer than `size` were needed, `peak` at most, first at `peak_at`. Since
    `hindered_since` tasks are late though slots are free; `hindered_at` is when that was last seen for some time.
    """

    size: int = 0
    direction: int = 0
    changed_at: Moment = 0
    quiet_until: Moment = 0
    below_since: Moment | None = None
    peak: int = 0
    peak_at: Moment = 0
    late_since: Moment | None = None
    idle_since: Moment | None = None
    hindered_since: Moment | None = None
    hindered_at: Moment | None = None


class Decision(msgspec.Struct, frozen=True):
    """The number of workers, and why, in a sentence for people. `state` goes into the next decision."""

    size: int
    why: str
    state: ScalingState


class Arrivals(msgspec.Struct):
    """Arriving tasks per second, smoothed: one that came `SMOOTHED` ago counts half."""

    rate: float = 0.0
    at: Moment | None = None

    def count(self, arrived: int, now: Moment) -> float:
        """The rate, after this number of arrivals since the last call."""
        if self.at is not None and now > self.at:
            elapsed = now - self.at
            fresh = max(0, arrived) * SECOND / elapsed
            self.rate += (fresh - self.rate) * (1 - 0.5 ** (elapsed / SMOOTHED))
        self.at = now
        return self.rate


def decide(load: PoolLoad, spec: PoolSpec, state: ScalingState, now: Moment) -> Decision:
    """Raise at once, in steps; lower after a cool-down during which fewer workers were needed all the time."""
    most = _most(load, spec)
    state = _noted(load, spec, state, most, now)
    called = _called(load, spec, state, now)
    fed = _fed(load, spec, called)
    needed = max(min(fed, most), _held(load, spec, state), spec.min_workers)
    if needed > state.size:
        return _raised(load, spec, state, needed, now)
    if needed < state.size:
        return _lowered(load, spec, state, needed, now, throttled=fed < called)
    return Decision(state.size, _steady(load, spec, state.size, called, fed), _watched(state, needed, now))


def workers_for(load: PoolLoad, spec: PoolSpec) -> int | None:
    """How many workers the load needs, on all managers together; None if it is unknown how long a task takes.

    Little's law: arriving tasks keep `arrivals` × service slots busy, and the backlog should be done after the target
    wait, which takes backlog × service ÷ target more. No task fills two slots, so no more slots are useful than there
    are tasks now and before the next decision.
    """
    if load.mean is None:
        return None
    service, target = _slot_time(load.mean, spec), max(spec.target_wait, 1)
    backlog, arrivals = load.pending + load.coming, load.arrivals / SECOND
    called = arrivals * service + backlog * service / target
    useful = load.running * load.managers + backlog + arrivals * target
    return max(min(1, backlog), ceil(min(called, useful) / spec.concurrency - _DUST))


def _called(load: PoolLoad, spec: PoolSpec, state: ScalingState, now: Moment) -> int:
    """How many workers this manager needs, before any limit."""
    if state.idle_since is not None and now - state.idle_since >= IDLE:
        return 0
    total = workers_for(load, spec)
    workers = _guessed(load, spec, state.size) if total is None else _share(total, load)
    if state.late_since is not None:
        # The formula may be wrong about this load; a wait that stays above its target is measured.
        workers = max(workers, state.size + (now - state.late_since >= LATE))
    if state.size == 0:
        return min(workers, load.pending + load.coming)
    return max(1, workers if state.idle_since is None else min(workers, state.size))


def _guessed(load: PoolLoad, spec: PoolSpec, size: int) -> int:
    """While no task has ended yet: one more worker as long as tasks wait too long."""
    if not load.pending + load.coming:
        return min(size, ceil(load.running / spec.concurrency))
    return size + 1 if _overdue(load, spec) else max(size, _share(1, load))


def _share(workers: int, load: PoolLoad) -> int:
    """This manager's part; the remainder goes to the first managers."""
    return max(0, -((load.rank - workers) // max(1, load.managers)))


def _fed(load: PoolLoad, spec: PoolSpec, called: int) -> int:
    """How many of the needed workers can be kept busy under the rate limits and with the resources.

    Tasks do not arrive evenly: without a reserve of the square root, there are at times too few slots, and part of the
    rate stays unused. One worker is always allowed, even if it waits most of the time.
    """
    if load.feed is not None:
        called = min(called, max(1, _share(ceil(load.feed / spec.concurrency), load)))
    if load.rate is None or load.mean is None:
        return called
    slots = load.rate * _slot_time(load.mean, spec) / SECOND
    return min(called, max(1, _share(ceil((slots + sqrt(slots)) / spec.concurrency - _DUST), load)))


def _held(load: PoolLoad, spec: PoolSpec, state: ScalingState) -> int:
    """Workers that are kept because of their tasks: ending one that runs a long task would not free it soon."""
    longest = load.mean if load.p90 is None else load.p90
    if longest is not None and longest < spec.target_wait:
        return 0
    return min(state.size, ceil(load.running / spec.concurrency))


def _most(load: PoolLoad, spec: PoolSpec) -> int:
    """The upper bound: as declared, and no more than the cores allow."""
    most = spec.max_workers
    if spec.cpu and load.cores:
        most = min(most, max(1, int(load.cores / spec.cpu + _DUST)))
    return most


def _slot_time(mean: Span, spec: PoolSpec) -> float:
    """How long a task keeps its slot, with the pause after it."""
    return max(mean, 1) + (spec.delay[0] + spec.delay[1]) / 2


def _overdue(load: PoolLoad, spec: PoolSpec) -> bool:
    return load.pending > 0 and load.oldest_wait > spec.target_wait


def _spare(load: PoolLoad, spec: PoolSpec) -> bool:
    """Enough slots are free: tasks do not wait for a worker."""
    return load.ready is not None and load.free > load.ready * spec.concurrency * SPARE


def _noted(load: PoolLoad, spec: PoolSpec, state: ScalingState, most: int, now: Moment) -> ScalingState:
    """The state with the times that follow from the load: since when tasks are late, since when the pool is idle."""
    overdue, spare = _overdue(load, spec), _spare(load, spec)
    # A known rate or resource limit explains the wait, and ends as soon as it is lifted.
    hindered = _since(state.hindered_since, overdue and spare and load.rate is None and load.feed is None, now)
    idle = not (load.pending or load.coming or load.running)
    return msgspec.structs.replace(
        state,
        size=max(spec.min_workers, min(state.size, most)),
        late_since=_since(state.late_since, overdue and not spare, now),
        idle_since=_since(state.idle_since, idle, now),
        hindered_since=hindered,
        # Workers that have just started are idle for a moment; that does not count.
        hindered_at=now if hindered is not None and now - hindered >= STEP else state.hindered_at,
    )


def _since(before: Moment | None, so: bool, now: Moment) -> Moment | None:
    if not so:
        return None
    return now if before is None else before


def _raised(load: PoolLoad, spec: PoolSpec, state: ScalingState, needed: int, now: Moment) -> Decision:
    limit, text = min(_brakes(load, spec, state, now), key=itemgetter(0))
    size = min(needed, max(state.size, limit))
    if size == state.size:
        return Decision(size, f"held at {size}: {text}", _watched(state, needed, now))
    more = f"; {text}" if size < needed else ""
    why = f"{_work(load)}: {size} of {spec.max_workers} workers{more}"
    return Decision(size, why, _turned(state, size, 1, needed, now))


def _brakes(load: PoolLoad, spec: PoolSpec, state: ScalingState, now: Moment) -> Iterator[tuple[int, str]]:
    """How many workers are allowed at this moment, and why not more."""
    size = state.size
    if size == 0:
        yield 1, "more follow in a moment"
        return
    if load.ready is not None and load.ready * 2 < size:
        # If workers do not come up, starting twice as many does not help.
        yield size, "the workers already requested have to start first"
    hindered = state.hindered_at is not None and now - state.hindered_at < COOL_DOWN
    if (hindered or _spare(load, spec)) and not load.coming:
        yield size, "slots are free, so tasks do not wait for workers"
    if load.worker_memory and load.free_memory is not None:
        there = size if load.ready is None else load.ready
        fitting = there + max(0, load.free_memory) // load.worker_memory
        yield max(1, fitting), "the host has no memory for more"
    since = now - state.changed_at
    if state.direction < 0 and since < COOL_DOWN and load.oldest_wait < spec.target_wait * MISSED:
        # Otherwise a need that goes up and down would end and start workers all the time.
        yield size, "some were ended a moment ago, and no task waits for long"
    if state.direction > 0 and since < STEP:
        yield size, "more follow in a moment"
    yield 2 * size + 1, "more follow in a moment"


def _lowered(
    load: PoolLoad, spec: PoolSpec, state: ScalingState, needed: int, now: Moment, *, throttled: bool
) -> Decision:
    state = _watched(state, needed, now)
    since = now if state.below_since is None else state.below_since
    size = _enough(state, needed, now)
    limit = "the rate feeds" if load.feed is None else "its resources feed"
    would = f"{limit} {state.peak}" if throttled else f"{state.peak} would do"
    why = f"kept at {state.size} of {spec.max_workers}: {would}, for {_spoken(now - since)} so far"
    if needed == 0 or now - since >= COOL_DOWN:
        if state.size - size < state.size * WORTH:
            # The peak of the next minute may be lower.
            state = _watched(msgspec.structs.replace(state, below_since=None), needed, now)
        elif state.direction <= 0 or now >= state.quiet_until:
            return Decision(size, _parting(load, spec, state, size, now), _turned(state, size, -1, needed, now))
    return Decision(state.size, why, state)


def _parting(load: PoolLoad, spec: PoolSpec, state: ScalingState, size: int, now: Moment) -> str:
    if size == 0 and state.idle_since is not None:
        return f"idle for {_spoken(now - state.idle_since)}: no workers"
    return f"{_work(load)}: {size} of {spec.max_workers} workers are enough"


def _enough(state: ScalingState, needed: int, now: Moment) -> int:
    """How many to keep: a fifth more than the peak since fewer were needed; twice a recent peak, as it may rise."""
    if needed == 0:
        return 0
    more = state.peak // 5 if now - state.peak_at >= FRESH else state.peak
    return min(state.size, state.peak + more)


def _watched(state: ScalingState, needed: int, now: Moment) -> ScalingState:
    """The state with the time in which fewer workers were needed, and the peak of the need in that time."""
    if needed >= state.size:
        return msgspec.structs.replace(state, below_since=None, peak=0, peak_at=0)
    if state.below_since is None:
        return msgspec.structs.replace(state, below_since=now, peak=needed, peak_at=now)
    if needed > state.peak:
        return msgspec.structs.replace(state, peak=needed, peak_at=now)
    return state


def _turned(state: ScalingState, size: int, direction: int, needed: int, now: Moment) -> ScalingState:
    """The state after a change. Each change of direction adds a cool-down; a raise need not wait for it, a cut must."""
    turn = direction == -state.direction
    after = msgspec.structs.replace(
        state,
        size=size,
        direction=direction,
        changed_at=now,
        quiet_until=max(now, state.quiet_until) + COOL_DOWN if turn else state.quiet_until,
        below_since=None,
    )
    return _watched(after, needed, now)


def _steady(load: PoolLoad, spec: PoolSpec, size: int, called: int, fed: int) -> str:
    if fed < called and fed <= size:
        limit = "the rate of its queues feeds" if load.feed is None else "its resources feed"
        return f"held at {size}: {limit} no more"
    if called > size and size < spec.max_workers:
        return f"held at {size}: {load.cores} cores carry no more workers of {spec.cpu:g}"
    return f"{_work(load)}: {size} of {spec.max_workers} workers"


def _work(load: PoolLoad) -> str:
    coming = f", {load.coming} to come" if load.coming else ""
    if load.pending:
        return f"backlog {load.pending}, oldest waits {_spoken(load.oldest_wait)}{coming}"
    return (f"{load.running} running" if load.running else "nothing waits") + coming


def _spoken(time: Span) -> str:
    return spoken(time - time % (SECOND if time >= SECOND else 1000))
