"""Numbers, times and names as pages show them. The browser turns moments into the viewer's time (static/app.js)."""

import json
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from markupsafe import Markup, escape

from pitboss.model.duration import SECOND, Moment, Span

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SOON, _FIELDS = 10, 8
_LONGEST_PARAMS = 20_000
_THOUSAND, _TENTH = 1000, 0.1
_NEARLY, _WHOLE = 99.9, 100
_NOTHING = 0.0005
# Of rates, each with the least that is said in it.
_UNITS = ((1, "s", 1), (_MINUTE, "min", _TENTH), (_HOUR, "h", 0.0))


def number(value: float | None) -> str:
    """ "18,896", "1.27M"; a dash means "does not apply"."""
    if value is None:
        return "–"
    if value >= _THOUSAND * _THOUSAND:
        return f"{value / 1e6:.3g}M"
    return f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """ "0.3 s", "4.1 s", "88 s", "14m 33s", "3h 46m", "2h"."""
    if value is None:
        return "–"
    if value < _NOTHING:
        return "0 s"
    if value < 1:
        return f"{value * 1000:.0f} ms" if value < _TENTH else f"{value:.1f} s"
    if value < _SOON:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    for unit, name, below, small in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit}{name} {rest:02d}{small}" if rest else f"{whole // unit}{name}"
    return f"{whole} s"


def span(value: Span | None) -> str:
    """A span of the store as `seconds` says it."""
    return seconds(None if value is None else value / SECOND)


def rate(per_second: float | None, beside: float | None = 0.0) -> str:
    """ "21.1/s", "1.1/min", "0". In the unit of the larger one if another stands beside it."""
    if per_second is None:
        return "–"
    if per_second <= 0:
        return "0"
    largest = max(per_second, beside or 0.0)
    times, unit = next(
        ((times, unit) for times, unit, least in _UNITS if largest * times >= least), (_UNITS[-1][0], _UNITS[-1][1])
    )
    value = per_second * times
    if value >= _THOUSAND:
        return f"{value:,.0f}/{unit}"
    return f"{value:.1f}/{unit}" if value >= _TENTH else f"{value:.1g}/{unit}"


def size(value: int | None) -> str:
    """ "212 MB", "2.1 GB"."""
    if not value:
        return "–"
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}" if unit == 1 << 30 else f"{value / unit:.0f} {name}"
    return f"{value} B"


def percent(part: float, whole: float) -> str:
    """ "0.4 %"; never 0 % or 100 % of what is not quite that."""
    if not whole:
        return "–"
    share = 100 * part / whole
    if 0 < share < 1:
        return f"{max(share, _TENTH):.1f} %"
    return "99.9 %" if _NEARLY < share < _WHOLE else f"{share:.0f} %"


def moment(at: Moment | None, form: str = "clock") -> Markup:
    """A <time>, in UTC. `form` is what the browser makes of it: "clock", "date" (with the day), or "ago"; "step" is a
    date for narrow columns."""
    if at is None:
        return Markup("–")
    stamp = datetime.fromtimestamp(at / SECOND, UTC)
    text = {"clock": f"{stamp:%H:%M}", "step": f"{stamp:%d %b %H:%M:%S}"}.get(form, f"{stamp:%Y-%m-%d %H:%M:%S} UTC")
    form = "date" if form == "step" else form
    return Markup('<time datetime="{}" data-t="{}" title="{} UTC">{}</time>').format(
        stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"), form, f"{stamp:%Y-%m-%d %H:%M:%S}", text
    )


def ago(at: Moment | None, now: Moment) -> Markup:
    """ "6 s ago", "now" or "in 28 s", with the moment in its tooltip."""
    if at is None:
        return Markup("–")
    stamp = datetime.fromtimestamp(at / SECOND, UTC)
    whole = round(abs(now - at) / SECOND)
    distance = f"{whole} s" if whole < _SOON else seconds(whole)
    said = "now" if not whole else f"{distance} ago" if at <= now else f"in {distance}"
    return Markup('<time datetime="{}" data-t="ago" title="{} UTC">{}</time>').format(
        stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"), f"{stamp:%Y-%m-%d %H:%M:%S}", escape(said)
    )


def short(task_id: str) -> str:
    """The end of an id: its beginning is a time, which many share."""
    return task_id[-12:]


def pretty(text: str | None) -> str:
    """JSON on several lines. A long text is cut."""
    found = text or ""
    if len(found) <= _LONGEST_PARAMS:
        with suppress(msgspec.DecodeError):
            found = msgspec.json.format(found, indent=2)
    return found if len(found) <= _LONGEST_PARAMS else f"{found[:_LONGEST_PARAMS]}\n… {len(found):,} characters"


def params(text: str, most: int = 120) -> str:
    """The parameters of a task on one line: url="https://…", page=2. Longer ones are cut."""
    try:
        found = json.loads(text[:_LONGEST_PARAMS])
    except ValueError:
        return text[:most]
    if not isinstance(found, dict):
        return text[:most]
    said = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in list(found.items())[:_FIELDS])
    return said if len(said) <= most else f"{said[: most - 1]}…"
