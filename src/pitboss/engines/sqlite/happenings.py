"""The log of happenings, and the age of the audit log."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.calls import Calls
from pitboss.engines.sqlite.registry import check_term
from pitboss.model.duration import Moment
from pitboss.model.happening import LAST, Happening, Kind, Severity, floor_id


class HappeningVerbs(Calls):
    """The protocol `Happenings`."""

    async def record_happenings(self, happenings: Sequence[Happening]) -> None:
        rows = [astuple(one) for one in happenings]
        await self._write("record_happenings", lambda act: act.bulk("happening_add", rows), len(rows))

    async def happenings(
        self,
        *,
        limit: int = 100,
        before: str | None = None,
        since: Moment | None = None,
        kinds: Sequence[Kind] = (),
        subject: str = "",
    ) -> list[Happening]:
        values = (floor_id(since), before or LAST, json_list(kinds), subject, limit)
        rows = await self._read(lambda reader: list(reader.rows("happening_list", *values)))
        return [_happening(row) for row in rows]

    async def prune_happenings(self, before: Moment | None, *, keep: int, limit: int = 1000, term: int) -> int:
        first = floor_id(before)
        return await self._write(
            "prune_happenings", lambda act: _forget(act, term, "happening_forget", first, keep, limit), limit
        )

    async def prune_audit(self, before: Moment, *, limit: int = 1000, term: int) -> int:
        first = floor_id(before)
        return await self._write("prune_audit", lambda act: _forget(act, term, "audit_forget", first, limit), limit)


def _forget(act: Act, term: int, statement: str, *values: object) -> int:
    check_term(act, term)
    return act.run(statement, *values)


def _happening(row: Sequence[Any]) -> Happening:
    fields: dict[str, Any] = dict(zip(Happening.__struct_fields__, row, strict=True))
    return Happening(**fields | {"kind": Kind(fields["kind"]), "severity": Severity(fields["severity"])})
