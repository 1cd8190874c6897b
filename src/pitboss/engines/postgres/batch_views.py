"""Batches as they are shown: their rows, with counts, places in line and what ended recently."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pitboss.engines.postgres.locked_batches import line
from pitboss.engines.postgres.rows import STATES, names, numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.batch import OVER, Batch, BatchId, BatchStatus
from pitboss.model.batching import listed, positions, recent_since
from pitboss.model.duration import Moment
from pitboss.model.states import State
from pitboss.model.task import NewTask

_decode_task = msgspec.json.Decoder(NewTask).decode


class _Counts(NamedTuple):
    counts: dict[State, int]
    queues: set[str]


def view(sql: Statements, batch: BatchId, now: Moment) -> Script[Batch | None]:
    return (yield from views(sql, [batch], now)).get(batch)


def views(sql: Statements, ids: Sequence[BatchId], now: Moment) -> Script[dict[BatchId, Batch]]:
    """Those that there are, by id."""
    rows = yield sql.ask("batch_list", ids=names(ids), statuses=None, limit=len(ids))
    return {batch.id: batch for batch in (yield from _with_counts(sql, [_batch(row) for row in rows], now))}


def shown(
    sql: Statements, ids: Sequence[BatchId] | None, statuses: Sequence[BatchStatus], limit: int, now: Moment
) -> Script[list[Batch]]:
    rows = yield sql.ask(
        "batch_list",
        ids=None if ids is None else names(ids),
        statuses=names(statuses) if statuses and ids is None else None,
        limit=limit if ids is None else len(ids),
    )
    return listed((yield from _with_counts(sql, [_batch(row) for row in rows], now)))


def _with_counts(sql: Statements, batches: list[Batch], now: Moment) -> Script[list[Batch]]:
    if not batches:
        return []
    ids = texts([batch.id for batch in batches])
    since = numbers([recent_since(batch.started_at, now) for batch in batches])
    counted = _counts((yield sql.ask("batch_count_list", ids=ids)))
    recent: dict[BatchId, int] = dict((yield sql.ask("batch_recent", ids=ids, since=since)))
    places: dict[BatchId, int] = {}
    for lane in sorted({batch.lane for batch in batches if batch.status not in OVER}):
        places |= positions((yield from line(sql, lane)))
    empty = _Counts({}, set())
    return [
        msgspec.structs.replace(
            batch,
            position=None if batch.status in OVER else places.get(batch.id),
            counts=counted.get(batch.id, empty).counts,
            queues=tuple(sorted(counted.get(batch.id, empty).queues)),
            recent=recent[batch.id],
        )
        for batch in batches
    ]


def _counts(rows: list[Row]) -> dict[BatchId, _Counts]:
    found: dict[BatchId, _Counts] = {}
    for batch, queue, state, number in rows:
        counted = found.setdefault(batch, _Counts({}, set()))
        counted.counts[STATES[state]] = counted.counts.get(STATES[state], 0) + number
        counted.queues.add(queue)
    return found


def _batch(row: Row) -> Batch:
    batch, name, lane, status, data, by, rank, created_at, started_at, finished_at, reason, on_complete, run = row
    return Batch(
        id=batch,
        name=name,
        lane=lane,
        status=BatchStatus(status),
        data=data,
        by=by,
        rank=rank,
        created_at=created_at,
        started_at=started_at,
        finished_at=finished_at,
        reason=reason,
        on_complete=None if on_complete is None else _decode_task(on_complete),
        run=run,
    )
