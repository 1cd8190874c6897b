"""Members of resource pools as rows and back."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import Moment
from pitboss.model.resource import Limits, PoolRules, Record, Resource, Sealed, Stage


class Stored(msgspec.Struct, array_like=True):
    """A member's row."""

    number: int
    name: str
    stage: str
    rank: int
    last_used_at: int
    available_at: int
    in_use: int
    enabled: int
    record: str
    labels: str
    about: str


class _About(msgspec.Struct, omit_defaults=True):
    """What changes only when somebody changes the member."""

    fields: Json = "{}"
    secrets: dict[str, Sealed] = {}
    weight: int = 100
    limits: Limits | None = None
    valid_until: Moment | None = None
    disabled_reason: str | None = None
    added_at: Moment = 0


STAGES: Final = {stage.value: stage for stage in Stage}
stored_members: Final = msgspec.json.Decoder(list[Stored])
_record = msgspec.json.Decoder(Record)
_labels = msgspec.json.Decoder(tuple[str, ...])
_about = msgspec.json.Decoder(_About)
_rules = msgspec.json.Decoder(PoolRules)
_encode = msgspec.json.encode


def rules_of(text: str) -> PoolRules:
    return _rules.decode(text)


def rules_text(rules: PoolRules) -> str:
    return _encode(rules).decode()


def member_of(pool: str, row: Stored) -> Resource:
    about = _about.decode(row.about)
    return Resource(
        pool=pool,
        name=row.name,
        fields=about.fields,
        secrets=about.secrets,
        labels=_labels.decode(row.labels),
        weight=about.weight,
        limits=about.limits,
        valid_until=about.valid_until,
        enabled=bool(row.enabled),
        disabled_reason=about.disabled_reason,
        added_at=about.added_at,
        stage=STAGES[row.stage],
        rank=row.rank,
        in_use=row.in_use,
        available_at=row.available_at,
        last_used_at=row.last_used_at,
        record=_record.decode(row.record),
    )


def member_from(pool: str, row: Sequence[Any]) -> Resource:
    """A member of columns in the order of `Stored`."""
    return member_of(pool, Stored(*row))


def standing(number: int, member: Resource) -> tuple[object, ...]:
    """What a use or the end of one changes, as `member_write` takes it."""
    return (
        number,
        member.stage.value,
        member.rank,
        member.last_used_at,
        member.available_at,
        member.in_use,
        member.record.blacklisted_until,
        _encode(member.record).decode(),
    )


def whole(member: Resource) -> tuple[object, ...]:
    """All of it, as `member_put` takes it."""
    about = _About(
        fields=member.fields,
        secrets=member.secrets,
        weight=member.weight,
        limits=member.limits,
        valid_until=member.valid_until,
        disabled_reason=member.disabled_reason,
        added_at=member.added_at,
    )
    return (
        member.pool,
        member.name,
        member.stage.value,
        member.rank,
        member.last_used_at,
        member.available_at,
        member.in_use,
        int(member.enabled),
        member.record.blacklisted_until,
        _encode(member.record).decode(),
        _encode(member.labels).decode(),
        _encode(about).decode(),
    )
