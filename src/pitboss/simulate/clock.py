"""A clock that moves only when you move it."""

from datetime import timedelta

from pitboss.model.duration import Moment, Span, span

START: Moment = 1_800_000_000_000_000


class FakeClock:
    """Microseconds since the epoch, from `start` on; it never goes back."""

    def __init__(self, start: Moment = START) -> None:
        self._now = start

    def now(self) -> Moment:
        return self._now

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
