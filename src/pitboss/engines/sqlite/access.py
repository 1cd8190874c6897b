"""Keys of the HTTP API, the audit log, and requests that may be repeated."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.readers import Reader
from pitboss.model.access import REMEMBERED_FOR, ApiKey, AuditEntry, Remembered, Role, check_new_key
from pitboss.model.ids import TaskId

T = TypeVar("T")
_roles = msgspec.json.Decoder(tuple[Role, ...])
_ids = msgspec.json.Decoder(tuple[str, ...])


def add_key(act: Act, key: ApiKey) -> None:
    """As the contract says."""
    check_new_key(key, [_key_of(row) for row in act.rows("api_key_list")])
    about = (key.id, key.name, key.digest, json_list(key.roles))
    act.run("api_key_put", *about, act.now, key.created_by, key.revoked_at)


def revoke_key(act: Act, key_id: str) -> ApiKey | None:
    """As the contract says."""
    row = act.one("api_key_revoke", key_id, act.now)
    return None if row is None else _key_of(row)


def api_keys(reader: Reader) -> list[ApiKey]:
    return sorted((_key_of(row) for row in reader.rows("api_key_list")), key=lambda key: (key.created_at, key.id))


def audited(act: Act, call: Callable[[Act], T], entry: AuditEntry) -> T:
    """Do it, and store the entry if that was not done yet."""
    answer = call(act)
    about = (entry.who, entry.act, entry.target, entry.details, entry.source)
    act.run("audit_add", entry.id, *about, act.now)
    return answer


def audit_log(reader: Reader, limit: int, before: str | None) -> list[AuditEntry]:
    """As the contract says."""
    named = ("audit_list", limit) if before is None else ("audit_list_before", limit, before)
    return [AuditEntry(**dict(zip(AuditEntry.__struct_fields__, row, strict=True))) for row in reader.rows(*named)]


def remember(act: Act, key: str, body: str, ids: Sequence[TaskId]) -> Remembered:
    """As the contract says."""
    row: Any = act.one("request_get", key, act.now - REMEMBERED_FOR)
    if row is not None:
        return Remembered(body=row[0], ids=_ids.decode(row[1]), at=row[2])
    act.run("request_put", key, body, json_list(ids), act.now)
    return Remembered(body=body, ids=tuple(ids), at=act.now)


def _key_of(row: Sequence[Any]) -> ApiKey:
    key_id, name, digest, roles, created_at, created_by, revoked_at = row
    return ApiKey(
        id=key_id,
        name=name,
        digest=digest,
        roles=_roles.decode(roles),
        created_at=created_at,
        created_by=created_by,
        revoked_at=revoked_at,
    )
