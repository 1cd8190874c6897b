"""Batches and lanes as they are shown: with what is counted from their items, and their places in line."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import json_list
from pitboss.engines.sqlite.gates import STATUSES, batch_of
from pitboss.engines.sqlite.rows import STATES
from pitboss.model.batch import IN_SLOT, OVER, Batch, BatchId, BatchStatus, Lane
from pitboss.model.batching import Place, listed, positions, recent_since
from pitboss.model.duration import Moment
from pitboss.model.states import State

Rows = Callable[..., Iterable[Any]]


def views(rows: Rows, now: Moment, ids: Sequence[BatchId]) -> list[Batch]:
    """These batches, as they are listed."""
    return _viewed(rows, now, listed(batch_of(row) for row in rows("batch_list_named", json_list(ids))))


def found(rows: Rows, now: Moment, statuses: Sequence[BatchStatus], limit: int) -> list[Batch]:
    """The first of these statuses (none named: all), as they are listed."""
    wanted = [status for status in BatchStatus if not statuses or status in statuses]
    live = [status.value for status in wanted if status not in OVER]
    over = [status.value for status in wanted if status in OVER]
    batches = [batch_of(row) for row in rows("batch_list_live", json_list(live))] if live else []
    if over and len(batches) < limit:
        batches += [batch_of(row) for row in rows("batch_list_ended", json_list(over), limit)]
    return _viewed(rows, now, listed(batches)[:limit])


def lanes(rows: Rows) -> list[Lane]:
    """Every lane by name."""
    standing: dict[str, dict[BatchStatus, int]] = {}
    for lane, status, n in rows("lane_counts"):
        standing.setdefault(lane, {})[STATUSES[status]] = n
    return [_lane(name, most, standing.get(name, {})) for name, most in rows("lane_list")]


def lane_view(rows: Rows, name: str) -> Lane:
    return next(lane for lane in lanes(rows) if lane.name == name)


def line(rows: Rows, lane: str) -> list[Place]:
    """The batches of a lane that have not ended."""
    return [Place(rank, batch, STATUSES[status]) for rank, batch, status in rows("lane_line", lane)]


def _lane(name: str, most: int, counts: dict[BatchStatus, int]) -> Lane:
    running = sum(counts.get(status, 0) for status in IN_SLOT)
    return Lane(name=name, max_running=most, running=running, queued=counts.get(BatchStatus.QUEUED, 0))


def _viewed(rows: Rows, now: Moment, batches: Sequence[Batch]) -> list[Batch]:
    places: dict[str, int] = {}
    for lane in {batch.lane for batch in batches if batch.status not in OVER}:
        places |= positions(line(rows, lane))
    return [_view(rows, now, batch, places.get(batch.id)) for batch in batches]


def _view(rows: Rows, now: Moment, batch: Batch, position: int | None) -> Batch:
    counts: dict[State, int] = {}
    queues: dict[str, None] = {}
    for queue, state, n in rows("batch_count_list", batch.id):
        counts[STATES[state]] = counts.get(STATES[state], 0) + n
        queues[queue] = None
    recent = next(iter(rows("batch_recent", batch.id, recent_since(batch.started_at, now))))[0]
    return msgspec.structs.replace(batch, position=position, counts=counts, queues=tuple(sorted(queues)), recent=recent)
