"""The tables and their version.

The file may hold the user's own tables too, so that tasks can be put in the same transaction: every name of ours begins
with `pitboss_`, and the number of the last migration is in a table, not in the file's one `user_version`.
"""

import sqlite3
from collections.abc import Iterator

from pitboss.engines.statements import load
from pitboss.model.errors import SchemaMismatch

MIGRATIONS = "pitboss.engines.sqlite.migrations"


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and text of every migration, in order."""
    return [(int(name[:4]), name, text) for name, text in sorted(load(MIGRATIONS).items())]


def stored_version(connection: sqlite3.Connection) -> int:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'pitboss_meta'").fetchone():
        return 0
    row = connection.execute("SELECT value FROM pitboss_meta WHERE name = 'schema'").fetchone()
    return int(row[0]) if row else 0


def wanted_version() -> int:
    return migrations()[-1][0]


def upgrade(connection: sqlite3.Connection) -> list[str]:
    """Apply the missing migrations in one transaction. If several processes open the file, one does it."""
    wanted = wanted_version()
    if _checked(stored_version(connection), wanted) == wanted:
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        have = _checked(stored_version(connection), wanted)
        missing = [(name, text) for number, name, text in migrations() if number > have]
        for _, text in missing:
            for statement in statements(text):
                connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO pitboss_meta (name, value) VALUES ('schema', ?)", (wanted,))
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        connection.execute("ROLLBACK")
        raise _foreign(error) from error
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return [name for name, _ in missing]


def script(since: int = 0) -> str:
    """The migrations after version `since` as one script, for a person to read and run instead of `upgrade`."""
    parts = [f"-- {name}\n{text.strip()}\n" for number, name, text in migrations() if number > since]
    if not parts:
        return ""
    version = f"INSERT OR REPLACE INTO pitboss_meta (name, value) VALUES ('schema', {wanted_version()});\n"
    return "\n".join(["BEGIN IMMEDIATE;\n", *parts, version, "COMMIT;\n"])


def statements(script: str) -> Iterator[str]:
    """The single statements of a script; `executescript` would commit the open transaction."""
    buffer = ""
    for line in script.splitlines(keepends=True):
        buffer += line
        if sqlite3.complete_statement(buffer) and not line.lstrip().startswith("--"):
            yield buffer
            buffer = ""


def _checked(have: int, wanted: int) -> int:
    if have > wanted:
        raise SchemaMismatch(
            f"the store has schema {have}; this version of Pitboss knows schemas up to {wanted}",
            why="a newer version of Pitboss has upgraded it, and an older one could damage what it does not know",
            fix="upgrade Pitboss here, or open another file",
        )
    return have


def _foreign(error: sqlite3.OperationalError) -> Exception:
    if "already exists" not in str(error):
        return error
    return SchemaMismatch(
        f"the tables cannot be created: {error}",
        why="the file has a table of that name which is not Pitboss's",
        fix="give Pitboss a file of its own, or rename that table",
    )
