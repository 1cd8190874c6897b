"""Batches as tables and as a page."""

from collections.abc import Sequence

from pitboss.cli.formatting import age, ago, short, took, when
from pitboss.cli.progress import bar
from pitboss.cli.screen import Column, Screen
from pitboss.model.batch import OVER, RECENT, Batch, BatchStatus, Lane
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.eta import Range, spoken_range
from pitboss.model.states import State
from pitboss.operate.batches import BatchPage, BatchReading
from pitboss.operate.failures import FailureGroups

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


def draw_batches(screen: Screen, readings: Sequence[BatchReading], now: Moment) -> None:
    if not readings:
        screen.note("there are no batches")
        return
    screen.table(_COLUMNS, [_row(screen, reading, now) for reading in readings])


def draw_lanes(screen: Screen, lanes: Sequence[Lane]) -> None:
    if not lanes:
        screen.note("there are no lanes yet: the first batch of a lane creates it")
        return
    rows = [[lane.name, str(lane.max_running), str(lane.running), str(lane.queued)] for lane in lanes]
    screen.table(_LANES, rows)


def draw_batch(screen: Screen, page: BatchPage, now: Moment) -> None:
    """How far it is, when it ends, what it waits for, and its errors."""
    reading, batch = page.reading, page.reading.batch
    screen.fields([("batch", batch.name or "(no name)"), ("id", batch.id), ("status", batch.status)])
    ran = " ran" if reading.cancelled else ""
    progress = f"{bar(screen, reading.percent, width=_WIDE)}  {reading.done:,} of {batch.total:,} items{ran}"
    screen.fields([("progress", progress), ("items", _counts(batch))])
    screen.fields([("starts", _starts(reading)), ("ends", _ends(reading))])
    screen.fields([("waiting", reading.waiting), ("speed", _speed(reading, now)), ("reason", batch.reason)])
    screen.fields([("lane", _lane(reading)), ("queues", ", ".join(batch.queues)), ("by", batch.by)])
    screen.fields([("data", None if batch.data == "{}" else batch.data)])
    screen.fields([("then", None if batch.on_complete is None else batch.on_complete.handler)])
    screen.fields([("run", f"{batch.run}: it had ended and was requeued" if batch.run > 1 else None)])
    screen.fields([("created", when(batch.created_at, now)), ("started", when(batch.started_at, now))])
    screen.fields([("finished", when(batch.finished_at, now))])
    if page.errors.groups:
        _draw_errors(screen, page.errors, now)


def _draw_errors(screen: Screen, errors: FailureGroups, now: Moment) -> None:
    screen.heading("Errors")
    rows = [
        [
            group.fingerprint or "-",
            f"{group.count:,}{'+' * group.more}",
            group.error,
            ago(group.last, now),
            group.message,
        ]
        for group in errors.groups
    ]
    screen.table(_ERRORS, rows)
    if errors.more:
        screen.note("there are more failures; these are the newest ones")


def _row(screen: Screen, reading: BatchReading, now: Moment) -> list[str]:
    batch = reading.batch
    return [
        short(batch.id),
        batch.name,
        batch.status,
        "" if not batch.position else str(batch.position),
        bar(screen, reading.percent),
        f"{reading.done:,}/{batch.total:,}",
        f"{batch.counts.get(State.FAILED, 0):,}",
        batch.lane,
        age(batch.created_at, now),
        _ends(reading) or "",
        (reading.waiting or "") if batch.status is BatchStatus.RUNNING else "",
    ]


def _counts(batch: Batch) -> str:
    parts = [f"{batch.counts[state]:,} {state}" for state in State if batch.counts.get(state)]
    return ", ".join(parts)


def _starts(reading: BatchReading) -> str | None:
    starts = reading.forecast.starts
    return _ahead(starts) if reading.batch.status is BatchStatus.QUEUED and starts else None


def _ends(reading: BatchReading) -> str | None:
    if reading.batch.status not in (BatchStatus.RUNNING, BatchStatus.QUEUED):
        return None
    return _ahead(reading.forecast.ends)


def _ahead(found: Range | None) -> str:
    said = spoken_range(found)
    if said == "unknown":
        return said
    return said.replace("up to", "within") if said.startswith("up to") else f"in {said}"


def _speed(reading: BatchReading, now: Moment) -> str | None:
    batch = reading.batch
    if batch.status in OVER and batch.started_at is not None and batch.finished_at is not None:
        return f"{reading.done:,} items in {took(batch.finished_at - batch.started_at)}"
    if batch.started_at is None or not batch.recent:
        return None
    span = min(RECENT, max(SECOND, now - batch.started_at))
    return f"{batch.recent:,} items in the last {spoken(span)} ({batch.recent * SECOND / span:.2g} per second)"


def _lane(reading: BatchReading) -> str:
    lane = reading.lane
    if lane is None:
        return reading.batch.lane
    return f"{lane.name} ({lane.running} of {lane.max_running} running, {lane.queued} queued)"
