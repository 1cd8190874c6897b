"""What the answers to a task's requests say about the member that they went through."""

import msgspec

from pitboss.model.duration import SECOND, Span
from pitboss.model.resource import Report, ResourceOutcome

# The worst comes first. The last says that a use failed, and not whose fault it was.
_WORST_FIRST = (
    ResourceOutcome.RATE_LIMITED,
    ResourceOutcome.BLOCKED,
    ResourceOutcome.RESOURCE_ERROR,
    ResourceOutcome.TASK_ERROR,
)


class Answers:
    """The answers that the clients of one lease got.

    For each destination the last answer counts: a request that was repeated with success says that the member works.
    Only a rate limit stays, because the far side asked for a pause.
    """

    def __init__(self) -> None:
        self._last: dict[str, Report | None] = {}
        self._limited: Report | None = None
        self._destination: str | None = None
        self._timed, self._seconds = 0, 0.0
        # Why a request was not sent, if its client cannot say so by an error of its own.
        self.unsent: Exception | None = None

    def asked(self, destination: str) -> None:
        """A request is about to be sent there."""
        self._destination = destination

    def add(self, destination: str, report: Report | None) -> None:
        """An answer, or the failure to get one; None if it says that the member works."""
        if report is not None and report.outcome is ResourceOutcome.RATE_LIMITED:
            self._limited = report if self._limited is None else max(self._limited, report, key=_pause)
            report = None
        self._last[destination] = report

    def timed(self, seconds: float) -> None:
        """An answer began so long after its request was sent."""
        self._timed, self._seconds = self._timed + 1, self._seconds + seconds

    @property
    def only_destination(self) -> str | None:
        """Where all of them came from; None if there were none, or from several places."""
        return next(iter(self._last)) if len(self._last) == 1 else None

    @property
    def took(self) -> Span | None:
        """How long an answer took on average; None if there was none."""
        return max(1, round(self._seconds * SECOND / self._timed)) if self._timed else None

    def report(self) -> Report | None:
        """The worst that counts; None if the member works as far as the answers tell."""
        counted = [self._limited, *self._last.values()]
        found = [report for report in counted if report is not None]
        return min(found, key=lambda report: _WORST_FIRST.index(report.outcome), default=None)

    def beside(self, blamed: Report) -> Report:
        """The report on an exception of the handler, or what an answer said if the exception blames nothing."""
        seen = self.report()
        if blamed.outcome is not ResourceOutcome.TASK_ERROR:
            return blamed
        if seen is not None and seen.outcome is not ResourceOutcome.TASK_ERROR:
            return seen
        place = blamed.destination or (None if seen is None else seen.destination) or self._destination
        return msgspec.structs.replace(blamed, destination=place)


def _pause(report: Report) -> tuple[bool, int]:
    # Without a time it is the pool's own cooldown, which is longer than most.
    return report.retry_after is None, report.retry_after or 0
