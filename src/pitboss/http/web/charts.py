"""Charts of figures over a time that the query of the page chooses, drawn on the server (parts/chart.html)."""

import json
from collections.abc import Sequence
from math import floor, log10
from typing import Any, NamedTuple

from pitboss.http.web import draw
from pitboss.http.web.view import View
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.figures import HOUR
from pitboss.model.text import counted
from pitboss.operate.figures import FigureReading, Values, read_figures

# What may stand in the query, how long that is, and for how many seconds a reading of it is shown.
PERIODS: dict[str, tuple[str, Span, float]] = {
    "15m": ("15 min", HOUR // 4, 5),
    "2h": ("2 h", 2 * HOUR, 10),
    "24h": ("24 h", 24 * HOUR, 60),
    "7d": ("7 d", 7 * 24 * HOUR, 300),
}
_FIRST = "2h"
_LEAST = 0.01
_TOPS = (1, 2, 4, 6, 8, 10)
_RATES = ((1, "tasks per second"), (60, "tasks per minute"), (3600, "tasks per hour"))
_TIMES = ((1 / 86_400, "days"), (1 / 3600, "hours"), (1 / 60, "minutes"), (1, "seconds"), (1000, "milliseconds"))
COUNTS = ((1, "number"),)
_WIDTH, _HEIGHT = 600, 120
# How much of a narrow chart a label takes, in percent.
_LABEL = 18


class Line(NamedTuple):
    """`kind` is in (grey), out (accent) or bad (red)."""

    name: str
    kind: str
    values: Values
    path: str = ""


class Mark(NamedTuple):
    """A vertical line across a chart, `x` percent from the left, where another release of the code began to run.
    Without a label where there is no room for one."""

    x: float
    label: str


class Chart(NamedTuple):
    """Values and paths are in `unit`, from 0 to `top`. Where nothing was measured, a line has a gap."""

    id: str
    title: str
    unit: str
    top: float
    lines: Sequence[Line]
    since: Moment
    step: Span
    width: int = _WIDTH
    height: int = _HEIGHT
    marks: Sequence[Mark] = ()

    @property
    def until(self) -> Moment:
        return self.since + self.step * (len(self.lines[0].values) - 1)

    @property
    def ticks(self) -> list[str]:
        """What stands beside the grid, from above."""
        return [f"{self.top * part / 2:g}" for part in (2, 1, 0)]

    @property
    def measured(self) -> bool:
        return any(value is not None for one in self.lines for value in one.values)

    @property
    def said(self) -> str:
        """The finding in words."""
        known = [(one.name, [value for value in one.values if value is not None]) for one in self.lines]
        parts = [f"{name} up to {max(values):.3g}, at last {values[-1]:.3g}" for name, values in known if values]
        parts = parts or ["nothing was measured"]
        parts += [f"{counted(len(self.marks), 'release')} of the code"] * bool(self.marks)
        return f"{self.title}, {self.unit}: {'; '.join(parts)}"

    @property
    def data(self) -> str:
        """What the browser draws it from (charts.js)."""
        moments = [(self.since + place * self.step) // SECOND for place in range(len(self.lines[0].values))]
        return json.dumps({"data": [moments, *(_short(one) for one in self.lines)]}, separators=(",", ":"))


def period(view: View) -> str:
    """The one in the query, or the usual one."""
    asked = view.query.get("since", "")
    return asked if asked in PERIODS else _FIRST


async def read_charts(view: View, queue: str | None = None) -> dict[str, Any]:
    """What `charts` of parts/chart.html needs: those of all tasks, or of a queue."""
    chosen = period(view)
    _, span, seconds = PERIODS[chosen]
    found = await view.readings.get(
        ("figures", queue, chosen), lambda: read_figures(view.store, view.now, since=span, queue=queue), seconds
    )
    return {
        "period": chosen,
        "periods": {name: one[0] for name, one in PERIODS.items()},
        "all": charts_of(found),
        "measured_since": found.measured_since,
    }


def charts_of(found: FigureReading) -> list[Chart]:
    """Those of tasks."""
    series = found.series
    rates = {name: found.per_second(name) for name in ("in", "out", "failed")}
    return [
        chart(found, "flow", "In and out", _RATES, [("in", "in", rates["in"]), ("out", "out", rates["out"])]),
        chart(found, "wait", "Wait", _TIMES, [("p50", "in", series["wait_p50"]), ("p95", "out", series["wait_p95"])]),
        chart(found, "run", "Run time", _TIMES, [("p50", "in", series["run_p50"]), ("p95", "out", series["run_p95"])]),
        chart(found, "failed", "Failures", _RATES, [("failed", "bad", rates["failed"])]),
    ]


def speed_chart(found: FigureReading) -> Chart:
    """What ended, as a rate."""
    return chart(found, "speed", "Speed", _RATES, [("ended", "out", found.per_second("out"))])


def chart(
    found: FigureReading,
    name: str,
    title: str,
    units: Sequence[tuple[float, str]],
    lines: Sequence[tuple[str, str, Values]],
) -> Chart:
    """In the first unit in which its largest value is at least one; without values, in one of the middle."""
    largest = max((value or 0 for _, _, values in lines for value in values), default=0)
    times, unit = next((one for one in units if largest * one[0] >= 1), units[-1])
    if not largest:
        times, unit = units[1] if units is _RATES else units[-2:][0]
    top = _top(_seen(largest * times))
    drawn = []
    for said, kind, values in lines:
        scaled = tuple(None if value is None else _seen(value * times) for value in values)
        drawn.append(Line(said, kind, scaled, draw.broken(scaled, top, _WIDTH, _HEIGHT)))
    return Chart(name, title, unit, top, drawn, found.since, found.step, marks=_marks(found))


def _marks(found: FigureReading) -> list[Mark]:
    whole, marks = max(1, found.moments[-1] - found.since), list[Mark]()
    labelled = -100.0
    for one in found.releases:
        x = round(min(1.0, (one.at - found.since) / whole) * 100, 1)
        # At the right end, labels stand before their line.
        room = x - labelled >= _LABEL * (1 + (x > 100 - _LABEL))
        marks.append(Mark(x, one.release[:7] if room else ""))
        labelled = x if room else labelled
    return marks


def _top(largest: float) -> float:
    """A round number that is not below it."""
    if largest <= 0:
        return 1
    size = 10.0 ** floor(log10(largest))
    return next(one * size for one in _TOPS if largest <= one * size * (1 + 1e-9))


def _seen(value: float) -> float:
    """Without what is too small to be told from 0, such as a wait of a microsecond."""
    return value if value >= _LEAST else 0.0


def _short(line: Line) -> list[float | None]:
    return [None if value is None else float(f"{value:.3g}") for value in line.values]
