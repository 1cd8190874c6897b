"""The store's clock: the uptime of the host plus an offset that the file keeps for this boot.

Every process of the host that opens the file has the same clock, and setting the host's wall clock does not change it.
"""

import sqlite3
from typing import NamedTuple

from pitboss.engines.protocol import Clock, HostClock
from pitboss.engines.sqlite.act import Statements
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.lifecycle import stepped

# How far the latest moment that was written may be after the one that the file keeps.
_KEPT_EVERY: Span = SECOND


class _Row(NamedTuple):
    boot_id: str
    offset: Span
    ahead: Span
    latest: Moment


class StoreClock:
    """Sees the host's clocks and the row of the file. For one thread at a time."""

    def __init__(self, clock: Clock, statements: Statements) -> None:
        self._clock, self._sql = clock, statements.by_name
        self._ahead: Span = 0
        self._kept: Moment = 0

    def now(self) -> Moment:
        return self._clock.now()

    def begin(self, connection: sqlite3.Connection) -> None:
        """Take the offset of this boot, or choose it: about the wall clock's time, and later than all that was written.

        Call it with the lock of the writers.
        """
        row = self._row(connection)
        if row is None or not self._is_of_this_boot(row):
            connection.execute("BEGIN IMMEDIATE")
            try:
                row = self._begun(connection, row)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        self._take(row)

    def has_begun(self, connection: sqlite3.Connection) -> bool:
        """Take the offset of this boot, if the file has one. Writes nothing, so it needs no lock."""
        row = self._row(connection)
        if row is None or not self._is_of_this_boot(row):
            return False
        self._take(row)
        return True

    def look(self, connection: sqlite3.Connection) -> None:
        """Move the tasks that follow the wall clock, if that was set. Inside a transaction."""
        ahead = self._clock.wall() - self._clock.now()
        if not stepped(self._ahead, ahead):
            return
        row = self._row(connection)
        if row is None or not stepped(row.ahead, ahead):
            # Another process has done it, or this one in a transaction that is committed now.
            self._ahead = ahead if row is None else row.ahead
            return
        connection.execute(self._sql["clock_rebase"], (ahead - row.ahead,))
        connection.execute(self._sql["clock_set_ahead"], (ahead,))

    def keep(self, connection: sqlite3.Connection, *, surely: bool = True) -> None:
        """Note the latest moment, once a second, before a commit. Not `surely`: the caller may roll back."""
        now = self.now()
        if now >= self._kept + _KEPT_EVERY:
            connection.execute(self._sql["clock_keep"], (now,))
            self._kept = now if surely else self._kept

    def _take(self, row: _Row) -> None:
        if isinstance(self._clock, HostClock):
            self._clock.set_offset(row.offset)
        self._ahead = row.ahead

    def _is_of_this_boot(self, row: _Row) -> bool:
        """A host that does not name its boots is recognised by its uptime."""
        if not isinstance(self._clock, HostClock):
            return True
        return row.boot_id == self._clock.boot_id and self._clock.uptime() + row.offset >= row.latest

    def _begun(self, connection: sqlite3.Connection, row: _Row | None) -> _Row:
        wall, clock = self._clock.wall(), self._clock
        if isinstance(clock, HostClock):
            start = wall if row is None else max(wall, row.latest + _KEPT_EVERY)
            begun = _Row(clock.boot_id, start - clock.uptime(), wall - start, start)
        else:
            begun = _Row("", 0, wall - clock.now(), clock.now())
        if row is not None and begun.ahead != row.ahead:
            connection.execute(self._sql["clock_rebase"], (begun.ahead - row.ahead,))
        connection.execute(self._sql["clock_begin"], begun)
        return begun

    def _row(self, connection: sqlite3.Connection) -> _Row | None:
        row = connection.execute(self._sql["clock_get"]).fetchone()
        return None if row is None else _Row(*row)
