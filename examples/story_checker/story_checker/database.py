"""The system's own data: niches, profiles, results, settings. Pitboss stores the tasks.

Counts are computed from the results, never stored. Every call opens its own connection, so any thread and any process
may call.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

_SCHEMA = """
create table if not exists niches (
    id integer primary key, name text not null unique, daily_story_target integer not null default 10
);
create table if not exists profiles (
    username text primary key, niche integer not null references niches (id),
    status text not null default 'active' check (status in ('active', 'suspended', 'deleted'))
);
create table if not exists story_results (
    task text primary key, username text not null, batch text, stories integer not null, proxy text not null,
    checked_at real not null, expires_at real not null
);
create index if not exists story_results_of_profile on story_results (username, checked_at);
create index if not exists story_results_of_batch on story_results (batch);
create table if not exists requests (proxy text not null, at real not null);
create index if not exists requests_of_proxy on requests (proxy, at);
create table if not exists refused_sessions (proxy text primary key, cookie text not null);
create table if not exists outbox (
    key text primary key, recipient text not null, subject text not null, body text not null, at real not null
);
create table if not exists told (proxy text primary key, at integer not null);
create table if not exists system_settings (name text primary key, value text not null);
"""


class StoryResult(NamedTuple):
    """What one check found; `stories` 0 is a result too. The task's id is the key, so a second write is harmless."""

    task: str
    username: str
    batch: str | None
    stories: int
    proxy: str
    checked_at: float
    expires_at: float

    @property
    def has_story(self) -> bool:
        return self.stories > 0


class Profile(NamedTuple):
    """A profile with the results of its checks."""

    username: str
    niche: str
    status: str
    total_checks: int
    total_detections: int
    last_checked: float | None
    active_story: int


@dataclass
class BatchProfile:
    """A profile of a batch, and the outcome of its check."""

    profile: Profile
    batch_id: str | None = None
    status: str = "pending"
    has_story: bool | None = None
    error: str | None = None
    processed_at: datetime | None = None


class Database:
    """One file, created at the first call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add_niche(self, name: str, *, daily_story_target: int = 10) -> None:
        with self._open() as db:
            db.execute(
                "insert into niches (name, daily_story_target) values (?, ?) on conflict (name) do nothing",
                (name, daily_story_target),
            )

    def niches(self) -> list[str]:
        with self._open() as db:
            return [name for (name,) in db.execute("select name from niches order by id")]

    def import_profiles(self, niche: str, usernames: Iterable[str]) -> int:
        """Add profiles to a niche; returns how many are new."""
        with self._open() as db:
            found = db.execute("select id from niches where name = ?", (niche,)).fetchone()
            if found is None:
                raise LookupError(f'there is no niche "{niche}": add it first')
            rows = [(name, found[0]) for name in usernames]
            statement = "insert into profiles (username, niche) values (?, ?) on conflict (username) do nothing"
            return db.executemany(statement, rows).rowcount

    def usernames(self, niche: str, limit: int) -> list[str]:
        """Active profiles of a niche; those that waited longest for a check come first."""
        with self._open() as db:
            rows = db.execute(
                """
                select username from profiles where status = 'active'
                    and niche = (select id from niches where name = ?)
                order by (select max(checked_at) from story_results where username = profiles.username) nulls first,
                    username limit ?
                """,
                (niche, limit),
            )
            return [name for (name,) in rows]

    def suspend(self, username: str) -> None:
        """Stop checking a profile that the site does not know."""
        with self._open() as db:
            db.execute("update profiles set status = 'suspended' where username = ?", (username,))

    def profile(self, username: str) -> Profile | None:
        with self._open() as db:
            row = db.execute(
                """
                select username, (select name from niches where id = niche), status,
                    (select count(*) from story_results r where r.username = p.username),
                    (select count(*) from story_results r where r.username = p.username and stories > 0),
                    (select max(checked_at) from story_results r where r.username = p.username),
                    exists (select 1 from story_results r
                        where r.username = p.username and stories > 0 and expires_at > ?)
                from profiles p where username = ?
                """,
                (time.time(), username),
            ).fetchone()
        return None if row is None else Profile(*row)

    def record(self, result: StoryResult) -> None:
        with self._open() as db:
            db.execute("insert or replace into story_results values (?, ?, ?, ?, ?, ?, ?)", result)

    def results(self, batch: str | None = None) -> list[StoryResult]:
        """All results, or those of a batch, oldest first."""
        with self._open() as db:
            rows = db.execute(
                "select * from story_results where ? is null or batch = ? order by checked_at", (batch, batch)
            )
            return [StoryResult(*row) for row in rows]

    def prune(self) -> int:
        """Delete expired results; returns how many."""
        with self._open() as db:
            return db.execute("delete from story_results where expires_at <= ?", (time.time(),)).rowcount

    def note_request(self, proxy: str) -> None:
        """Record a request through a proxy."""
        with self._open() as db:
            db.execute("insert into requests values (?, ?)", (proxy, time.time()))

    def requests_since(self, proxy: str, moment: float) -> int:
        with self._open() as db:
            return int(
                db.execute("select count(*) from requests where proxy = ? and at > ?", (proxy, moment)).fetchone()[0]
            )

    def refuse(self, proxy: str, cookie: str) -> None:
        """Record that the site no longer accepts a cookie. Only its digest is stored."""
        with self._open() as db:
            db.execute("insert or replace into refused_sessions values (?, ?)", (proxy, _digest(cookie)))

    def is_refused(self, proxy: str, cookie: str) -> bool:
        with self._open() as db:
            statement = "select 1 from refused_sessions where proxy = ? and cookie = ?"
            return db.execute(statement, (proxy, _digest(cookie))).fetchone() is not None

    def put_in_outbox(self, key: str, recipient: str, subject: str, body: str) -> None:
        """Keep a message for the operator; the same key again changes nothing."""
        with self._open() as db:
            db.execute(
                "insert or ignore into outbox values (?, ?, ?, ?, ?)", (key, recipient, subject, body, time.time())
            )

    def outbox(self) -> list[tuple[str, str, str]]:
        """Messages to the operator, oldest first: recipient, subject, body."""
        with self._open() as db:
            return db.execute("select recipient, subject, body from outbox order by at, key").fetchall()

    def told(self) -> dict[str, int]:
        """By proxy, the moment up to which the operator was told about it."""
        with self._open() as db:
            return dict(db.execute("select proxy, at from told").fetchall())

    def note_told(self, proxy: str, at: int) -> None:
        with self._open() as db:
            db.execute("insert or replace into told values (?, ?)", (proxy, at))

    def settings(self) -> dict[str, str]:
        with self._open() as db:
            return dict(db.execute("select name, value from system_settings").fetchall())

    def save_settings(self, values: Mapping[str, str]) -> None:
        rows: Sequence[tuple[str, str]] = [*values.items()]
        with self._open() as db:
            db.executemany("insert or replace into system_settings values (?, ?)", rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        new = not self.path.exists()
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            if new:
                connection.execute("pragma journal_mode = wal")
            connection.executescript(_SCHEMA)
            with connection:
                yield connection
        finally:
            connection.close()


def _digest(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()
