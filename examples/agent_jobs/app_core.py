"""The app core: users, sessions, conversations and workspaces, in a SQLite file. The jobs work on it.

Every change is one transaction, and none does harm if it is repeated: a job may run twice after a crash.
"""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any
from uuid import uuid4

SCHEMA = Path(__file__).with_name("app_core.sql")
DAY = 86_400.0
ARCHIVED_AFTER = 30 * DAY
# What a new workspace has.
FOLDERS = ("inbox", "notes", "files")
_CONNECTIONS = 8
_BUSY_SECONDS = 30.0


class AppCore:
    """The file, with a pool of connections. `clock` tells the time in seconds since 1970."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock = path, clock
        self._idle: LifoQueue[sqlite3.Connection] = LifoQueue(_CONNECTIONS)

    def use(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Work on another file from now on."""
        self.close()
        self.path, self.clock = path, clock

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it counts, or nothing."""
        connection = self._taken()
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        finally:
            self._give_back(connection)

    def all(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a query."""
        connection = self._taken()
        try:
            cursor = connection.execute(query, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        finally:
            self._give_back(connection)

    def _taken(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA.read_text())
            return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._idle.full():
            connection.close()
        else:
            self._idle.put_nowait(connection)

    # Users and what belongs to them.

    def add_user(self, connection: sqlite3.Connection, email: str) -> str:
        """In the caller's transaction; gives the user's id."""
        user_id = uuid4().hex
        connection.execute("INSERT INTO users VALUES (?, ?, ?)", (user_id, email, self.clock()))
        return user_id

    def add_session(self, user_id: str, *, expires_in: float) -> None:
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?)", (uuid4().hex, user_id, self.clock() + expires_in)
            )

    def add_conversation(self, user_id: str, title: str, *, age: float = 0.0) -> str:
        conversation_id = uuid4().hex
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO conversations VALUES (?, ?, ?, ?, NULL)",
                (conversation_id, user_id, title, self.clock() - age),
            )
        return conversation_id

    def cleanup_expired_sessions(self) -> int:
        """Delete sessions whose time is over; gives their number."""
        with self.transaction() as connection:
            return connection.execute("DELETE FROM sessions WHERE expires_at <= ?", (self.clock(),)).rowcount

    def archive_old_conversations(self) -> int:
        """Mark conversations without a change for a month; gives their number."""
        now = self.clock()
        with self.transaction() as connection:
            return connection.execute(
                "UPDATE conversations SET archived_at = ? WHERE archived_at IS NULL AND updated_at <= ?",
                (now, now - ARCHIVED_AFTER),
            ).rowcount

    def initialize_user_workspace(self, user_id: str) -> bool:
        """Create the workspace with its folders; False if the user has one."""
        with self.transaction() as connection:
            new = connection.execute(
                "INSERT INTO workspaces VALUES (?, ?) ON CONFLICT DO NOTHING", (user_id, self.clock())
            ).rowcount
            if new:
                connection.executemany("INSERT INTO folders VALUES (?, ?)", [(user_id, name) for name in FOLDERS])
            return bool(new)

    def users_without_workspace(self, older_than: float) -> list[dict[str, Any]]:
        """Users who signed up longer ago than this, and whose workspace is missing."""
        return self.all(
            "SELECT id, email FROM users WHERE created_at <= ? AND id NOT IN (SELECT user_id FROM workspaces)",
            self.clock() - older_than,
        )

    # What the jobs leave behind. The keys make a repetition change nothing.

    def index_conversations(self, since: float, until: float) -> int:
        """Put conversations that changed in this time into the search index; gives their number."""
        with self.transaction() as connection:
            return connection.execute(
                "INSERT INTO search_index SELECT id, title, updated_at FROM conversations"
                " WHERE updated_at > ? AND updated_at <= ?"
                " ON CONFLICT (conversation_id) DO UPDATE SET title = excluded.title, updated_at = excluded.updated_at",
                (since, until),
            ).rowcount

    def note_run(self, task: str, scheduled_for: str, details: object) -> None:
        """Count the runs for one tick, so that a second one would be seen."""
        self._note(
            "INSERT INTO runs VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET times = times + 1",
            task,
            scheduled_for,
            json.dumps(details),
        )

    def note_message(self, event_id: str, user_id: str, text: str) -> None:
        """Messages are numbered in the order in which they come in here."""
        self._note(
            "INSERT INTO messages (event_id, user_id, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            event_id,
            user_id,
            text,
        )

    def note_activity(self, event_id: str, name: str, data: object) -> None:
        self._note("INSERT INTO activity VALUES (?, ?, ?) ON CONFLICT DO NOTHING", event_id, name, json.dumps(data))

    def note_notice(self, event_id: str, user_id: str, channel: str, text: str) -> None:
        """A notice that was delivered, and by which channel."""
        self._note("INSERT INTO notices VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", event_id, user_id, channel, text)

    def note_incident(self, task_id: str, handler: str, queue: str, error: str) -> None:
        """A task that failed for good: a person looks at it."""
        self._note("INSERT INTO incidents VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", task_id, handler, queue, error)

    def _note(self, statement: str, *values: object) -> None:
        with self.transaction() as connection:
            connection.execute(statement, values)


core = AppCore(Path(os.environ.get("APP_CORE_DB", "agent.db")))


# The names of the document. SQLite blocks, so each call has a thread.


async def cleanup_expired_sessions() -> int:
    return await asyncio.to_thread(core.cleanup_expired_sessions)


async def archive_old_conversations() -> int:
    return await asyncio.to_thread(core.archive_old_conversations)


async def initialize_user_workspace(user_id: str) -> bool:
    return await asyncio.to_thread(core.initialize_user_workspace, user_id)
