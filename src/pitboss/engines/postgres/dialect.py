"""How PostgreSQL writes what a filter leaves open."""

import msgspec

from pitboss.engines.postgres.rows import known_id
from pitboss.engines.sqlfilter import Condition, Dialect, condition
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter, Term

_NO_TASK = "00000000-0000-0000-0000-000000000000"


def compiled(wanted: Filter, now: Moment) -> Condition:
    """The filter as a condition on the table of tasks."""
    return condition(possible(wanted), now, DIALECT)


def possible(wanted: Filter) -> Filter:
    """The same filter with ids that the columns of ids can be compared with."""
    return Filter(tuple(_with_possible_ids(term) for term in wanted.terms))


def _with_possible_ids(term: Term) -> Term:
    """A text that is no id matches no task; the column's type would refuse it instead."""
    if term.field not in ("id", "parent"):
        return term
    values = tuple(value if "*" in value or known_id(value) else _NO_TASK for value in term.values)
    return msgspec.structs.replace(term, values=values)


def _pattern(glob: str) -> str:
    escaped = glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def _json_at(column: str, path: tuple[str, ...]) -> tuple[str, list[str]]:
    return f"({column}::json{' -> %s::text' * len(path)})::text", list(path)


DIALECT = Dialect(
    param="%s",
    like=lambda column: f"{column} LIKE %s",
    pattern=_pattern,
    contains=lambda column: f"strpos({column}, %s) > 0",
    json_at=_json_at,
    json_text=lambda column, name: f"({column}::json ->> '{name}')",
    tag_matches=lambda test: f"EXISTS (SELECT FROM unnest(tags) AS each (value) WHERE {test})",
    greatest="greatest",
)
