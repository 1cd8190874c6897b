"""How long finished tasks are kept by default."""

import msgspec

from pitboss.model.duration import Span, span
from pitboss.model.states import State


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Age at which finished tasks are pruned, by state; None keeps them for ever."""

    completed: Span | None = span("3d")
    cancelled: Span | None = span("7d")
    failed: Span | None = span("30d")

    def ages(self) -> dict[State, Span]:
        pairs = ((State.COMPLETED, self.completed), (State.CANCELLED, self.cancelled), (State.FAILED, self.failed))
        return {state: age for state, age in pairs if age is not None}
