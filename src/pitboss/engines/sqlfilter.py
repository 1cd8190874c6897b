"""A filter as an SQL condition. The SQL engines share this; a `Dialect` says what differs between them."""

from collections.abc import Callable
from typing import NamedTuple

from pitboss.model.duration import Moment
from pitboss.model.filter import NUMBER_FIELDS, Filter, Term, json_candidates
from pitboss.model.matching import id_bound

_COLUMNS = {"task": "handler", "key": "unique_key", "order": "order_key"}
_WAITED = (
    "CASE WHEN started_at IS NOT NULL THEN {greatest}(0, started_at - {due})"
    " WHEN state = 'pending' THEN {now} - {due} END"
)
_RAN = (
    "CASE WHEN state = 'running' THEN {now} - started_at WHEN started_at IS NOT NULL THEN finished_at - started_at END"
)
# How an age is compared, and so the moment at which it began; the second one is for the negation.
_SINCE = {"<": (">", "<="), "<=": (">=", "<"), ">": ("<", ">="), ">=": ("<=", ">")}


class Dialect(NamedTuple):
    """How one database writes what differs. `like(column)` and `contains(column)` take one parameter."""

    param: str
    like: Callable[[str], str]
    pattern: Callable[[str], str]
    contains: Callable[[str], str]
    json_at: Callable[[str, tuple[str, ...]], tuple[str, list[str]]]
    json_text: Callable[[str, str], str]
    tag_matches: Callable[[str], str]
    greatest: str


class Condition(NamedTuple):
    """SQL text and the values of its parameters, in order."""

    sql: str
    values: list[object]


def condition(wanted: Filter, now: Moment, dialect: Dialect) -> Condition:
    """The condition that is true for exactly the tasks that `model.matching` says match."""
    parts = [_term(term, now, dialect) for term in wanted.terms]
    sql = " AND ".join(part.sql for part in parts) or "1 = 1"
    return Condition(sql, [value for part in parts for value in part.values])


def finished_bound(term: Term, now: Moment) -> tuple[str, Moment]:
    """The comparison of `finished_at` that a term `finished` is, in a form that an index serves."""
    return _SINCE[term.op][term.negated], now - term.number


def _term(term: Term, now: Moment, dialect: Dialect) -> Condition:
    if term.op != "in":
        return _compared(term, now, dialect)
    plain = _membership(term, dialect)
    # NULL counts as false. Without negation SQL does that itself, and the bare condition can use an index.
    sql = f"NOT coalesce(({plain.sql}), 1 = 0)" if term.negated else f"({plain.sql})"
    return Condition(sql, plain.values)


def _membership(term: Term, dialect: Dialect) -> Condition:
    if term.field == "args":
        return _json(term, dialect)
    if term.field == "text":
        columns = (
            "handler",
            "params",
            "coalesce(reason, '')",
            f"coalesce({dialect.json_text('error', 'message')}, '')",
        )
        return Condition(" OR ".join(dialect.contains(column) for column in columns), [term.values[0]] * len(columns))
    if term.field in NUMBER_FIELDS:
        places = ", ".join([dialect.param] * len(term.values))
        return Condition(f"{term.field} IN ({places})", [int(value) for value in term.values])
    return _text(term, dialect)


def _text(term: Term, dialect: Dialect) -> Condition:
    """Plain values become one list, which may be long; globs are tested one by one."""
    plain = [value for value in term.values if "*" not in value]
    globs = [dialect.pattern(value) for value in term.values if "*" in value]
    places = ", ".join([dialect.param] * len(plain))
    parts: list[Condition] = []
    for column in _columns(term.field, dialect):
        bare = f"CAST({column} AS TEXT)" if column in ("id", "parent") else column
        tests = [Condition(f"{column} IN ({places})", [*plain])] if plain else []
        tests += [Condition(dialect.like(bare), [glob]) for glob in globs]
        parts += (
            [Condition(dialect.tag_matches(test.sql), test.values) for test in tests] if term.field == "tag" else tests
        )
    return _any(parts)


def _columns(field: str, dialect: Dialect) -> list[str]:
    if field == "tag":
        return ["value"]
    if field == "error":
        return [dialect.json_text("error", name) for name in ("type", "category")]
    return [_COLUMNS.get(field, field)]


def _any(parts: list[Condition]) -> Condition:
    """Join by halves: databases limit the depth of an expression, and a plain chain is as deep as it is long."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    left, right = _any(parts[:middle]), _any(parts[middle:])
    return Condition(f"({left.sql} OR {right.sql})", [*left.values, *right.values])


def _json(term: Term, dialect: Dialect) -> Condition:
    expression, path = dialect.json_at("params", term.path)
    candidates = [text for value in term.values for text in json_candidates(value)]
    places = ", ".join([dialect.param] * len(candidates))
    return Condition(f"{expression} IN ({places})", [*path, *candidates])


def _compared(term: Term, now: Moment, dialect: Dialect) -> Condition:
    if term.field == "age":
        op, bound = id_bound(term, now)
        return Condition(f"id {op} {dialect.param}", [bound])
    if term.field == "finished":
        since, moment = finished_bound(term, now)
        return Condition(f"finished_at {since} {dialect.param}", [moment])
    column = term.field
    if column == "wait":
        due = f"{dialect.greatest}(coalesce(run_at, created_at), created_at)"
        column = f"({_WAITED.format(due=due, now=now, greatest=dialect.greatest)})"
    elif column == "ran":
        column = f"({_RAN.format(now=now)})"
    no = "NOT " if term.negated else ""
    return Condition(f"({column} IS NOT NULL AND {no}{column} {term.op} {dialect.param})", [term.number])
