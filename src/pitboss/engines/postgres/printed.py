"""The migrations as a script that a person can read, and run in place of `upgrade`."""

import re
from collections.abc import Mapping

from psycopg import sql

from pitboss.engines.postgres.schema import upgrade
from pitboss.engines.postgres.script import Ask, Row, Statements

_VALUE = re.compile(r"%\((\w+)\)s")


def script(schema: str = "pitboss", since: int = 0) -> str:
    """What brings a store of version `since` to the current one: the statements that `upgrade` itself would run."""
    asked: list[str] = []
    changes = upgrade(Statements(schema, ""))
    answer: list[Row] = []
    try:
        while True:
            ask = changes.send(answer) if asked else next(changes)
            answer = _answer(ask.sql, since)
            asked.append("" if _is_question(ask.sql) else f"{_literal(ask)};")
    except StopIteration as end:
        if not end.value:
            return ""
    return "\n\n".join(["BEGIN;", *(text for text in asked if text), "COMMIT;\n"])


def _is_question(text: str) -> bool:
    return text.startswith(("SELECT to_regclass", "SELECT coalesce"))


def _answer(text: str, since: int) -> list[Row]:
    if text.startswith("SELECT to_regclass"):
        return [(True,)]
    return [(since,)] if text.startswith("SELECT coalesce") else []


def _literal(ask: Ask) -> str:
    values = ask.values if isinstance(ask.values, Mapping) else {}
    return _VALUE.sub(lambda match: sql.Literal(values[match[1]]).as_string(), ask.sql.strip())
