"""Keys of the HTTP API, the audit log, and requests that may be repeated."""

from collections.abc import Sequence
from copy import copy
from typing import Self

from msgspec.structs import asdict

from pitboss.engines.postgres.core_protocols import CoreProtocols
from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.access import REMEMBERED_FOR, ApiKey, AuditEntry, Remembered, Role, check_new_key
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput, StoreUnavailable
from pitboss.model.ids import TaskId

_ROUNDS = 10


class AccessProtocol(CoreProtocols):
    """The protocol `Access`."""

    def audited(self, entry: AuditEntry) -> Self:
        if self._entry is not None:
            return self
        audited = copy(self)
        audited._entry = entry
        return audited

    async def add_key(self, key: ApiKey) -> None:
        await self._act(lambda now: _add_key(self._sql, key, now))

    async def revoke_key(self, key_id: str) -> ApiKey | None:
        rows = await self._act_once("api_key_revoke", id=key_id)
        return _api_key(rows[0]) if rows else None

    async def api_keys(self) -> list[ApiKey]:
        return [_api_key(row) for row in await self._read("api_key_list")]

    async def audit_log(self, *, limit: int = 100, before: str | None = None) -> list[AuditEntry]:
        rows = await self._read("audit_list", limit=limit, before=before)
        return [AuditEntry(**dict(zip(AuditEntry.__struct_fields__, row, strict=True))) for row in rows]

    async def remember(self, key: str, body: str, ids: Sequence[TaskId]) -> Remembered:
        for _ in range(_ROUNDS):
            rows = await self._write("request_remember", key=key, body=body, ids=texts(ids), remembered=REMEMBERED_FOR)
            if rows:
                known, given, at = rows[0]
                return Remembered(body=known, ids=tuple(given), at=at)
        raise StoreUnavailable(
            "the request could not be stored",
            why="what other calls stored under its key vanished each time before it could be read",
            fix="repeat the call",
        )


def _add_key(sql: Statements, key: ApiKey, now: Moment | None) -> Script[None]:
    values = asdict(key) | {"roles": texts([role.value for role in key.roles])}
    if not (yield sql.ask("api_key_add", now, **values)):
        check_new_key(key, [_api_key(row) for row in (yield sql.ask("api_key_list"))])
        raise InvalidInput(
            f"there was a key {key.id} already", why="an id must mean one key for ever", fix="make a new key"
        )


def _api_key(row: Row) -> ApiKey:
    fields = dict(zip(ApiKey.__struct_fields__, row, strict=True))
    return ApiKey(**fields | {"roles": tuple(Role(role) for role in fields["roles"])})
