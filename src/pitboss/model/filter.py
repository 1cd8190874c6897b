"""One grammar to select tasks, for command line, web, API and code.

    state:failed queue:scrape task:fetch* tag:eu args.shop.id:123 error:ConnectTimeout attempts:>2 -tag:test "text"

White space joins terms (all must match), a comma means "or" within one field, a leading minus means "not", `*` stands
for any characters, quotes keep text together. Words without a field are searched in handler, params, reason and error
message.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from pitboss.model.canonical import to_json
from pitboss.model.duration import Span, span, spoken
from pitboss.model.errors import InvalidInput
from pitboss.model.states import State

Op = Literal["in", "<", "<=", ">", ">="]
TEXT_FIELDS: Final = (
    "id",
    "state",
    "queue",
    "task",
    "tag",
    "worker",
    "parent",
    "error",
    "fingerprint",
    "reason",
    "key",
    "batch",
    "resource",
    "partition",
    "order",
)
NUMBER_FIELDS: Final = ("attempts", "priority", "progress", "losses", "session")
SPAN_FIELDS: Final = ("age", "wait", "ran", "finished")
MAX_TERMS: Final = 50
_TOO_LARGE: Final = 2**63
_TERM = re.compile(
    r'(?P<minus>-?)(?:(?P<field>[A-Za-z_]+)(?P<path>(?:\.[^\s:".]+)*):)?(?P<rest>(?:"(?:[^"\\]|\\.)*"|[^\s"])+)'
)
_EMPTY = re.compile(r'[A-Za-z_]+(?:\.[^\s:".]+)*:')
_VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,"]+)|,')
_OPS: Final[dict[str, Op]] = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PLAIN = re.compile(r"[\w.*@:/-]+")
_COMPARED = re.compile(r"(<=|>=|<|>)(.+)\Z")


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One condition. Text values are globs for text fields; number and span fields hold one whole number."""

    field: str
    op: Op = "in"
    values: tuple[str, ...] = ()
    number: int = 0
    path: tuple[str, ...] = ()
    negated: bool = False


class Filter(msgspec.Struct, frozen=True):
    """A conjunction of terms; empty matches every task."""

    terms: tuple[Term, ...] = ()

    def states(self) -> frozenset[State]:
        """The states that can match: lets an engine choose an index."""
        return frozenset(state for state in State if self.admits("state", state))

    def admits(self, field: str, *texts: str) -> bool:
        """Whether all terms of this text field are true of a task that has these texts there."""
        terms = (term for term in self.terms if term.field == field)
        return all(any(glob(value, text) for value in term.values for text in texts) != term.negated for term in terms)

    def named(self, field: str) -> tuple[str, ...] | None:
        """The values that a task must have in this field, if a term lists them without `*`."""
        for term in self.terms:
            if term.field == field and term.op == "in" and not term.negated and "*" not in "".join(term.values):
                return tuple(dict.fromkeys(term.values))
        return None

    def also(self, **fields: str | Iterable[str]) -> "Filter":
        """This filter narrowed by exact values, as in `parsed(text).also(state="failed")`."""
        return Filter(self.terms + by(**fields).terms)


EVERYTHING: Final = Filter()


class Count(NamedTuple):
    """How many tasks match. `more`: others may match too, which were not looked at."""

    number: int = 0
    more: bool = False

    def __str__(self) -> str:
        return f"{self.number:,}{'+' * self.more}"


def by(**fields: str | Iterable[str]) -> Filter:
    """A filter made in code: `by(state="failed", queue=["a", "b"])`."""
    return Filter(
        tuple(
            _checked(Term(field=field, values=(values,) if isinstance(values, str) else tuple(values)), field)
            for field, values in fields.items()
        )
    )


def parsed(text: str) -> Filter:
    """The filter that the text describes, or `InvalidInput` that names the word it could not read."""
    terms: list[Term] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TERM.match(text, position)
        if not match or (match.end() < len(text) and not text[match.end()].isspace()):
            raise _unreadable(text[position : position + 40], "quotes must be closed, and a field needs a value")
        terms.append(_term(match))
        position = match.end()
    if len(terms) > MAX_TERMS:
        raise InvalidInput(f"the filter has {len(terms)} terms", why=f"at most {MAX_TERMS} are read", fix="shorten it")
    return Filter(tuple(terms))


def written(wanted: Filter) -> str:
    """The filter as text that `parsed` reads again."""
    return " ".join(map(_written, wanted.terms))


def glob(pattern: str, text: str) -> bool:
    """Every piece between two * is taken where it is found first, so that no pattern is slow."""
    first, *middle = pattern.split("*")
    if not middle:
        return pattern == text
    last = middle.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def json_candidates(value: str) -> tuple[str, ...]:
    """The canonical texts that a written params value may mean: a string, or also a number, true, false or null."""
    quoted = to_json(value)
    return (quoted, value) if re.fullmatch(r"-?\d+(\.\d+)?|true|false|null", value) else (quoted,)


def _written(term: Term) -> str:
    minus = "-" if term.negated else ""
    if term.field == "text":
        return minus + _quoted(term.values[0])
    field = ".".join((term.field, *term.path))
    if term.op != "in":
        number = _spoken(term.number) if term.field in SPAN_FIELDS else term.number
        return f"{minus}{field}:{term.op}{number}"
    return f"{minus}{field}:{','.join(one if _PLAIN.fullmatch(one) else _quoted(one) for one in term.values)}"


def _spoken(value: Span) -> str:
    text = spoken(value)
    return text if span(text) == value else f"{value}us"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _term(match: re.Match[str]) -> Term:
    field, negated = match["field"], bool(match["minus"])
    rest = match["rest"]
    if field is None and _EMPTY.fullmatch(rest):
        raise _unreadable(match[0], 'a field needs a value; quotes make it plain text, as in "word:"')
    if field is None:
        return Term(field="text", values=(_joined(rest),), negated=negated)
    path = tuple(match["path"].split(".")[1:])
    compared = _COMPARED.match(rest)
    if compared and field in NUMBER_FIELDS + SPAN_FIELDS:
        op, number = _OPS[compared[1]], _number(field, compared[2])
        return _checked(Term(field=field, op=op, number=number, path=path, negated=negated), match[0])
    term = Term(field=field, values=tuple(_values(rest)), path=path, negated=negated)
    return _checked(term, match[0])


def _checked(term: Term, written: str) -> Term:
    if term.field == "args":
        if not term.path:
            raise _unreadable(written, "args needs a path, such as args.shop.id:123")
        return term
    if term.path:
        raise _unreadable(written, "only args has a path")
    if term.field in NUMBER_FIELDS + SPAN_FIELDS:
        return _checked_number(term, written)
    if term.field not in TEXT_FIELDS and term.field != "text":
        known = ", ".join((*TEXT_FIELDS, *NUMBER_FIELDS, *SPAN_FIELDS, "args.<path>"))
        raise _unreadable(written, f'there is no field "{term.field}"; the fields are {known}')
    if term.field == "state":
        for value in term.values:
            if value not in State.__members__.values() and "*" not in value:
                raise _unreadable(written, f"the states are {', '.join(State)}")
    if not term.values:
        raise _unreadable(written, "a field needs a value")
    return term


def _checked_number(term: Term, written: str) -> Term:
    if term.op != "in":
        return term
    if term.field in SPAN_FIELDS or not all(re.fullmatch(r"-?\d+", value) for value in term.values):
        raise _unreadable(written, f"{term.field} is compared, as in {term.field}:>5")
    # Canonical numbers: "007" means 7 on every engine.
    numbers = tuple(str(_number(term.field, value)) for value in term.values)
    return msgspec.structs.replace(term, values=numbers)


def _number(field: str, text: str) -> int:
    if field in SPAN_FIELDS:
        return span(text, what=field)
    try:
        number = int(text)
    except ValueError:
        raise _unreadable(text, f"{field} is compared with a whole number") from None
    if abs(number) >= _TOO_LARGE:
        raise _unreadable(text, "the number is larger than any store can compare")
    return number


def _values(rest: str) -> Iterable[str]:
    for match in _VALUE.finditer(rest):
        if match[0] != ",":
            yield _joined(match[0])


def _joined(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return re.sub(r"\\(.)", r"\1", text)


def _unreadable(written: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"the filter cannot be read at {written!r:.60}",
        why=why,
        fix='write it like: state:failed queue:scrape task:fetch* attempts:>2 age:<1h -tag:test "some text"',
    )
