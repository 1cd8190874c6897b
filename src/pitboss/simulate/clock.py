"""A clock that moves only when you move it."""

from datetime import timedelta

from pitboss.model.duration import Moment, Span, span

START: Moment = 1_800_000_000_000_000


class FakeClock:
    """Microseconds since the epoch, from `start` on; it never goes back. The wall clock may be set besides."""

    def __init__(self, start: Moment = START) -> None:
        self._now = start
        self._ahead: Span = 0

    def now(self) -> Moment:
        return self._now

    def wall(self) -> Moment:
        return self._now + self._ahead

    def set_wall(self, by: float | str | timedelta, *, back: bool = False) -> None:
        """Set the wall clock ahead or back; the steady one does not notice."""
        self._ahead += -span(by) if back else span(by)

    def advance(self, by: float | str | timedelta) -> Moment:
        """Move on by seconds, or by text such as "90s" or "1us"; returns the new moment."""
        return self.advance_to(self._now + span(by))

    def advance_to(self, moment: Moment) -> Moment:
        """Move on to a moment; one in the past changes nothing."""
        self._now = max(self._now, moment)
        return self._now

    def ahead(self, by: float | str | timedelta) -> Moment:
        """A moment in the future; the clock does not move."""
        return self._now + span(by)

    def since(self, moment: Moment) -> Span:
        return self._now - moment
