"""A report as one file: it needs no server, no script and no other file, so that it can be mailed."""

from pathlib import Path

from pitboss.http.web.charts import COUNTS, Chart, chart, charts_of
from pitboss.http.web.rendering import environment
from pitboss.operate.figures import FigureReading
from pitboss.operate.report import Report

_STATIC = Path(__file__).parent / "static"
_STYLES = ("tokens.css", "pitboss.css", "app.css", "report.css")


def report_page(found: Report, store: str) -> str:
    """`store` is how the report names the store: without a password."""
    return (
        environment()
        .get_template("report.html")
        .render(
            report=found,
            status=found.status,
            overview=found.overview,
            charts=charts_of(found.figures),
            resources={name: _resource_charts(one) for name, one in found.resources.items()},
            refusals={name: one.refusals for name, one in found.resources.items()},
            style="\n".join((_STATIC / name).read_text(encoding="utf-8") for name in _STYLES),
            store=store,
            now=found.status.now,
        )
    )


def _resource_charts(found: FigureReading) -> list[Chart]:
    series = found.series
    wanted = (
        ("usable", "Usable members", [("usable", "out")]),
        ("uses", "Uses and refusals", [("uses", "in"), ("refused", "bad")]),
    )
    return [
        chart(found, name, title, COUNTS, [(line, kind, series[line]) for line, kind in lines if line in series])
        for name, title, lines in wanted
        if all(line in series for line, _ in lines)
    ]
