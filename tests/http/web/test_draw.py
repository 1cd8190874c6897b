"""Lines of charts and ends of batches as attributes of SVG."""

import json

import msgspec
import pytest

from pitboss.http.web import charts, draw
from pitboss.http.web.formatting import rate
from pitboss.model.duration import SECOND
from pitboss.operate.figures import FigureReading, Release, Values


def reading(**series: Values) -> FigureReading:
    known = dict.fromkeys(("wait_p50", "wait_p95", "run_p50", "run_p95"), (None,) * 4)
    counts = dict.fromkeys(("in", "out", "failed"), (0,) * 4)
    return FigureReading(
        since=0,
        until=40 * SECOND,
        step=10 * SECOND,
        queue=None,
        handler=None,
        pool=None,
        series={**known, **counts, **series},
        destinations={},
    )


def chart(name: str, **series: Values) -> charts.Chart:
    return next(one for one in charts.charts_of(reading(**series)) if one.id == name)


def test_no_cells_have_no_negative_width() -> None:
    assert draw.cells([]) == (0, [])


def test_a_line_has_gaps_where_nothing_was_measured_and_dots_between_them() -> None:
    drawn = draw.broken((1, 2, None, 2, None), 2, 40, 23.5)  # type: ignore[arg-type]
    assert drawn == "M0 12h0 L10 2 M30 2h0"
    assert draw.broken((None, None), 1, 40, 20) == ""


@pytest.mark.parametrize(
    ("values", "unit", "top"),
    [
        ((1, 2, 3, 40), "tasks per second", 4),
        ((0, 0, 0, 5), "tasks per minute", 40),
        ((0, 0, 0, 0), "tasks per minute", 1),
        ((900, 950, 0, 0), "tasks per second", 100),
    ],
)
def test_rates_are_in_a_readable_unit(values: Values, unit: str, top: float) -> None:
    found = chart("flow", **{"in": values})
    assert (found.unit, found.top) == (unit, top)


@pytest.mark.parametrize(
    ("value", "unit"), [(0.02, "milliseconds"), (1.5, "seconds"), (90, "minutes"), (4000, "hours"), (200_000, "days")]
)
def test_times_are_in_a_readable_unit(value: float, unit: str) -> None:
    assert chart("wait", wait_p95=(None, value, None, value)).unit == unit


def test_a_chart_says_its_finding_and_gives_its_values_to_a_script() -> None:
    found = chart("wait", wait_p95=(None, 2.0, 4.0, None))
    assert found.said == "Wait, seconds: p95 up to 4, at last 4"
    assert found.ticks == ["4", "2", "0"]
    assert json.loads(found.data)["data"] == [[0, 10, 20, 30], [None] * 4, [None, 2, 4, None]]
    assert chart("wait").said == "Wait, seconds: nothing was measured"


def test_releases_are_lines_with_labels_where_there_is_room() -> None:
    moments = (0, 1, 9, 29, 38)
    releases = tuple(Release(seconds * SECOND, "shop", f"{seconds:02}aabbccddee") for seconds in moments)
    found = charts.charts_of(msgspec.structs.replace(reading(), releases=releases))[0]
    assert [(one.x, one.label) for one in found.marks] == [
        (0, "00aabbc"),
        (3.3, ""),
        (30, "09aabbc"),
        (96.7, "29aabbc"),
        (100, ""),
    ]
    assert found.said.endswith("; 5 releases of the code")


def test_the_range_of_an_end_is_on_the_line_from_the_start() -> None:
    assert draw.ending(0, 50, 75, 100, 100) == (50, 75, 100)
    assert draw.ending(0, 50, 75, None, 100) == (50, 75, 100)


def test_what_is_shorter_than_a_millisecond_has_an_axis_of_one() -> None:
    """Regression: the axis of waits of a microsecond was labelled 0.001, 0.001 and 0."""
    found = chart("wait", wait_p95=(None, 1e-6, 2e-4, None))
    assert (found.unit, found.ticks) == ("milliseconds", ["1", "0.5", "0"])
    assert json.loads(found.data)["top"] == 1


def test_small_values_do_not_look_like_large_ones() -> None:
    """Regression: waits of a millisecond were a plateau at the top."""
    assert draw.line((0.001, 0.001), 10, 20, least=1).line == "M0 18.5 L10 18.5"
    assert draw.line((0.001, 0.001), 10, 20).line == "M0 2 L10 2"


@pytest.mark.parametrize(
    ("one", "beside", "said"),
    [(2.0, 0.5, "2.0/s"), (0.515, 2.0, "0.5/s"), (0.515, 0.6, "30.9/min"), (0.03, 5.0, "0.03/s"), (0, 5.0, "0")],
)
def test_rates_side_by_side_have_one_unit(one: float, beside: float, said: str) -> None:
    assert rate(one, beside) == said
