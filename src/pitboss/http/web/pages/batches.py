"""Batches in the order in which they run, and one batch: how far it is, when it ends, and what holds it up."""

from collections.abc import Sequence
from typing import Any

from pitboss.engines.capabilities import batches_of, capabilities
from pitboss.http.web.charts import Chart, speed_chart
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.overview import failure_bars
from pitboss.http.web.remedies import helps
from pitboss.http.web.view import View
from pitboss.model.batch import IN_SLOT, OVER, Batch, BatchStatus
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.figures import HOUR
from pitboss.model.states import State
from pitboss.operate.batches import BatchPage, BatchReading, list_batches, read_batch, read_line
from pitboss.operate.figures import read_figures

_ROWS, _MOST, _LINE, _GROUPS, _FAILURES = 50, 1000, 20, 5, 500
_SECONDS, _FIGURES_SECONDS = 2.0, 10.0
# What may stand in the query.
_STATUSES: dict[str, Sequence[BatchStatus]] = {
    "": (),
    "running": tuple(sorted(IN_SLOT)),
    "queued": (BatchStatus.QUEUED,),
    "paused": (BatchStatus.PAUSED, BatchStatus.PAUSING),
    "ended": tuple(sorted(OVER)),
}
TOPICS = ("batches", "queues", "resources", "store")


async def read_all(view: View) -> Context:
    chosen = view.query.get("status", "")
    chosen = chosen if chosen in _STATUSES else ""
    asked = view.query.get("rows", "")
    rows = min(_MOST, max(_ROWS, int(asked))) if asked.isascii() and asked.isdigit() else _ROWS
    found: list[BatchReading] = await view.readings.get(
        ("batches", chosen, rows), lambda: list_batches(view.store, view.now, _STATUSES[chosen], rows + 1), _SECONDS
    )
    more = rows + _ROWS if len(found) > rows and rows < _MOST else None
    return {
        "chosen": chosen,
        "statuses": list(_STATUSES),
        "batches": found[:rows],
        "more": more,
        "lanes": await batches_of(view.store).lanes(),
    }


async def read_one(view: View) -> Context:
    place = view.places["batch"]
    page: BatchPage = await view.readings.get(("batch", place), lambda: _page(view, place), _SECONDS)
    reading = page.reading
    batch = reading.batch
    line: list[BatchReading] = await view.readings.get(
        ("line", batch.lane), lambda: read_line(view.store, batch.lane, view.now, _LINE), _SECONDS
    )
    return {
        "one": reading,
        "helps": helps(view, reading.why.helps[:2] if reading.why else ()),
        "batch": batch,
        "name": batch.name or batch.id[-12:],
        "states": [(state.value, batch.counts[state]) for state in State if batch.counts.get(state)],
        "groups": page.errors.groups[:_GROUPS],
        "bars": await failure_bars(view, page.errors.groups[:_GROUPS], batch=batch.id),
        "limits": await _limits(view, batch),
        "chart": await _speed(view, batch),
        "group_count": len(page.errors.groups),
        "more_errors": page.errors.more,
        "line": line,
        "speed": reading.speed(view.now),
        "likely": reading.likely(view.now),
        "ends": _ends(reading, view.now),
    }


async def _limits(view: View, batch: Batch) -> list[tuple[str, str]]:
    """The queues of a running batch that something limits, and what that is."""
    if batch.status is not BatchStatus.RUNNING:
        return []
    forecasts = (await view.status()).forecasts
    found = [(name, forecasts[name].pinch.said) for name in batch.queues if name in forecasts]
    return [(name, said) for name, said in found if said]


async def _speed(view: View, batch: Batch) -> Chart | None:
    """What ended in its first queue in the last hour, other tasks too: the store keeps no figures by batch."""
    if capabilities(view.store).figures is None or not batch.queues:
        return None
    queue = batch.queues[0]
    found = await view.readings.get(
        ("figures", queue, "1h"), lambda: read_figures(view.store, view.now, since=HOUR, queue=queue), _FIGURES_SECONDS
    )
    return speed_chart(found)


async def _page(view: View, text: str) -> BatchPage:
    try:
        return await read_batch(view.store, text, view.now, failures=_FAILURES)
    except InvalidInput as error:
        raise NotFound(error.what, why=error.why, fix=error.fix) from error


def _ends(reading: BatchReading, now: int) -> dict[str, Any] | None:
    """The moments of its end, if they are known."""
    found, started = reading.forecast.ends, reading.batch.started_at
    if found is None or started is None or reading.batch.status is not BatchStatus.RUNNING:
        return None
    return {
        "started": started,
        "earliest": now + found.earliest,
        "latest": None if found.latest is None else now + found.latest,
    }


PAGES = (
    Page("/batches", "Batches", "batches.html", read_all, TOPICS),
    Page("/batches/{batch}", "Batch", "batch.html", read_one, TOPICS),
)
