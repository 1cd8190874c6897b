"""What earlier claims found out about their queues, so that the next one begins with the right steps."""

from collections.abc import Sequence
from typing import NamedTuple

_MOST_KNOWN = 1000
FOREIGN_FOR = 50


class ClaimPlan(NamedTuple):
    """What a claim on some queues needs besides its one statement.

    Only a guess, which every claim compares with the store. A guess that is too small claims nothing and costs one
    repetition; one that is too large costs the steps that were not needed.
    """

    rated: bool = False
    """Lock the queues and measure their windows."""

    pooled: bool = False
    """Take members of resource pools together with the tasks."""

    keyed: bool = False
    """Lock the queues, and give each slot its own tasks."""

    look: int = 0
    """In queues with partitions: how many tasks to look at first."""

    drawable: bool = False
    """Draw items of running batches first."""

    foreign: int = 0
    """Skip tasks for other sessions, for this many claims. Then look whether there still are any."""

    @property
    def locks(self) -> bool:
        return self.rated or self.pooled or self.keyed


PLAIN = ClaimPlan()
Key = tuple[str | None, str | None, str | None]


class ClaimPlans:
    """The plans that one engine knows, by queues, and handlers of the request and of the slots."""

    def __init__(self) -> None:
        self._known: dict[Key, ClaimPlan] = {}

    def of(self, keys: Sequence[Key]) -> list[ClaimPlan]:
        return [self._known.get(key, PLAIN) for key in keys]

    def note(self, keys: Sequence[Key], plans: Sequence[ClaimPlan]) -> None:
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known.update(zip(keys, plans, strict=True))
