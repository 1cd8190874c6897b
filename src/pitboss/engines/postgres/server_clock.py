"""The store's clock: the server's clock plus a shift, which makes up for every time that the server's clock was set.

The server itself cannot see that its clock was set. Its clients can: each compares it with the uptime of its own host.
A statement carries the moment that the client expects; if the server's clock is more than a second away from it, the
statement is refused before it does anything, and the client looks at the clock (`look`). If it was set, the client
stores the shift that lets the store's clock go on where it was.
"""

from pitboss.engines.host_clock import SystemClock
from pitboss.engines.postgres.script import Script, Statements
from pitboss.engines.protocol import Clock
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.lifecycle import STEP, stepped

# The code with which `steady_now` refuses a statement.
STEPPED = "PB001"
_LOOK_EVERY: Span = 5 * SECOND
# An older comparison proves nothing: two clocks drift apart.
_BELIEVED: Span = 60 * SECOND
# An answer that took longer does not say what the server's clock shows now.
_LONGEST_LOOK: Span = SECOND // 2
# A statement that was refused only because it was slow is not refused again at once.
_PATIENCE: Span = 2 * SECOND


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
        self._looked_at: Span | None = None
        self._patient_until: Span = 0

    def now(self) -> Moment:
        if self._injected is not None:
            return self._injected.now()
        return self._host.now() if self._offset is None else self._host.uptime() + self._offset

    def wall(self) -> Moment:
        return self.now() - self._shift if self._injected is None else self._injected.wall()

    def injected(self) -> Moment | None:
        """The injected clock's time; None leaves it to the server."""
        return None if self._injected is None else self._injected.now()

    def _expectation(self) -> tuple[Span | None, Moment | None]:
        """The shift, and the moment that the server should find; None if this process cannot say."""
        uptime = self._host.uptime()
        if self._offset is None or uptime - self._compared_at > _BELIEVED:
            return None, None
        return self._shift, None if uptime < self._patient_until else uptime + self._offset

    def refused(self) -> None:
        """A statement was refused: the server's clock was set, or the statement was slow."""
        self._was_refused = True

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
        ((wall, shift),) = yield self._sql.ask("clock_get")
        if self._injected is not None:
            yield from self._follow_injected(self._injected, shift)
            return
        answered = self._host.uptime()
        if self._offset is not None and asked - self._compared_at <= _BELIEVED:
            first, last = asked + self._offset, answered + self._offset
            if not first - STEP <= wall + shift <= last + STEP:
                # The moment of asking, not of the answer: the store's clock may lose a little, and never gains.
                if (yield from _set(self._sql, shift, first - wall)):
                    self._shift, self._compared_at, self._was_refused = first - wall, asked, False
                return
        if self._was_refused:
            self._was_refused, self._patient_until = False, answered + _PATIENCE
        if answered - asked <= _LONGEST_LOOK:
            self._shift, self._offset, self._compared_at = shift, wall + shift - answered, asked

    def _follow_injected(self, clock: Clock, shift: Span) -> Script[None]:
        ahead = clock.wall() - clock.now()
        if stepped(-shift, ahead):
            yield from _set(self._sql, shift, -ahead)
            shift = -ahead
        self._shift = shift


def _set(sql: Statements, seen: Span, shift: Span) -> Script[bool]:
    """Store another shift, and move the tasks that follow the wall clock. False if another client was faster."""
    if not (yield sql.ask("clock_shift", seen=seen, shift=shift)):
        return False
    yield sql.ask("clock_lock_tasks")
    yield sql.ask("clock_rebase", step=seen - shift)
    return True
