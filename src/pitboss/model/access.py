"""Who may use the HTTP API, what operators did, and requests that may be repeated."""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput

# How long a request can be repeated under the same key.
REMEMBERED_FOR: Span = 24 * 3600 * SECOND
_MARK = "pbk"


class Role(StrEnum):
    """What a key may do. Every route of the API names the roles that may use it."""

    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the API without its secret: the store has only a digest of that, which is enough to recognise it.

    `id` is the part of the key that may be shown.
    """

    id: str
    name: str
    digest: str
    roles: tuple[Role, ...]
    created_at: Moment = 0
    created_by: str | None = None
    revoked_at: Moment | None = None

    def opened_by(self, secret: str) -> bool:
        """Whether this is its secret. Takes equally long for every wrong one."""
        return self.revoked_at is None and compare_digest(self.digest, digest_of(secret))


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator did. `who` is a key's name or a user, `source` the address or host. The store sets `at`."""

    id: str
    who: str
    act: str
    target: str = ""
    details: Json = "{}"
    source: str = ""
    at: Moment = 0


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """A request under a key: a digest of its body, and the ids that it was given."""

    body: str
    ids: tuple[str, ...]
    at: Moment = 0


def digest_of(secret: str) -> str:
    """Secrets are random and long, so that a plain digest cannot be searched."""
    return sha256(secret.encode()).hexdigest()


def key_text(key_id: str, secret: str) -> str:
    """The whole key, as a client sends it."""
    return f"{_MARK}_{key_id}_{secret}"


def key_parts(text: str) -> tuple[str, str] | None:
    """Id and secret of a key; None if the text does not look like one."""
    mark, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if mark == _MARK and key_id and secret else None


def check_new_key(key: ApiKey, known: Iterable[ApiKey]) -> None:
    """Refuse a second key of the same name: people tell keys apart by it."""
    if any(one.name == key.name and one.revoked_at is None for one in known):
        raise InvalidInput(
            f"there is a key named {key.name} already",
            why="the audit log names keys, so that a name must mean one key",
            fix=f"choose another name, or revoke the old one: pitboss keys revoke {key.name}",
        )


def checked_roles(names: Iterable[str]) -> tuple[Role, ...]:
    """The roles of these names, in the order of their power."""
    wanted = set(names)
    unknown = sorted(wanted - set(Role))
    if unknown or not wanted:
        raise InvalidInput(
            f"{', '.join(unknown)} is not a role" if unknown else "a key needs a role",
            why=f"the roles are {', '.join(Role)}",
            fix="name one or more of them",
        )
    return tuple(role for role in Role if role in wanted)
