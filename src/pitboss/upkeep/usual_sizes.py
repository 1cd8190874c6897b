"""Looks whether handlers take longer, or need more memory, than they usually do."""

from collections.abc import Mapping

from pitboss.client.handler_sizes import HandlerSizes, read_sizes
from pitboss.engines.figure_protocol import Figures
from pitboss.model.alert_facts import HandlerFacts
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.figures import HOUR, Histogram, bucket

_EVERY: Span = 60 * SECOND
_LATELY: Span = 15 * 60 * SECOND
_USUALLY: Span = 24 * HOUR
# Fewer values than this say nothing.
_LEAST_LATELY, _LEAST_USUALLY = 20, 50
_MIDDLE = 0.5


class UsualSizes:
    """The last 15 minutes beside the 24 hours before them. What is usual is read again once an hour."""

    def __init__(self, figures: Figures | None) -> None:
        self._figures = figures
        self._usual: Mapping[str, HandlerSizes] = {}
        self._usual_until: Moment | None = None
        self._found: dict[str, HandlerFacts] = {}
        self._at: Moment | None = None

    async def look(self, now: Moment) -> dict[str, HandlerFacts]:
        """The handlers that have run often enough, with what was found within the last minute."""
        if self._figures is not None and (self._at is None or not 0 <= now - self._at < _EVERY):
            lately = await read_sizes(self._figures, now - _LATELY, now)
            until = bucket(now - _LATELY, HOUR)
            if self._usual_until != until:
                self._usual, self._usual_until = await read_sizes(self._figures, until - _USUALLY, until), until
            self._found = {name: _facts(one, self._usual[name]) for name, one in lately.items() if name in self._usual}
            self._at = now
        return self._found


def _facts(lately: HandlerSizes, usual: HandlerSizes) -> HandlerFacts:
    return HandlerFacts(run=_middles(lately.run, usual.run), memory=_middles(lately.memory, usual.memory))


def _middles(lately: Histogram, usual: Histogram) -> tuple[int, int] | None:
    if lately.n < _LEAST_LATELY or usual.n < _LEAST_USUALLY:
        return None
    return lately.quantile(_MIDDLE) or 0, usual.quantile(_MIDDLE) or 0
