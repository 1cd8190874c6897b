"""Batches as tables, as a page, and as documents."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pitboss.cli.bars import percent, progress
from pitboss.cli.batch_reading import Survey
from pitboss.cli.groups import Group
from pitboss.cli.screen import Column, Screen
from pitboss.cli.words import age, ago, local, short, took, utc
from pitboss.model.batch import OVER, RECENT, Batch, BatchStatus, Lane
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.eta import Forecast, Range, spoken_range
from pitboss.model.states import State

_COLUMNS = (
    Column("Id"),
    Column("Name", fills=True),
    Column("Status"),
    Column("Place", right=True, drop=6),
    Column("Progress"),
    Column("Items", right=True, drop=3),
    Column("Failed", right=True, drop=1),
    Column("Lane", drop=5),
    Column("Age", right=True, drop=7),
    Column("Ends", drop=2),
    Column("Waiting", drop=4),
)
_LANES = (
    Column("Lane", fills=True),
    Column("At a time", right=True),
    Column("Running", right=True),
    Column("Queued", right=True),
)
_ERRORS = (
    Column("Group"),
    Column("Count", right=True),
    Column("Error"),
    Column("Last", right=True, drop=2),
    Column("Message", fills=True),
)
_WIDE = 30


def batch_document(survey: Survey, batch: Batch) -> dict[str, Any]:
    found = survey.forecast(batch)
    return {
        "id": batch.id,
        "name": batch.name,
        "lane": batch.lane,
        "status": batch.status,
        "position": batch.position,
        "total": batch.total,
        "finished": batch.finished,
        "left": batch.left,
        "percent": percent(batch.finished, batch.total),
        "counts": {state.value: count for state, count in batch.counts.items()},
        "queues": list(batch.queues),
        "recent": batch.recent,
        "starts": _range_document(found.starts),
        "ends": _range_document(found.ends),
        "waiting": survey.waits.get(batch.id),
        "created_at": utc(batch.created_at),
        "started_at": utc(batch.started_at),
        "finished_at": utc(batch.finished_at),
        "by": batch.by,
        "reason": batch.reason,
        "data": from_json(batch.data),
        "on_complete": None if batch.on_complete is None else batch.on_complete.handler,
    }


def lane_document(lane: Lane) -> dict[str, Any]:
    return dict(msgspec.structs.asdict(lane))


def draw_batches(screen: Screen, survey: Survey) -> None:
    if not survey.batches:
        screen.note("there are no batches")
        return
    screen.table(_COLUMNS, [_row(screen, survey, batch) for batch in survey.batches])


def draw_lanes(screen: Screen, lanes: Sequence[Lane]) -> None:
    if not lanes:
        screen.note("there are no lanes yet: a lane comes into being with its first batch")
        return
    rows = [[lane.name, str(lane.max_running), str(lane.running), str(lane.queued)] for lane in lanes]
    screen.table(_LANES, rows)


def draw_batch(screen: Screen, survey: Survey, batch: Batch, errors: Sequence[Group], *, more: bool) -> None:
    """Where it is, when it ends, what it waits for, and what went wrong."""
    found, now = survey.forecast(batch), survey.now
    screen.facts([("batch", batch.name or "(no name)"), ("id", batch.id), ("status", batch.status)])
    bar = progress(screen, batch.finished, batch.total, width=_WIDE)
    screen.facts([("progress", f"{bar}  {batch.finished:,} of {batch.total:,} items")])
    screen.facts([("items", _counts(batch)), ("starts", _starts(batch, found)), ("ends", _ends(batch, found))])
    screen.facts([("waiting", survey.waits.get(batch.id)), ("speed", _speed(batch, now)), ("reason", batch.reason)])
    screen.facts([("lane", _lane(batch, survey.lanes)), ("queues", ", ".join(batch.queues)), ("by", batch.by)])
    screen.facts([("data", None if batch.data == "{}" else batch.data)])
    screen.facts([("then", None if batch.on_complete is None else batch.on_complete.handler)])
    for label, moment in (
        ("created", batch.created_at),
        ("started", batch.started_at),
        ("finished", batch.finished_at),
    ):
        screen.facts([(label, None if moment is None else f"{local(moment)} ({ago(moment, now)})")])
    if errors:
        _draw_errors(screen, errors, now, more=more)


def _draw_errors(screen: Screen, errors: Sequence[Group], now: Moment, *, more: bool) -> None:
    screen.heading("Errors")
    rows = [
        [group.fingerprint or "-", f"{group.count:,}", group.error, ago(group.last, now), group.message]
        for group in errors
    ]
    screen.table(_ERRORS, rows)
    if more:
        screen.note("there are more failures; these are the newest ones")


def _row(screen: Screen, survey: Survey, batch: Batch) -> list[str]:
    waiting = survey.waits.get(batch.id) if batch.status is BatchStatus.RUNNING else None
    return [
        short(batch.id),
        batch.name,
        batch.status,
        "" if not batch.position else str(batch.position),
        progress(screen, batch.finished, batch.total),
        f"{batch.finished:,}/{batch.total:,}",
        f"{batch.counts.get(State.FAILED, 0):,}",
        batch.lane,
        age(batch.created_at, survey.now),
        _ends(batch, survey.forecast(batch)) or "",
        waiting or "",
    ]


def _counts(batch: Batch) -> str:
    parts = [f"{batch.counts[state]:,} {state}" for state in State if batch.counts.get(state)]
    return ", ".join(parts)


def _starts(batch: Batch, found: Forecast) -> str | None:
    return _ahead(found.starts) if batch.status is BatchStatus.QUEUED and found.starts else None


def _ends(batch: Batch, found: Forecast) -> str | None:
    if batch.status not in (BatchStatus.RUNNING, BatchStatus.QUEUED):
        return None
    return _ahead(found.ends)


def _ahead(found: Range | None) -> str:
    said = spoken_range(found)
    if said == "unknown":
        return said
    return said.replace("up to", "within") if said.startswith("up to") else f"in {said}"


def _speed(batch: Batch, now: Moment) -> str | None:
    if batch.status in OVER and batch.started_at is not None and batch.finished_at is not None:
        return f"{batch.finished:,} items in {took(batch.finished_at - batch.started_at)}"
    if batch.started_at is None or not batch.recent:
        return None
    span = min(RECENT, max(SECOND, now - batch.started_at))
    return f"{batch.recent:,} items in the last {spoken(span)} ({batch.recent * SECOND / span:.2g} per second)"


def _lane(batch: Batch, lanes: Sequence[Lane]) -> str:
    lane = next((one for one in lanes if one.name == batch.lane), None)
    return (
        batch.lane
        if lane is None
        else f"{lane.name} ({lane.running} of {lane.max_running} running, {lane.queued} queued)"
    )


def _range_document(found: Range | None) -> dict[str, Any] | None:
    if found is None:
        return None
    latest = None if found.latest is None else found.latest / SECOND
    return {"earliest": found.earliest / SECOND, "latest": latest, "text": spoken_range(found)}
