"""The log of happenings, and how long it and the audit log are kept."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pitboss.model.duration import Moment
from pitboss.model.happening import Happening, Kind


@runtime_checkable
class Happenings(Protocol):
    """What happened to managers, workers and the store. Rows are only added and pruned, so that a log that is written
    late, after the store was away, is as good as one that was written at once."""

    async def record_happenings(self, happenings: Sequence[Happening]) -> None:
        """Store these; one whose id is stored changes nothing, so repeating the call is harmless."""

    async def happenings(
        self,
        *,
        limit: int = 100,
        before: str | None = None,
        since: Moment | None = None,
        kinds: Sequence[Kind] = (),
        subject: str = "",
    ) -> list[Happening]:
        """The newest, newest first by id: only those with a smaller id than `before`, from the moment `since` on, of
        one of these kinds (none given: all), and with a subject that begins with `subject`."""

    async def prune_happenings(self, before: Moment | None, *, keep: int, limit: int = 1000, term: int) -> int:
        """Forget those from before this moment (None: none for their age), and all but the newest `keep`: the oldest
        first, at most `limit`; returns how many. Only the leader of that term may do it: any other call raises
        `NotLeader` and forgets nothing."""

    async def prune_audit(self, before: Moment, *, limit: int = 1000, term: int) -> int:
        """Forget entries of the audit log from before this moment, in the same way."""
