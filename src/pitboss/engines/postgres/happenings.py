"""The log of happenings, and the age of the audit log."""

from collections.abc import Sequence
from typing import Any

from pitboss.engines.postgres.core_protocols import CoreProtocols
from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.rows import numbers, texts
from pitboss.engines.postgres.script import Row, Script
from pitboss.model.duration import Moment
from pitboss.model.happening import LAST, Happening, Kind, Severity, floor_id


class HappeningProtocol(CoreProtocols):
    """The protocol `Happenings`."""

    async def record_happenings(self, happenings: Sequence[Happening]) -> None:
        if not happenings:
            return
        await self._write(
            "happening_add",
            ids=texts([one.id for one in happenings]),
            ats=numbers([one.at for one in happenings]),
            kinds=texts([one.kind for one in happenings]),
            severities=texts([one.severity for one in happenings]),
            subjects=texts([one.subject for one in happenings]),
            texts=texts([one.text for one in happenings]),
            hosts=texts([one.host for one in happenings]),
            managers=numbers([one.manager for one in happenings]),
            details=texts([one.details for one in happenings]),
            counts=numbers([one.count for one in happenings]),
        )

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
        rows = await self._read(
            "happening_list", first=first, last=last, kinds=texts(list(kinds)), subject=subject, limit=limit
        )
        return [_happening(row) for row in rows]

    async def prune_happenings(self, before: Moment | None, *, keep: int, limit: int = 1000, term: int) -> int:
        return await self._forget(term, "happening_forget", first=floor_id(before), keep=keep, limit=limit)

    async def prune_audit(self, before: Moment, *, limit: int = 1000, term: int) -> int:
        return await self._forget(term, "audit_forget", first=floor_id(before), limit=limit)

    async def _forget(self, term: int, statement: str, **values: object) -> int:
        now = self._now()

        def script() -> Script[int]:
            yield from check_term(self._sql, now, term)
            ((gone,),) = yield self._sql.ask(statement, **values)
            found: int = gone
            return found

        return await self._writing.call(script, transaction=True)


def _happening(row: Row) -> Happening:
    fields: dict[str, Any] = dict(zip(Happening.__struct_fields__, row, strict=True))
    return Happening(**fields | {"kind": Kind(fields["kind"]), "severity": Severity(fields["severity"])})
