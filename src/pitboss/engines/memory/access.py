"""Keys of the HTTP API, the audit log, and requests that may be repeated."""

from collections.abc import Sequence
from copy import copy
from typing import Self

from msgspec.structs import replace

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.access import REMEMBERED_FOR, ApiKey, AuditEntry, Remembered, check_new_key
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId


class AccessVerbs(Verbs):
    """The protocol `Access`."""

    def audited(self, entry: AuditEntry) -> Self:
        if self.entry is not None:
            return self
        audited = copy(self)
        audited.entry = entry
        return audited

    async def add_key(self, key: ApiKey) -> None:
        check_new_key(key, self.tables.api_keys.values())
        self.tables.api_keys[key.id] = replace(key, created_at=self.clock.now())
        self.audit()

    async def revoke_key(self, key_id: str) -> ApiKey | None:
        key = self.tables.api_keys.get(key_id)
        if key is not None and key.revoked_at is None:
            key = self.tables.api_keys[key_id] = replace(key, revoked_at=self.clock.now())
        self.audit()
        return key

    async def api_keys(self) -> list[ApiKey]:
        return sorted(self.tables.api_keys.values(), key=lambda key: (key.created_at, key.id))

    async def audit_log(self, *, limit: int = 100, before: str | None = None) -> list[AuditEntry]:
        newest = sorted(self.tables.audit.values(), key=lambda entry: entry.id, reverse=True)
        return [entry for entry in newest if before is None or entry.id < before][:limit]

    async def remember(self, key: str, body: str, ids: Sequence[TaskId]) -> Remembered:
        now = self.clock.now()
        known = self.tables.requests.get(key)
        if known is None or known.at + REMEMBERED_FOR <= now:
            known = self.tables.requests[key] = Remembered(body=body, ids=tuple(ids), at=now)
        return known

    def forget_old_requests(self, now: Moment) -> None:
        kept = {key: one for key, one in self.tables.requests.items() if one.at + REMEMBERED_FOR > now}
        self.tables.requests = kept
