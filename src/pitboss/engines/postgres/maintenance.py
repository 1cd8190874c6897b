"""Checking the tables, counting their tasks again, and copying them with pg_dump."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from psycopg import conninfo

from pitboss import config
from pitboss.engines.postgres import schema
from pitboss.engines.postgres.connections import Connections
from pitboss.engines.postgres.script import Script, Statements
from pitboss.model.errors import Refused, StoreUnavailable, Unsupported
from pitboss.model.finding import Finding, count_finding, fine, problem
from pitboss.model.text import listed

Told = Callable[[int, int], None]
_RECOUNT = (
    "maintenance_lock",
    "maintenance_keep_flows",
    "maintenance_forget_deltas",
    "maintenance_forget_counts",
    "maintenance_count",
    "maintenance_forget_batch_counts",
    "maintenance_count_batches",
    "maintenance_count_unfinished",
)
_DEBIAN = Path("/usr/lib/postgresql")
_CANCELLED = "57014"


async def check(sql: Statements, connections: Connections, *, counts: bool) -> list[Finding]:
    """As the contract says; the time limit is that of the connections."""
    found, wanted = await connections.call(lambda: schema.version(sql)), schema.wanted(sql)
    if found != wanted:
        return [
            problem(
                "schema",
                f"schema {found} of {wanted}",
                why="other checks need the current one",
                fix="pitboss db upgrade",
            )
        ]
    broken = await connections.call(lambda: _broken_indexes(sql))
    return [_of_indexes(broken), *(await _of_counts(sql, connections) if counts else [])]


def recount(sql: Statements) -> Script[int]:
    """Within a transaction."""
    lock, *statements = _RECOUNT
    yield sql.ask(lock)
    wrong = yield sql.ask("maintenance_differences")
    for name in statements:
        yield sql.ask(name).unheard()
    return len(wrong)


async def dump(dsn: str, name: str, to: Path, told: Told) -> str:
    """Write the schema of that name with pg_dump; returns how to restore it."""
    program = _program("pg_dump")
    given: dict[str, Any] = conninfo.conninfo_to_dict(dsn)
    password = given.pop("password", None)
    shown = conninfo.make_conninfo("", **given)
    if program is None:
        raise Unsupported(
            "pg_dump is not installed here",
            why="PostgreSQL's own tool makes the copy, and it comes with the server or its client",
            fix="install postgresql-client, or run where it is: "
            f"pg_dump --format=custom --schema={name} --file={to.name} '{shown}'",
        )
    # Not on the command line, which every user of the host can read.
    env = config.inherited() | ({"PGPASSWORD": str(password)} if password else {})
    command = [program, "--format=custom", "--verbose", f"--schema={name}", f"--file={to}", f"--dbname={shown}"]
    child = await asyncio.create_subprocess_exec(
        *command, env=env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        errors = await _follow(child, told)
        if await child.wait():
            raise Refused("pg_dump failed", why="; ".join(errors) or "it gave no reason", fix="see pg_dump --help")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return f"restore it with: pg_restore --clean --if-exists --no-owner --dbname='{shown}' FILE"


def no_salvage() -> Unsupported:
    return Unsupported(
        "--salvage is for a damaged SQLite file",
        why="PostgreSQL keeps its files itself",
        fix="restore a backup of the server; https://wiki.postgresql.org/wiki/Corruption says what else can be done",
    )


def remove(unfinished: Path) -> None:
    unfinished.unlink(missing_ok=True)


async def _follow(child: asyncio.subprocess.Process, told: Told) -> list[str]:
    """Count the tables that it dumps; returns what it says of errors."""
    assert child.stderr is not None
    tables = done = 0
    errors: list[str] = []
    async for line in child.stderr:
        text = line.decode(errors="replace").strip()
        tables += "finding the columns and types of table" in text
        if "dumping contents of table" in text:
            done += 1
            told(done, max(done, tables))
        if "error:" in text or "detail:" in text:
            errors.append(text.removeprefix("pg_dump: "))
    return errors


def _program(name: str) -> str | None:
    """In the path, or the newest one of Debian's."""
    versions = sorted(_DEBIAN.glob(f"*/bin/{name}"), key=lambda path: path.parts[-3].zfill(4))
    return shutil.which(name) or (str(versions[-1]) if versions else None)


def _broken_indexes(sql: Statements) -> Script[list[str]]:
    rows = yield sql.ask("maintenance_indexes", schema=sql.quoted)
    return [row[0] for row in rows]


def _of_indexes(broken: list[str]) -> Finding:
    if not broken:
        return fine("indexes", "every index is valid")
    return problem(
        "indexes",
        f"the server does not use {listed(broken)}",
        why="their creation failed or was interrupted: claims become slow, and a unique key may be taken twice",
        fix="; ".join(f"REINDEX INDEX {name}" for name in broken),
    )


async def _of_counts(sql: Statements, connections: Connections) -> list[Finding]:
    def script() -> Script[Finding]:
        rows = yield sql.ask("maintenance_differences")
        return count_finding([(queue, state, n) for queue, state, n in rows])

    try:
        return [await connections.call(script)]
    except StoreUnavailable as error:
        if getattr(error.__cause__, "sqlstate", None) != _CANCELLED:
            raise
        return [fine("counts", "the tasks were not counted in the time; pitboss db check counts them all")]
