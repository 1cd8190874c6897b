"""Values as people read them."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

from pitboss.model.duration import SECOND, Moment, Span, spoken

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MINUTE = 60 * SECOND
_HIDDEN = "***"
_SHORT = 12


def clean(text: str) -> str:
    """Text from a store made safe for a terminal: control characters are shown, not obeyed."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def one_line(text: str, limit: int = 200) -> str:
    """The first line, cut if it is long."""
    line = clean(text.strip().partition("\n")[0])
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def ago(moment: Moment | None, now: Moment) -> str:
    """How long a moment is past, or how far away it is."""
    if moment is None:
        return ""
    distance = now - moment
    if abs(distance) < SECOND:
        return "now"
    return f"{spoken(distance)} ago" if distance > 0 else f"in {spoken(-distance)}"


def age(moment: Moment | None, now: Moment) -> str:
    """As `ago`, for a column that is headed Age."""
    return "" if moment is None else spoken(max(now - moment, SECOND)) if now - moment >= SECOND else "0s"


def took(span: Span | None) -> str:
    """How long something ran."""
    if span is None:
        return ""
    if span >= _MINUTE:
        return spoken(span)
    return f"{span / SECOND:.1f}s" if span >= SECOND else f"{span / 1000:.0f}ms"


def local(moment: Moment) -> str:
    """A moment on this machine's clock."""
    return datetime.fromtimestamp(moment / SECOND, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def utc(moment: Moment | None) -> str | None:
    """A moment for programs: RFC 3339 in UTC."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short(number: str) -> str:
    """As much of an id as a person needs to name it."""
    return number[-_SHORT:]


def close_to(word: str, known: Iterable[str]) -> str | None:
    """The one that was probably meant."""
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def masked(url: str) -> str:
    """A store's URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    name, _, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{name.partition(':')[0]}:{_HIDDEN}@{place}"))
