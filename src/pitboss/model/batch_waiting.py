"""What a batch waits for, in a sentence: the first thing that people ask about one that does not move."""

from collections.abc import Mapping, Sequence

from pitboss.model.batch import OVER, Batch, BatchStatus
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.queue import Queue
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.supply import PoolView
from pitboss.model.waiting import alive

_WORTH_TELLING: Span = 2 * SECOND


def batch_waits(
    batch: Batch,
    *,
    queues: Mapping[str, Queue],
    pools: Mapping[str, PoolView],
    sessions: Sequence[Session],
    now: Moment,
) -> str | None:
    """None if it has ended, or goes on as it should."""
    running = batch.counts.get(State.RUNNING, 0)
    if batch.status in OVER:
        return None
    match batch.status:
        case BatchStatus.QUEUED:
            return f'for its turn in lane "{batch.lane}": place {batch.position}'
        case BatchStatus.PAUSED:
            return "for somebody to resume it"
        case BatchStatus.PAUSING | BatchStatus.CANCELLING:
            return f"for {running:,} running {'item' if running == 1 else 'items'} to end"
    return None if running else _stuck(batch, queues, pools, sessions, now)


def _stuck(
    batch: Batch,
    queues: Mapping[str, Queue],
    pools: Mapping[str, PoolView],
    sessions: Sequence[Session],
    now: Moment,
) -> str | None:
    if not alive(sessions, now):
        return "for a manager: none is running on this store"
    own = [queues[name] for name in batch.queues if name in queues]
    paused = [f'"{queue.name}"' for queue in own if queue.paused]
    if paused and len(paused) == len(own):
        return f"for {', '.join(paused)}, which {'is' if len(paused) == 1 else 'are'} paused"
    short = [_shortage(pools.get(queue.resources or ""), now) for queue in own if queue.resources is not None]
    told = [text for text in dict.fromkeys(short) if text is not None]
    if told and len(short) == len(own) and None not in short:
        return "; ".join(told)
    waiting = batch.counts.get(State.PENDING, 0) + batch.counts.get(State.HELD, 0)
    scheduled = batch.counts.get(State.SCHEDULED, 0)
    return f"for {scheduled:,} items that are due later" if scheduled and not waiting else None


def _shortage(pool: PoolView | None, now: Moment) -> str | None:
    """A rest between two uses is how it should be, and not told."""
    if pool is None or 0 < pool.supply(now).wait < _WORTH_TELLING:
        return None
    return pool.shortage(now)
