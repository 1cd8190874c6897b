"""Filters as SQL for SQLite."""

import re

from pitboss.engines.sqlfilter import Condition, Dialect, condition
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.states import State

# Keys that need no escaping in a quoted path.
_PLAIN_KEY = re.compile(r'[^"\\\x00-\x1f\x7f]*')
# The index that holds exactly the tasks of a state. Completed tasks have none: nearly all tasks are completed.
STATE_INDEXES = {
    State.HELD: "pitboss_tasks_held",
    State.SCHEDULED: "pitboss_tasks_scheduled",
    State.PENDING: "pitboss_tasks_pending",
    State.RUNNING: "pitboss_tasks_running",
    State.FAILED: "pitboss_tasks_failed",
    State.CANCELLED: "pitboss_tasks_cancelled",
}


def matching(wanted: Filter, now: Moment) -> Condition:
    """The condition that holds for exactly the tasks that match."""
    return condition(wanted, now, _SQLITE)


def names_ids(wanted: Filter) -> bool:
    """The filter lists ids: the primary key finds its tasks best."""
    return any(term.field == "id" and not term.negated and "*" not in "".join(term.values) for term in wanted.terms)


def names_batches(wanted: Filter) -> bool:
    """The filter lists batches: the index of items finds them best."""
    return any(term.field == "batch" and not term.negated and "*" not in "".join(term.values) for term in wanted.terms)


def _pattern(glob: str) -> str:
    """Only `*` is special in our globs; in SQLite's also `?` and `[`."""
    return glob.replace("[", "[[]").replace("?", "[?]")


def _json_at(column: str, path: tuple[str, ...]) -> tuple[str, list[str]]:
    if all(_PLAIN_KEY.fullmatch(key) for key in path):
        return f"({column} -> ?)", ["$" + "".join(f'."{key}"' for key in path)]
    return _json_at_odd_keys(column, path)


def _json_at_odd_keys(column: str, path: tuple[str, ...]) -> tuple[str, list[str]]:
    """SQLite's paths cannot express every key, so these are looked up one by one."""
    inside = column
    for _ in path[:-1]:
        inside = f"(SELECT CASE type WHEN 'object' THEN value END FROM json_each({inside}) WHERE key = ?)"
    text = (
        "CASE type WHEN 'text' THEN json_quote(value) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'"
        " WHEN 'null' THEN 'null' ELSE CAST(value AS TEXT) END"
    )
    return f"(SELECT {text} FROM json_each({inside}) WHERE key = ?)", list(path)


_SQLITE = Dialect(
    param="?",
    like=lambda column: f"{column} GLOB ?",
    pattern=_pattern,
    contains=lambda column: f"instr({column}, ?) > 0",
    json_at=_json_at,
    json_text=lambda column, name: f"{column} ->> '$.{name}'",
    tag_matches=lambda test: f"EXISTS (SELECT 1 FROM json_each(tags) WHERE {test})",
    greatest="max",
)
