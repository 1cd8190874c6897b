"""The text of a cron schedule as terms: what is written in a field, checked and in one spelling."""

import re
from typing import NamedTuple

from pitboss.model.errors import InvalidInput

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST = 1000
_TERM = re.compile(r"(?:(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
_WEEKDAY_OF_MONTH = re.compile(r"(?P<day>\d+|[A-Z]{3})(?P<which>L|#[1-5])")


class Term(NamedTuple):
    """Values from `first` to `last` by `step`; or `special`, a day whose number differs from month to month."""

    first: int
    last: int
    step: int = 1
    star: bool = False
    special: str = ""

    @property
    def values(self) -> range:
        return range(0) if self.special else range(self.first, self.last + 1, self.step)

    @property
    def text(self) -> str:
        if self.special:
            return self.special
        base = "*" if self.star else f"{self.first}-{self.last}" if self.last > self.first else f"{self.first}"
        return f"{base}/{self.step}" if self.step > 1 else base


Terms = tuple[Term, ...]


class Fields(NamedTuple):
    second: Terms
    minute: Terms
    hour: Terms
    day: Terms
    month: Terms
    weekday: Terms

    @property
    def text(self) -> str:
        """The one spelling of this schedule: seconds only if they are not 0."""
        parts = [",".join(term.text for term in terms) for terms in self]
        return " ".join(parts[1:] if parts[0] == "0" else parts)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # of `low` and the values after it

    def value(self, text: str) -> int:
        if text in self.names:
            return self.low + self.names.index(text)
        if not text.isdigit():
            raise ValueError(f'"{text:.20}" is not a {self.name}')
        if not self.low <= int(text) <= self.high:
            raise ValueError(f"{self.name} {text:.20} is not between {self.low} and {self.high}")
        return int(text)


_DAY = _Field("day of month", 1, 31)
_WEEKDAY = _Field("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _DAY,
    _Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    _WEEKDAY,
)


def fields(text: str) -> Fields:
    """The terms of each field; refuses text that is no schedule."""
    try:
        return _fields(text)
    except ValueError as error:
        raise bad_cron(text, str(error)) from None


def bad_cron(text: str, why: str, fix: str = "") -> InvalidInput:
    form = 'write "minute hour day-of-month month day-of-week", such as "30 6 * * 1-5"; seconds may come first'
    return InvalidInput(f"{text!r:.80} is not a cron schedule", why=why, fix=fix or form)


def starred(terms: Terms) -> bool:
    """Written with a `*`, alone or with a step."""
    return any(term.star for term in terms)


def unrestricted(terms: Terms) -> bool:
    return any(term.star and term.step == 1 for term in terms)


def values(terms: Terms) -> list[int]:
    return sorted({value for term in terms for value in term.values})


def _fields(text: str) -> Fields:
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} characters")
    if not text.isascii():
        raise ValueError("it has characters other than ASCII")
    parts = text.upper().split()
    if parts and parts[0].startswith("@"):
        parts = _alias(text).split()
    if len(parts) == len(_FIELDS) - 1:
        parts.insert(0, "0")
    if len(parts) != len(_FIELDS):
        raise ValueError(f"it has {len(parts)} fields, not 5 or 6")
    return Fields(*(_terms(field, part) for field, part in zip(_FIELDS, parts, strict=True)))


def _alias(text: str) -> str:
    try:
        return ALIASES[text.strip().lower()]
    except KeyError:
        raise ValueError(f"the aliases are {', '.join(ALIASES)}") from None


def _terms(field: _Field, text: str) -> Terms:
    """The terms of a field in order, without those that add nothing: a `*` has a meaning beyond its values."""
    found = {_term(field, part) for part in text.split(",")}
    if unrestricted(tuple(found)):
        return (_term(field, "*"),)
    kept: list[Term] = []
    for term in sorted(found, key=lambda term: (-len(term.values), not term.star, term)):
        others = [set(other.values) for other in kept if other.star or not term.star]
        if term.special or not any(other.issuperset(term.values) for other in others):
            kept.append(term)
    return tuple(sorted(kept, key=lambda term: (not term.star, bool(term.special), term)))


def _term(field: _Field, text: str) -> Term:
    if field is _DAY and text in ("L", "LW"):
        return Term(field.high, field.high, special=text)
    if field is _WEEKDAY and (match := _WEEKDAY_OF_MONTH.fullmatch(text)):
        day = field.value(match["day"]) % 7
        return Term(day, day, special=f"{day}{match['which']}")
    match = _TERM.fullmatch(text)
    if not match:
        raise ValueError(f'"{text:.20}" is not a {field.name}')
    return _range(field, match)


def _range(field: _Field, match: re.Match[str]) -> Term:
    first, last, step = field.low, field.high, int(match["step"] or 1)
    if match["star"]:
        last -= field is _WEEKDAY  # 7 is Sunday again
    else:
        first = field.value(match["first"])
        last = field.value(match["last"]) if match["last"] else last if match["step"] else first
    if first > last:
        raise ValueError(f'the range "{match[0]:.20}" goes backwards')
    # cronsim takes */90 for */60, and 5-5/10 for 5-59/10.
    if not 1 <= step <= last - first + 1:
        raise ValueError(f'the step in "{match[0]:.20}" is not between 1 and {last - first + 1}')
    if match["star"]:
        return Term(first, last, step, star=True)
    last = range(first, last + 1, step)[-1]
    if field is _WEEKDAY and last == _WEEKDAY.high and (first == last or (first, step) == (0, 1)):
        first, last = (0, 0) if first == last else (0, 6)
    return Term(first, last, step if last > first else 1)
