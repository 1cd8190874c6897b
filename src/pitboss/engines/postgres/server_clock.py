"""The store's clock: the server's clock plus a shift, which makes up for every time that the server's clock was set.

The server itself cannot see that its clock was set. Its clients can: each compares it with the uptime of its own host.
A statement carries the moment that the client expects; if the server's clock is more than a second away from it, the
statement is refused before it does anything, and the client looks at the clock (`look`). If it was set, the client
stores the shift that lets the store's clock go on where it was.

An uptime may stand still (a machine that was paused), which looks as if the server's clock was set ahead. So clients
confirm the store's clock as they look. A step that would not fit in the time since the last confirmation never was:
then the client's own uptime is wrong, and it takes the store's clock as it is.
"""

import asyncio
from typing import NamedTuple

from pitboss.engines.host_clock import SystemClock
from pitboss.engines.postgres.script import Script, Statements
from pitboss.engines.protocol import Clock
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.lifecycle import STEP, stepped

# The code with which `steady_now` refuses a statement.
STEPPED = "PB001"
_LOOK_EVERY: Span = SECOND
# A confirmation that is younger is not written again by another client.
_CONFIRM_EVERY: Span = SECOND // 2
# An older comparison proves nothing: two clocks drift apart.
_BELIEVED: Span = 60 * SECOND
# An answer that took longer does not say what the server's clock shows now.
_LONGEST_LOOK: Span = SECOND // 2
# A statement that was refused only because it was slow is not refused again when it is repeated: for this time,
# statements may come this late. Until then, none notices that the server's clock was set by less.
_PATIENCE: Span = SECOND // 2
_LATE: Span = 15 * SECOND


class _Row(NamedTuple):
    """What a look finds. The store's clock was confirmed without a gap from `since` to `confirmed_at`."""

    wall: Moment
    shift: Span
    since: Moment
    confirmed_at: Moment
    writable: bool

    @property
    def now(self) -> Moment:
        return self.wall + self.shift


class ServerClock:
    """What this process knows of the store's clock. With an injected clock, the server's is not looked at."""

    def __init__(self, sql: Statements, injected: Clock | None) -> None:
        self._sql, self._injected, self._host = sql, injected, SystemClock()
        sql.expectation = self._expectation
        self._was_refused = False
        self._shift: Span = 0
        # The store's clock is at least the uptime plus this.
        self._offset: Span | None = None
        self._compared_at: Span = 0
        # By the store's clock: since then the uptime has agreed with it at each look.
        self._agreed_since: Moment = 0
        self._looked_at: Span | None = None
        self._patient_until: Span = 0
        # Set when the look that is under way has ended.
        self.looking: asyncio.Event | None = None

    def now(self) -> Moment:
        if self._injected is not None:
            return self._injected.now()
        return self._host.now() if self._offset is None else self._host.uptime() + self._offset

    def wall(self) -> Moment:
        return self.now() - self._shift if self._injected is None else self._injected.wall()

    def injected(self) -> Moment | None:
        """The injected clock's time; None leaves it to the server."""
        return None if self._injected is None else self._injected.now()

    def injected_wall(self) -> Moment | None:
        """The injected clock's wall time; None leaves it to the server."""
        return None if self._injected is None else self._injected.wall()

    def _expectation(self) -> tuple[Moment | None, Span]:
        """The moment that the server should find, None if this process cannot say, and how far away it may be."""
        uptime = self._host.uptime()
        if self._offset is None or uptime - self._compared_at > _BELIEVED:
            return None, STEP
        return uptime + self._offset, _LATE if uptime < self._patient_until else STEP

    def refused(self) -> None:
        """A statement was refused: the server's clock was set, or the statement was slow."""
        self._was_refused = True

    @property
    def was_refused(self) -> bool:
        """Until a look finds out why, further statements are refused as well."""
        return self._was_refused

    def needs_look(self) -> bool:
        """Not before the first look, which follows the opening of the store."""
        if self._looked_at is None:
            return False
        if self._injected is not None:
            return stepped(-self._shift, self._injected.wall() - self._injected.now())
        return self._was_refused or self._host.uptime() - self._looked_at > _LOOK_EVERY

    def look(self) -> Script[None]:
        """Compare the clocks, and store another shift if the server's was set. In a transaction."""
        asked = self._looked_at = self._host.uptime()
        (found,) = yield self._sql.ask("clock_get")
        row, answered = _Row(*found), self._host.uptime()
        if self._injected is not None:
            yield from self._follow_injected(self._injected, row.shift)
            return
        comparable = self._offset is not None and asked - self._compared_at <= _BELIEVED
        first, last = asked + (self._offset or 0), answered + (self._offset or 0)
        agrees = comparable and first - STEP <= row.now <= last + STEP
        if comparable and not agrees and not self._was_held_back(row, first) and not self._stood_still(row, last):
            # The moment of asking, not of the answer: the store's clock may lose a little, and never gains.
            if (yield from _set(self._sql, row.shift, first - row.wall, first)):
                self._shift, self._compared_at, self._was_refused = first - row.wall, asked, False
                self._agreed_since = first
            return
        if self._was_refused:
            self._was_refused, self._patient_until = False, answered + _PATIENCE
        if answered - asked <= _LONGEST_LOOK:
            self._shift, self._offset, self._compared_at = row.shift, row.now - answered, asked
        elif not agrees:
            # It came too late to be compared with, and what was known before is wrong.
            self._compared_at = asked - _BELIEVED - 1
        if not agrees:
            self._agreed_since = row.now
        elif row.writable and row.now - row.confirmed_at >= _CONFIRM_EVERY:
            yield self._sql.ask("clock_confirm", shift=row.shift, since=self._agreed_since, moment=row.now).unheard()

    def _was_held_back(self, row: _Row, expected: Moment) -> bool:
        """Whether another client stored a shift that holds the clock back, which all take: there is only one clock.

        If the clock is before its last confirmation, the server's was set back after that.
        """
        return row.shift != self._shift and row.confirmed_at <= row.now < expected

    def _stood_still(self, row: _Row, expected: Moment) -> bool:
        """Whether it is certain that the server's clock was not set ahead by this much since the last comparison.

        Others agreed with it from before that until so lately that less time has passed since, even by that clock.
        """
        compared = self._compared_at + (self._offset or 0)
        return row.since <= compared and 0 <= row.now - row.confirmed_at < row.now - expected - STEP

    def _follow_injected(self, clock: Clock, shift: Span) -> Script[None]:
        ahead = clock.wall() - clock.now()
        if stepped(-shift, ahead):
            yield from _set(self._sql, shift, -ahead, clock.now())
            shift = -ahead
        self._shift = shift


def _set(sql: Statements, seen: Span, shift: Span, moment: Moment) -> Script[bool]:
    """Store another shift, and move the tasks that follow the wall clock. False if another client was faster."""
    if not (yield sql.ask("clock_shift", seen=seen, shift=shift, moment=moment)):
        return False
    yield sql.ask("clock_lock_tasks")
    yield sql.ask("clock_rebase", step=seen - shift)
    return True
