"""The log of happenings, and the age of the audit log."""

from collections.abc import Iterable, MutableMapping, Sequence
from typing import TypeVar

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.duration import Moment
from pitboss.model.happening import LAST, Happening, Kind, floor_id

Row = TypeVar("Row")


class HappeningVerbs(Verbs):
    """The protocol `Happenings`."""

    async def record_happenings(self, happenings: Sequence[Happening]) -> None:
        for one in happenings:
            self.tables.happenings.setdefault(one.id, one)

    async def happenings(
        self,
        *,
        limit: int = 100,
        before: str | None = None,
        since: Moment | None = None,
        kinds: Sequence[Kind] = (),
        subject: str = "",
    ) -> list[Happening]:
        first, last = floor_id(since), before or LAST
        stored = self.tables.happenings
        wanted = (stored[one] for one in sorted(stored, reverse=True) if first <= one < last)
        found = [one for one in wanted if (not kinds or one.kind in kinds) and one.subject.startswith(subject)]
        return found[:limit]

    async def prune_happenings(self, before: Moment | None, *, keep: int, limit: int = 1000, term: int) -> int:
        self.check_term(term, self.clock.now())
        stored = sorted(self.tables.happenings)
        spare = stored[: max(0, len(stored) - keep)]
        old = [one for one in stored if one < floor_id(before)]
        return _forget(self.tables.happenings, max(spare, old, key=len)[:limit])

    async def prune_audit(self, before: Moment, *, limit: int = 1000, term: int) -> int:
        self.check_term(term, self.clock.now())
        old = [one for one in sorted(self.tables.audit) if one < floor_id(before)]
        return _forget(self.tables.audit, old[:limit])


def _forget(rows: MutableMapping[str, Row], ids: Iterable[str]) -> int:
    gone = list(ids)
    for one in gone:
        del rows[one]
    return len(gone)
