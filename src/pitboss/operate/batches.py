"""Batches as people read them: progress, when they start and end, what they wait for, and their errors by cause."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from pitboss.client.waiting import explain_batches, pool_views
from pitboss.engines.capabilities import batches_of, capabilities
from pitboss.engines.protocol import Store
from pitboss.model.batch import IN_SLOT, OVER, RECENT, Batch, BatchStatus, Lane
from pitboss.model.duration import SECOND, Moment
from pitboss.model.eta import ENOUGH_ITEMS, Forecast, forecast
from pitboss.model.filter import by
from pitboss.model.queue import Queue
from pitboss.model.states import WAITING, State
from pitboss.model.supply import Supply, together
from pitboss.model.waiting import Why
from pitboss.operate.failures import FailureGroups, failure_groups
from pitboss.operate.lookup import find_batch

_READ = 10_000
_LIVE = (*sorted(IN_SLOT), BatchStatus.QUEUED)


_ACTS = {
    "pause": {BatchStatus.QUEUED, BatchStatus.RUNNING},
    "resume": {BatchStatus.PAUSED, BatchStatus.PAUSING},
    "start": {BatchStatus.QUEUED, BatchStatus.PAUSED},
    "move": {BatchStatus.QUEUED},
    "cancel": frozenset(BatchStatus) - OVER - {BatchStatus.CANCELLING},
    "delete": OVER,
}


class BatchReading(msgspec.Struct, frozen=True, kw_only=True):
    """A batch at one moment. `why` is None if it has ended or makes progress."""

    batch: Batch
    forecast: Forecast = Forecast()
    why: Why | None = None
    lane: Lane | None = None

    @property
    def waiting(self) -> str | None:
        return None if self.why is None else self.why.sentence

    @property
    def acts(self) -> frozenset[str]:
        """The acts that its status allows, and that would change something."""
        found = {act for act, statuses in _ACTS.items() if self.batch.status in statuses}
        if self.batch.counts.get(State.FAILED) and self.batch.status is not BatchStatus.CANCELLING:
            found.add("requeue")
        return frozenset(found)

    @property
    def unknown_end(self) -> str:
        """Why nothing is said about its end; empty if something is, or if it has none."""
        if self.forecast.ends is not None or self.batch.status not in (BatchStatus.RUNNING, BatchStatus.QUEUED):
            return ""
        if self.why is not None and self.why.stuck:
            return "it does not go on without a person"
        if self.batch.status is BatchStatus.QUEUED:
            return "it follows from the batches before it, whose end is unknown"
        return f"too early: until {ENOUGH_ITEMS} items have ended, or a minute has passed"

    def speed(self, now: Moment) -> float | None:
        """Items per second of the last minutes; None if none ended."""
        if self.batch.started_at is None or not self.batch.recent:
            return None
        return self.batch.recent * SECOND / min(RECENT, max(SECOND, now - self.batch.started_at))

    def likely(self, now: Moment) -> Moment | None:
        """When it ends at the speed of the last minutes; None if that is outside of the range, or unknown."""
        speed, ends = self.speed(now), self.forecast.ends
        if not speed or ends is None or self.batch.status is not BatchStatus.RUNNING:
            return None
        left = round(self.batch.left / speed * SECOND)
        return now + left if ends.earliest <= left and (ends.latest is None or left <= ends.latest) else None

    @property
    def cancelled(self) -> bool:
        return self.batch.status in (BatchStatus.CANCELLING, BatchStatus.CANCELLED)

    @property
    def done(self) -> int:
        """How many items have ended; of a cancelled batch only those that ran, to success or failure."""
        return self.batch.finished - (self.batch.counts.get(State.CANCELLED, 0) if self.cancelled else 0)

    @property
    def percent(self) -> int:
        """Whole percents; 100 only when every item is done."""
        done, total = self.done, self.batch.total
        return 100 if done >= total else min(99, done * 100 // total)


class BatchPage(msgspec.Struct, frozen=True, kw_only=True):
    """One batch with its failures by cause."""

    reading: BatchReading
    errors: FailureGroups


async def list_batches(
    store: Store, now: Moment, statuses: Sequence[BatchStatus] = (), limit: int = 100
) -> list[BatchReading]:
    return await read_batches(store, await batches_of(store).batches(statuses=statuses, limit=limit), now)


async def read_line(store: Store, lane: str, now: Moment, limit: int) -> list[BatchReading]:
    """The first batches of a lane that have not ended: those with a slot, the queued in their order, the paused."""
    live = await batches_of(store).batches(statuses=(*_LIVE, BatchStatus.PAUSED), limit=_READ)
    return await read_batches(store, [one for one in live if one.lane == lane][:limit], now)


async def read_batch(store: Store, text: str, now: Moment, *, failures: int | None = None) -> BatchPage:
    """The batch that an id or a piece of one names, with the groups of its newest failures."""
    batch = await find_batch(store, text)
    (reading,) = await read_batches(store, [batch], now)
    return BatchPage(reading=reading, errors=await failure_groups(store, by(batch=batch.id), most=failures))


async def read_batches(store: Store, batches: Sequence[Batch], now: Moment) -> list[BatchReading]:
    """These batches. All live batches of the store are read too: those before them in line decide when these start."""
    found = batches_of(store)
    live = await found.batches(statuses=_LIVE, limit=_READ)
    queues = {queue.name: queue for queue in await store.queues()}
    bound = {queues[name].resources for batch in live for name in batch.queues if name in queues}
    views = await pool_views(store, bound)
    shown = {batch.id for batch in batches}
    slotted = [batch for batch in live if batch.status in IN_SLOT and batch.id not in shown]
    lanes, whys = await found.lanes(), await explain_batches(store, [*batches, *slotted], now)
    supplies = {pool: view.supply(now) for pool, view in views.items()}
    shares = {batch.id: supply for batch in live if (supply := _supply(batch, queues, supplies)) is not None}
    stuck = {batch for batch, why in whys.items() if why.stuck}
    forecasts = forecast(live, lanes, shares, now, stuck=stuck)
    by_name = {lane.name: lane for lane in lanes}
    return [
        BatchReading(
            batch=batch,
            forecast=forecasts.get(batch.id, Forecast()),
            why=whys.get(batch.id),
            lane=by_name.get(batch.lane),
        )
        for batch in batches
    ]


async def paused_items(store: Store) -> Counter[str]:
    """By queue: the waiting items of paused batches. None starts until an operator resumes its batch. Those of a batch
    in several queues are counted up to `MOST_READ`."""
    has, found = capabilities(store).batches, Counter[str]()
    if has is None:
        return found
    for batch in await has.batches(statuses=(BatchStatus.PAUSED, BatchStatus.PAUSING), limit=_READ):
        alone = len(batch.queues) == 1
        for name in batch.queues:
            wanted = by(batch=batch.id, queue=name, state=WAITING)
            items = sum(batch.counts.get(state, 0) for state in WAITING)
            found[name] += items if alone else (await store.count(wanted)).number
    return found


def _supply(batch: Batch, queues: dict[str, Queue], supplies: dict[str, Supply]) -> Supply | None:
    """What its items share; None if some of them need no resource."""
    bound = [queues[name].resources if name in queues else None for name in batch.queues]
    pools = {name for name in bound if name is not None and name in supplies}
    return together(supplies[name] for name in pools) if pools and None not in bound else None
