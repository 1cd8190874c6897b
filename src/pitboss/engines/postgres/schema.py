"""The store's tables and their version: numbered changes, each applied exactly once however many processes open it."""

from pitboss.engines.postgres.script import Ask, Script, Statements
from pitboss.model.errors import SchemaMismatch

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


def version(say: Statements) -> Script[int]:
    """The version that the store has; 0 if it has no tables yet."""
    ((known,),) = yield Ask(_KNOWN, {"table": f"{say.quoted}.migrations"})
    if not known:
        return 0
    ((newest,),) = yield Ask(f"SELECT coalesce(max(version), 0) FROM {say.quoted}.migrations", {})
    found: int = newest
    return found


def wanted(say: Statements) -> int:
    return max(_number(name) for name in say.migrations())


def upgrade(say: Statements) -> Script[list[str]]:
    """Apply what is missing, within one transaction; names of what was applied. Refuses a newer store."""
    yield Ask(_LOCK, {"schema": say.schema})
    yield Ask(_TABLE.strip().replace("{schema}", say.quoted))
    found = yield from version(say)
    check(found, wanted(say))
    applied = []
    for name, text in say.migrations().items():
        if _number(name) > found:
            yield Ask(text.strip().removesuffix(";"))
            insert = f"INSERT INTO {say.quoted}.migrations (version, name) VALUES (%(version)s, %(name)s)"
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


def _number(name: str) -> int:
    return int(name.split("_", maxsplit=1)[0])
