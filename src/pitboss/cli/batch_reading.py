"""Finds batches, and gathers what has to be known to say how they stand."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pitboss.engines.capabilities import batches_of, capabilities
from pitboss.engines.protocol import Batches
from pitboss.model.batch import IN_SLOT, Batch, BatchId, BatchStatus, Lane
from pitboss.model.batch_waiting import batch_waits
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.eta import Forecast, forecast
from pitboss.model.queue import Queue
from pitboss.model.supply import PoolView, Supply, together

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_PIECE = re.compile(r"[0-9a-f][0-9a-f-]{5,35}\Z")
_LOOKED_AT = 10_000
_LIVE = (*sorted(IN_SLOT), BatchStatus.QUEUED)


class Survey(NamedTuple):
    """Batches as they stood at one moment: when they start and end, and what they wait for."""

    now: Moment
    batches: list[Batch]
    forecasts: dict[BatchId, Forecast]
    waits: dict[BatchId, str | None]
    lanes: list[Lane]

    def forecast(self, batch: Batch) -> Forecast:
        return self.forecasts.get(batch.id, Forecast())


async def found_batch(store: Batches, text: str) -> Batch:
    """The batch with this id, or the only one whose id begins or ends with this piece."""
    piece = text.strip().lower()
    if _ID.match(piece):
        matches = await store.batches([piece])
    elif _PIECE.match(piece):
        known = await store.batches(limit=_LOOKED_AT)
        matches = [batch for batch in known if batch.id.startswith(piece) or batch.id.endswith(piece)]
    else:
        raise InvalidInput(
            f"{text!r:.60} is not a batch's id",
            why="an id is a UUID; six or more of its first or last characters are enough",
            fix="pitboss batches list shows ids",
        )
    if len(matches) > 1:
        raise InvalidInput(
            f"{text} means several batches", why=", ".join(batch.id for batch in matches[:5]), fix="give more of the id"
        )
    if not matches:
        raise NotFound(
            f"there is no batch {text}",
            why="it was never in this store, or it was deleted, or it ended long ago and was pruned",
            fix="check the id and the store; pitboss batches list shows what there is",
        )
    return matches[0]


async def surveyed(store: "Store", batches: Sequence[Batch]) -> Survey:
    """These batches; those before them in line are looked at too, because they decide when these start."""
    from pitboss import wiring

    desk = batches_of(store)
    live = await desk.batches(statuses=_LIVE, limit=_LOOKED_AT)
    queues = {queue.name: queue for queue in await store.queues()}
    views = await pool_views(
        store, {queues[name].resources for batch in live for name in batch.queues if name in queues}
    )
    sessions, lanes = await store.sessions(), await desk.lanes()
    now = wiring.SystemClock().now()
    supplies = {pool: view.supply(now) for pool, view in views.items()}
    shares = {batch.id: supply for batch in live if (supply := _supply(batch, queues, supplies)) is not None}
    waits = {batch.id: batch_waits(batch, queues=queues, pools=views, sessions=sessions, now=now) for batch in batches}
    return Survey(now, list(batches), forecast(live, lanes, shares, now), waits, lanes)


async def pool_views(store: "Store", names: "set[str | None]") -> dict[str, PoolView]:
    """The resource pools of these names with their members."""
    wanted = {name for name in names if name is not None}
    resources = capabilities(store).resources
    if not wanted or resources is None:
        return {}
    rules = {pool.name: pool.rules for pool in await resources.resource_pools()}
    found = sorted(wanted & rules.keys())
    return {name: PoolView(name, rules[name], await resources.resources(name)) for name in found}


def _supply(batch: Batch, queues: dict[str, Queue], supplies: dict[str, Supply]) -> Supply | None:
    """What its items can have together; None if some of them need nothing."""
    bound = [queues[name].resources if name in queues else None for name in batch.queues]
    pools = {name for name in bound if name is not None and name in supplies}
    return together(supplies[name] for name in pools) if pools and None not in bound else None
