"""Members of resource pools as rows and back."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import Moment
from pitboss.model.resource import Limits, PoolRules, Record, Resource, Sealed, Stage


class MemberRow(msgspec.Struct, array_like=True):
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
    """The part that only a change of the member changes."""

    fields: Json = "{}"
    secrets: dict[str, Sealed] = {}
    weight: int = 100
    limits: Limits | None = None
    valid_until: Moment | None = None
    disabled_reason: str | None = None
    added_at: Moment = 0


STAGES: Final = {stage.value: stage for stage in Stage}
member_rows: Final = msgspec.json.Decoder(list[MemberRow])
_record = msgspec.json.Decoder(Record)
_labels = msgspec.json.Decoder(tuple[str, ...])
_about = msgspec.json.Decoder(_About)
_rules = msgspec.json.Decoder(PoolRules)
_encode = msgspec.json.encode


def rules_of(text: str) -> PoolRules:
    return _rules.decode(text)


def rules_text(rules: PoolRules) -> str:
    return _encode(rules).decode()


def member_of(pool: str, row: MemberRow) -> Resource:
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
    """A member of columns in the order of `MemberRow`."""
    return member_of(pool, MemberRow(*row))


def standing(number: int, member: Resource) -> tuple[object, ...]:
    """The fields that a use, or its end, changes, as `member_write` takes them."""
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
    """All fields, as `member_put` takes them."""
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
