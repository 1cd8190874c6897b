"""How long finished tasks, events, figures and the logs of happenings and acts are kept by default."""

import msgspec

from pitboss.model.duration import Span, span
from pitboss.model.states import State

# For ever, where an age must be a number: longer than any age that can be written.
FOREVER: Span = span(100 * 366 * 86_400 - 1)


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Age at which finished tasks are pruned, by state, and `events` of the event log, `happenings`, and entries of the
    `audit` log; None keeps them for ever.

    Figures are kept in buckets of 10 s, then of a minute, then of an hour, each until this age.
    """

    completed: Span | None = span("3d")
    cancelled: Span | None = span("7d")
    failed: Span | None = span("30d")
    events: Span | None = span("7d")
    figures_10s: Span | None = span("2h")
    figures_1m: Span | None = span("3d")
    figures_1h: Span | None = span("400d")
    happenings: Span | None = span("30d")
    audit: Span | None = span("365d")

    def ages(self) -> dict[State, Span]:
        pairs = ((State.COMPLETED, self.completed), (State.CANCELLED, self.cancelled), (State.FAILED, self.failed))
        return {state: age for state, age in pairs if age is not None}
