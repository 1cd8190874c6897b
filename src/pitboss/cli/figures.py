"""`pitboss figures`: what happened over time, as a chart."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pitboss.cli.command import JsonOption, Shown, StoreOption, WatchOption, now, screen_of, show
from pitboss.cli.formatting import local, time_of_day, took
from pitboss.cli.screen import Screen
from pitboss.model.duration import SECOND, Span, span, spoken
from pitboss.model.text import counted
from pitboss.operate.figures import MOST_POINTS, TOO_MANY, FigureReading, Values, figures_document, read_figures

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_BLOCKS = " ▁▂▃▄▅▆▇█"
_DOT = "·"
_STYLES = {"failed": "red", "crashes": "red", "refused": "red", "out": "green", "wait_p95": "yellow"}
_UNITS = ((SECOND, "s"), (60 * SECOND, "min"), (3600 * SECOND, "h"))
_TALL, _SHORT = 4, 2
_RELEASES = 5
_ENDS = 8
# From here on, no decimals.
_ROUNDED = 10


class _Row(NamedTuple):
    """A chart: its title, the name of its series, how to say a value, and its height in lines."""

    title: str
    name: str
    say: Callable[[float], str]
    height: int = _SHORT


def figures(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only of this queue.")] = None,
    handler: Annotated[str | None, typer.Option("--handler", metavar="NAME", help="Only of this handler.")] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="NAME", help="Of this worker pool or resource pool instead.")
    ] = None,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back, such as 2h or 7d.")] = "2h",
    step: Annotated[
        str | None, typer.Option("--step", metavar="TIME", help="The time of one column, such as 1m.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show how many tasks came and went over time, how long they waited and ran, and how many failed.

    A dot stands for a time in which no manager ran, so that waits and runs were not measured.

    \b
    Examples:
      pitboss figures
      pitboss figures mail --since 2h
      pitboss figures --handler send --since 7d --json
      pitboss figures --pool proxies
    """
    screen = screen_of(context)
    back, width = span(since), None if step is None else span(step)
    points = MOST_POINTS if as_json else max(10, min(MOST_POINTS, screen.out.width))

    async def read(opened: "Store") -> Shown:
        found = await read_figures(
            opened, now(opened), since=back, step=width, queue=queue, handler=handler, pool=pool, points=points
        )
        return Shown(figures_document(found), lambda screen: _draw(screen, found))

    show(screen, store, read, as_json=as_json, watch=watch)


def _draw(screen: Screen, found: FigureReading) -> None:
    screen.line(f"{_subject(found)}, one column for {spoken(found.step)}")
    rows = _task_rows(found) if found.pool is None else _pool_rows(found)
    for row in rows:
        _draw_row(screen, row, found.series[row.name][-screen.out.width :], found.series["covered"])
    _draw_times(screen, found)
    for place, one in list(found.destinations.items())[:5]:
        screen.line(f"{place}: {counted(one.uses, 'use')}, {one.refused:,} refused")
    for mark in found.releases[-_RELEASES:]:
        screen.line(f"release {mark.release} of app {mark.app} since {local(mark.at)}")
    if found.measured_since is not None:
        screen.line(TOO_MANY.format(local(found.measured_since)), "yellow")
    for begun, ended in found.unmeasured:
        screen.line(f"no manager ran from {time_of_day(begun)} to {time_of_day(ended)}", "yellow")


def _subject(found: FigureReading) -> str:
    if found.pool is not None:
        return f"Pool {found.pool}"
    named = [f"queue {found.queue}"] * (found.queue is not None)
    named += [f"handler {found.handler}"] * (found.handler is not None)
    text = " and ".join(named) or "all tasks"
    return text[0].upper() + text[1:]


def _task_rows(found: FigureReading) -> list[_Row]:
    arrived, ended = (_rate(found.series[name], found.step) for name in ("in", "out"))
    return [
        _Row("in", "in", arrived, _TALL),
        _Row("out", "out", ended, _TALL),
        _Row("failed", "failed", _number),
        _Row("wait p95", "wait_p95", _time),
        _Row("run p95", "run_p95", _time),
    ]


def _pool_rows(found: FigureReading) -> list[_Row]:
    """A row for each series that the pool has."""
    say = {"memory": lambda value: f"{value / 1_000_000:,.0f} MB"}
    names = [name for name in found.series if name != "covered"]
    return [_Row(name.replace("_", " "), name, say.get(name, _number)) for name in names]


def _draw_row(screen: Screen, row: _Row, values: Values, covered: Values) -> None:
    known = [one for one in values if one is not None]
    told = f"now {row.say(known[-1])}, most {row.say(max(known))}" if known else "not known"
    screen.line(f"{row.title}: {told}")
    style = _STYLES.get(row.name) if any(known) else "bright_black"
    for line in chart(values, covered[-len(values) :], row.height if any(known) else 1):
        screen.line(line, style)


def chart(values: Values, covered: Values, height: int) -> Iterator[str]:
    """Bars, `height` lines of them, the top one first. A value above zero is visible; one that is not known is a dot if
    no manager ran."""
    most = max((one for one in values if one is not None), default=0) or 1
    eighths = [0 if one is None else max(one > 0, round(one / most * height * 8)) for one in values]
    for line in reversed(range(height)):
        bars = [_BLOCKS[min(8, max(0, one - line * 8))] for one in eighths]
        if line == 0:
            known = [one is not None or seen for one, seen in zip(values, covered, strict=True)]
            bars = [bar if told else _DOT for bar, told in zip(bars, known, strict=True)]
        yield "".join(bars)


def _draw_times(screen: Screen, found: FigureReading) -> None:
    """When the first and the last column began, below them."""
    moments = found.moments[-screen.out.width :]
    space = len(moments) - 2 * _ENDS
    ends = time_of_day(moments[0]), time_of_day(moments[-1])
    screen.line((" " * space).join(ends) if space > 0 else ends[0], "bright_black")


def _rate(values: Sequence[float | int | None], step: Span) -> Callable[[float], str]:
    """Per second, minute or hour: the first in which the largest is at least one."""
    most = max((one for one in values if one is not None), default=0)
    unit, name = next(((unit, name) for unit, name in _UNITS if most * unit >= step), _UNITS[-1])
    return lambda value: f"{_number(value * unit / step)}/{name}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= _ROUNDED or value == int(value) else f"{value:.1f}"


def _time(value: float) -> str:
    return took(round(value * SECOND))
