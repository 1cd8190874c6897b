"""Keys of the HTTP API, the audit log, and requests that may be repeated."""

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

from pitboss.engines.verb_marks import open_to_workers
from pitboss.model.access import ApiKey, AuditEntry, Remembered
from pitboss.model.ids import TaskId


@runtime_checkable
class Audited(Protocol):
    """What stores an entry of the audit log together with a change."""

    def audited(self, entry: AuditEntry) -> Self:
        """The same engine, whose acts of operators also store this entry, in the same act as the change. These are the
        verbs of `Control`, `change_queue`, `register`, `forget`, `wish`, `act_on_batch`, `change_lane`, `declare_pool`,
        `limit_pool`, `add_resources`, `change_resources`, `change_partition`, `put_schedule`, `change_schedule`,
        `begin_operation`, `change_operation`, `add_key`, `revoke_key` and `silence_alert`. Several acts store it once.
        An act that fails stores nothing. An engine that has an entry keeps it: who came first knows best who acts."""


@runtime_checkable
class Access(Audited, Protocol):
    """Who may use the API, and what they did."""

    async def add_key(self, key: ApiKey) -> None:
        """Store a key, created now. `InvalidInput` if a key that is not revoked has its name."""

    async def revoke_key(self, key_id: str) -> ApiKey | None:
        """From now on the key opens nothing. Harmless to repeat; None if there is no such key."""

    async def api_keys(self) -> list[ApiKey]:
        """All keys, the oldest first; also the revoked ones."""

    async def audit_log(self, *, limit: int = 100, before: str | None = None) -> list[AuditEntry]:
        """The newest entries, newest first; `before`: only those older than the entry with this id."""

    @open_to_workers
    async def remember(self, key: str, body: str, ids: Sequence[TaskId]) -> Remembered:
        """What was stored under this key within the last day (`REMEMBERED_FOR`); if nothing was, store this. So a
        repeated request gets the ids of the first one. `reclaim` removes what is older."""
