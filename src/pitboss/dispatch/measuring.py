"""Measures what the tasks of this process do: how long they wait and run, and how resources behave."""

from collections.abc import Iterable

from pitboss.engines.protocol import Clock
from pitboss.model.duration import Span
from pitboss.model.figures import UNKNOWN, HandlerFigures, ResourceSample
from pitboss.model.outcome import Outcome, Released, TimedOut
from pitboss.model.resource import Report, ResourceOutcome, Shortage
from pitboss.model.task import Claim

_REFUSED = (ResourceOutcome.RATE_LIMITED, ResourceOutcome.BLOCKED)


class Measurements:
    """What was measured since they were last taken. Called for every task, so it does little."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.handlers: dict[tuple[str, str], HandlerFigures] = {}
        self.resources: dict[str, ResourceSample] = {}

    def started(self, claim: Claim) -> None:
        """A worker got the task."""
        one = self._of(claim)
        one.started += 1
        if claim.due_at is not None:
            one.wait.add(max(0, self._clock.now() - claim.due_at))
        if claim.leased is not None:
            self._pool(claim.leased.pool).uses += 1

    def unstarted(self, claim: Claim) -> None:
        """The worker gave it back without having begun."""
        self._of(claim).started -= 1

    def ended(self, claim: Claim, outcome: Outcome, ran: Span | None, report: Report | None) -> None:
        """The worker reported an outcome."""
        if isinstance(outcome, Released) and not outcome.started:
            self.unstarted(claim)
        elif ran or (ran is not None and not isinstance(outcome, TimedOut)):
            # A worker that is blocked does not say how long the task ran that is given up.
            self._of(claim).run.add(ran)
        if report is not None and claim.leased is not None:
            pool, place = self._pool(claim.leased.pool), report.destination or UNKNOWN
            pool.destinations[place] = pool.destinations.get(place, 0) + 1
            if report.outcome in _REFUSED:
                pool.refusals[place] = pool.refusals.get(place, 0) + 1

    def used_memory(self, claim: Claim, size: int) -> None:
        """The task needed that many bytes."""
        self._of(claim).memory.add(size)

    def short(self, shortages: Iterable[Shortage]) -> None:
        """A claim found no member of these pools."""
        for one in shortages:
            self._pool(one.pool).limits_met += 1

    def take(self) -> tuple[list[HandlerFigures], dict[str, ResourceSample]]:
        """Everything so far; what follows is counted anew. Where more tasks came back than were started since the last
        call, the difference is taken off those that start next: no sample counts less than nothing."""
        handlers, resources = self.handlers, self.resources
        self.handlers, self.resources = {}, {}
        for key, one in handlers.items():
            if one.started < 0:
                self.handlers[key], one.started = HandlerFigures(*key, one.started), 0
        return [one for one in handlers.values() if one != HandlerFigures(one.queue, one.handler)], resources

    def _of(self, claim: Claim) -> HandlerFigures:
        one = self.handlers.get((claim.queue, claim.handler))
        if one is None:
            one = self.handlers[claim.queue, claim.handler] = HandlerFigures(claim.queue, claim.handler)
        return one

    def _pool(self, name: str) -> ResourceSample:
        one = self.resources.get(name)
        if one is None:
            one = self.resources[name] = ResourceSample()
        return one
