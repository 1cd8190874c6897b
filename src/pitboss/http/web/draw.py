"""Drawings as the attributes of SVG elements: no script and no inline style is needed."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

# Sums of means may be a little above what was there.
_ALMOST = 0.98
Values = Sequence[float | int | None]


class Spark(NamedTuple):
    """Paths of a small drawing."""

    width: int
    height: int
    line: str = ""
    area: str = ""
    second: str = ""
    gap: str = ""


class Part(NamedTuple):
    """A stretch of a bar or a column."""

    kind: str
    x: float
    y: float
    width: float
    height: float


def line(values: Values, width: int = 160, height: int = 26, least: float = 0) -> Spark:
    """One line with the area below it. What was not measured leaves no gap: the line goes on from the last value. The
    top is at least `least`, so that small values do not look like large ones."""
    points = _points(_filled(values), max([least, *(v or 0 for v in values)]), width, height)
    if len(points) < 2:  # noqa: PLR2004 - a line has two ends
        return Spark(width, height)
    drawn = _path(points)
    return Spark(width, height, line=drawn, area=f"{drawn} L{width} {height} L0 {height} Z")


def in_and_out(arrived: Values, ended: Values, width: int = 96, height: int = 26) -> Spark:
    """What came and what ended; the gap is where more came."""
    came, went = _smooth(_filled(arrived)), _smooth(_filled(ended))
    top = max([*came, *went], default=0)
    ins, outs = _points(came, top, width, height), _points(went, top, width, height)
    if len(ins) < 2:  # noqa: PLR2004
        return Spark(width, height)
    # Where more ended than came, the border of the gap follows the arrivals, so that it has no area there.
    below = [(x, max(y, low)) for (x, y), (_, low) in zip(ins, outs, strict=True)]
    gap = f"{_path(ins)} {_path(below[::-1]).replace('M', 'L', 1)} Z"
    return Spark(width, height, line=_path(ins), second=_path(outs), gap=gap)


def areas(
    parts: Sequence[tuple[str, Values]], width: int = 760, height: int = 132
) -> tuple[int, list[tuple[str, str]]]:
    """Areas on top of each other, the first at the bottom: the height of all in units, and the kind and path of each.
    Nothing if fewer than two values were measured."""
    known = [(kind, _filled(values)) for kind, values in parts if any(values)]
    sums = [sum(column) for column in zip(*(values for _, values in known), strict=True)]
    # An even top has a whole number in its middle.
    top = ceil(max(sums, default=0) * _ALMOST)
    top += top % 2 if top > 1 else 0
    if not top or len(sums) < 2:  # noqa: PLR2004
        return top, []
    step, low, found = width / (len(sums) - 1), [0.0] * len(sums), []
    for kind, values in known:
        high = [before + value for before, value in zip(low, values, strict=True)]
        upper = [(round(place * step, 1), round(max(0.0, height * (1 - y / top)), 1)) for place, y in enumerate(high)]
        lower = [(round(place * step, 1), round(max(0.0, height * (1 - y / top)), 1)) for place, y in enumerate(low)]
        found.append((kind, f"{_path(upper)} {_path(lower[::-1]).replace('M', 'L', 1)} Z"))
        low = high
    return top, found


def columns(values: Values, width: int = 88, height: int = 24, kind: str = "bad") -> list[Part]:
    """One column for each value; nothing is a thin base line."""
    top, step = max([v or 0 for v in values], default=0), width / max(1, len(values))
    found = []
    for place, value in enumerate(values):
        tall = round(height * value / top, 1) if value and top else 0
        of = kind if tall else "zero"
        tall = max(tall, 1.5)
        found.append(Part(of, round(place * step + 0.5, 1), round(height - tall, 1), round(step - 1, 1), tall))
    return found


def stacked(parts: Mapping[str, int], width: int = 1000, height: int = 8, gap: int = 3) -> list[Part]:
    """A bar of these parts in their order; even the smallest can be seen."""
    whole = sum(parts.values())
    found, x = list[Part](), 0.0
    for kind, count in parts.items():
        if count and whole:
            wide = max(2.5, width * count / whole)
            found.append(Part(kind, round(x, 1), 0, round(max(1.0, min(wide, width - x) - gap), 1), height))
            x = min(width - 2.5, x + wide)
    return found


class Ending(NamedTuple):
    """Where the present and the range of an end are on a line that begins with the start."""

    now: float
    earliest: float
    latest: float


def ending(started: int, now: int, earliest: int, latest: int | None, width: int = 372) -> Ending:
    """The line ends with the latest end; without one, a quarter of it is for what is not known."""
    until = latest if latest is not None else earliest + (earliest - started) // 3
    whole = max(1, until - started)
    places = [round(width * max(0, at - started) / whole, 1) for at in (now, earliest, until)]
    return Ending(*places)


def cells(conditions: Sequence[str], width: float = 7.3, height: int = 16, gap: float = 2) -> tuple[float, list[Part]]:
    """One cell for each member, and how wide all are."""
    found = []
    for place, kind in enumerate(conditions):
        x = round(place * (width + gap), 1)
        half = height // 2 if kind == "resting" else 0
        inset = 0.5 if kind == "disabled" else 0
        found.append(Part(kind, x + inset, half + inset, width - 2 * inset, height - half - 2 * inset))
    return round(max(0.0, len(conditions) * (width + gap) - gap), 1), found


def broken(values: Values, top: float, width: int, height: int) -> str:
    """A line with a gap where nothing was measured; a value between two gaps is a dot."""
    parts, going = list[str](), False
    for (x, y), value in zip(_points(_filled(values), top, width, height), values, strict=True):
        if value is not None:
            parts.append(f"{'L' if going else 'M'}{x:g} {y:g}" + ("" if going else "h0"))
        going = value is not None
    return " ".join(parts)


def _filled(values: Values) -> list[float]:
    last, found = 0.0, []
    for value in values:
        last = last if value is None else float(value)
        found.append(last)
    return found


def _smooth(values: Sequence[float]) -> list[float]:
    """The mean of three neighbours: single tasks look like noise otherwise."""
    return [sum(part) / len(part) for place in range(len(values)) if (part := values[max(0, place - 1) : place + 2])]


def _points(values: Sequence[float], top: float, width: int, height: int) -> list[tuple[float, float]]:
    step = width / max(1, len(values) - 1)
    low, high = height - 1.5, 2.0
    return [
        (round(place * step, 1), round(low - (low - high) * value / top if top else low, 1))
        for place, value in enumerate(values)
    ]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
