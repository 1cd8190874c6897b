"""The store's tables and their version: numbered changes, each applied exactly once however many processes open it."""

import re
from collections.abc import Mapping

from psycopg.sql import Literal

from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.model.errors import SchemaMismatch

_VALUE = re.compile(r"%\((\w+)\)s")
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('pitboss migrations of ' || %(schema)s, 0))"
_KNOWN = "SELECT to_regclass(%(table)s) IS NOT NULL"
_TABLE = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version bigint PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


def version(sql: Statements) -> Script[int]:
    """The version that the store has; 0 if it has no tables yet."""
    ((known,),) = yield Ask(_KNOWN, {"table": f"{sql.quoted}.migrations"})
    if not known:
        return 0
    ((newest,),) = yield Ask(f"SELECT coalesce(max(version), 0) FROM {sql.quoted}.migrations", {})
    found: int = newest
    return found


def wanted(sql: Statements) -> int:
    return max(_number(name) for name in sql.migrations())


def upgrade(sql: Statements) -> Script[list[str]]:
    """Apply what is missing, within one transaction; names of what was applied. Refuses a newer store."""
    yield Ask(_LOCK, {"schema": sql.schema})
    yield Ask(_TABLE.strip().replace("{schema}", sql.quoted))
    found = yield from version(sql)
    check(found, wanted(sql))
    applied = []
    for name, text in sql.migrations().items():
        if _number(name) > found:
            yield Ask(text.strip().removesuffix(";"))
            insert = f"INSERT INTO {sql.quoted}.migrations (version, name) VALUES (%(version)s, %(name)s)"
            yield Ask(insert, {"version": _number(name), "name": name})
            applied.append(name)
    return applied


def check(found: int, known: int) -> None:
    if found > known:
        raise SchemaMismatch(
            f"the store has schema version {found}, this release knows versions up to {known}",
            why="a newer release of Pitboss has opened this store",
            fix="upgrade Pitboss on this machine, or use another schema for this release",
        )


def upgrade_script(schema: str = "pitboss", since: int = 0) -> str:
    """The SQL that `upgrade` would run on a store of version `since`, for people to read and run themselves."""
    printed: list[str] = []
    changes = upgrade(Statements(schema, ""))
    answer: list[Row] = []
    try:
        while True:
            ask = changes.send(answer) if printed else next(changes)
            answer = _assumed(ask.sql, since)
            printed.append("" if _is_question(ask.sql) else f"{_with_literals(ask)};")
    except StopIteration as end:
        if not end.value:
            return ""
    return "\n\n".join(["BEGIN;", *(text for text in printed if text), "COMMIT;\n"])


def _is_question(text: str) -> bool:
    return text.startswith(("SELECT to_regclass", "SELECT coalesce"))


def _assumed(text: str, since: int) -> list[Row]:
    """What a store of that version would answer."""
    if text.startswith("SELECT to_regclass"):
        return [(True,)]
    return [(since,)] if text.startswith("SELECT coalesce") else []


def _with_literals(ask: Ask) -> str:
    values = ask.values if isinstance(ask.values, Mapping) else {}
    return _VALUE.sub(lambda match: Literal(values[match[1]]).as_string(), ask.sql.strip())


def _number(name: str) -> int:
    return int(name.split("_", maxsplit=1)[0])
