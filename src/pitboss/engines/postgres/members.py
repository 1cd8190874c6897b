"""Members of resource pools as rows: reading and locking them, reading their uses, writing many at once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.rows import numbers, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.engines.postgres.use_history import UseHistory
from pitboss.model.duration import Moment
from pitboss.model.leasing import limits_of, most_remembered
from pitboss.model.resource import Limits, PoolRules, Record, Resource, Sealed, Stage

# How many of the newest uses are read where one is moved: others have rarely been granted since.
NEWEST = 4
_STAGES = {stage.value: stage for stage in Stage}


class _Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a member that no statement looks at."""

    fields: str = "{}"
    secrets: dict[str, Sealed] = {}
    weight: int = 100
    limits: Limits | None = None
    valid_until: Moment | None = None
    disabled_reason: str | None = None
    added_at: Moment = 0


_encode = msgspec.json.Encoder().encode
_decode_settings = msgspec.json.Decoder(_Settings).decode
_decode_record = msgspec.json.Decoder(Record).decode
_decode_rules = msgspec.json.Decoder(PoolRules).decode


class Member(NamedTuple):
    """A row: its number, and what it says."""

    number: int
    resource: Resource


def member(row: Row) -> Member:
    number, pool, name, stage, rank, last_used_at, available_at, in_use, enabled, labels, settings, record = row
    kept = _decode_settings(settings)
    resource = Resource(
        pool=pool,
        name=name,
        fields=kept.fields,
        secrets=kept.secrets,
        labels=tuple(labels),
        weight=kept.weight,
        limits=kept.limits,
        valid_until=kept.valid_until,
        enabled=enabled,
        disabled_reason=kept.disabled_reason,
        added_at=kept.added_at,
        stage=_STAGES[stage],
        rank=rank,
        in_use=in_use,
        available_at=available_at,
        last_used_at=last_used_at,
        record=_decode_record(record),
    )
    return Member(number, resource)


def rules_of(text: str | None) -> PoolRules:
    return PoolRules() if text is None else _decode_rules(text)


def rules_text(rules: PoolRules) -> str:
    return _encode(rules).decode()


def rules_now(sql: Statements, pools: Iterable[str], now: Moment | None) -> Script[tuple[Moment, dict[str, PoolRules]]]:
    """The moment and the pools' rules, read behind the locks on members: a change of rules locks all members."""
    wanted = sorted(set(pools))
    rows = yield sql.ask("pool_rules", now, names=texts(wanted))
    found = {name: rules_of(text) for _, name, text in rows if name is not None}
    return rows[0][0], {name: found.get(name, PoolRules()) for name in wanted}


def locked(sql: Statements, ids: Iterable[str], *, wait: bool = True) -> Script[dict[str, Member]]:
    """Lock these members (pool/name) in the order of their numbers; those that exist, by id.

    With `wait` false: only those that no other transaction has locked.
    """
    wanted = set(ids)
    return by_id((yield locking(sql, wanted, wait=wait))) if wanted else {}


def locking(sql: Statements, ids: Iterable[str], *, wait: bool = True) -> Ask:
    """The statement of `locked`."""
    pairs = [one.split("/", 1) for one in sorted(set(ids))]
    how = "member_lock" if wait else "member_lock_free"
    return sql.ask(how, pools=texts([pool for pool, _ in pairs]), names=texts([name for _, name in pairs]))


def by_id(rows: Iterable[Row]) -> dict[str, Member]:
    found = [member(row) for row in rows]
    return {one.resource.id: one for one in found}


def read_uses(
    sql: Statements, uses: UseHistory, members: Iterable[Member], rules: Mapping[str, PoolRules], ahead: int = 1
) -> Script[None]:
    """Read what `granted` will ask for the next `ahead` uses of each, and `restated` for the next one."""
    asked = reading_uses(sql, uses, members, rules, ahead)
    if asked is not None:
        uses.note_rows((yield asked))


def reading_uses(
    sql: Statements, uses: UseHistory, members: Iterable[Member], rules: Mapping[str, PoolRules], ahead: int = 1
) -> Ask | None:
    """The statement of `read_uses`, for `UseHistory.note_rows`; None if nothing must be read.

    It reads as many of the newest uses as of those at the end of each window: a use that moves passes few others.
    """
    wanted: dict[tuple[int, int], None] = {}
    for number, resource in members:
        newest = resource.record.uses
        for window in limits_of(resource, rules[resource.pool]).windows:
            first = newest - window.count + 1
            places = {*range(first - (ahead > 1), first + ahead + 1), *range(newest - ahead + 1, newest + 1)}
            wanted |= dict.fromkeys((number, use) for use in places if 1 <= use <= newest)
    # Uses that this act has added are not in the table yet: reading them would forget them.
    missing = [(number, use) for number, use in wanted if not uses.knows(number, use)]
    if not missing:
        return None
    return sql.ask("use_at", members=numbers([one for one, _ in missing]), numbers=numbers([use for _, use in missing]))


def read_all_uses(sql: Statements, uses: UseHistory, number: int) -> Script[None]:
    """Read all uses of a member that are remembered."""
    uses.note_all([number], (yield sql.ask("use_list", members=numbers([number]))))


def write(
    sql: Statements,
    members: Sequence[Member],
    rules: Mapping[str, PoolRules],
    uses: UseHistory | None = None,
    counts: CountChanges | None = None,
) -> Script[None]:
    """Write what claims and reports change of members, the uses of this act, and counts of tasks that changed."""
    counts = counts or CountChanges()
    if not members:
        yield from counts.write(sql)
        return
    fresh = [] if uses is None else uses.fresh
    kept = {one.number: most_remembered(limits_of(one.resource, rules[one.resource.pool])) for one in members}
    yield sql.ask(
        "member_write",
        **_standing(members),
        used=numbers([number for number, _, _ in fresh]),
        uses=numbers([use for _, use, _ in fresh]),
        ats=numbers([at for _, _, at in fresh]),
        kept=numbers([kept[number] for number, _, _ in fresh]),
        **counts.columns(),
    ).unheard()


def rewrite(sql: Statements, members: Sequence[Member]) -> Script[None]:
    """Write the members with their settings."""
    if members:
        yield sql.ask("member_rewrite", **_standing(members), **_settings([one.resource for one in members]))


def insert(sql: Statements, members: Sequence[Resource]) -> Script[None]:
    if members:
        rows = [Member(0, resource) for resource in members]
        yield sql.ask(
            "member_add",
            pool=members[0].pool,
            names=texts([resource.name for resource in members]),
            **_standing(rows),
            **_settings(members),
        )


def _standing(members: Sequence[Member]) -> dict[str, object]:
    found = [one.resource for one in members]
    return {
        "members": numbers([one.number for one in members]),
        "ranks": numbers([one.rank for one in found]),
        "last_uses": numbers([one.last_used_at for one in found]),
        "available": numbers([one.available_at for one in found]),
        "blacklisted": numbers([one.record.blacklisted_until for one in found]),
        "in_use": numbers([one.in_use for one in found]),
        "stages": texts([one.stage.value for one in found]),
        "records": texts([_encode(one.record).decode() for one in found]),
    }


def _settings(members: Sequence[Resource]) -> dict[str, object]:
    return {
        "enabled": "{" + ",".join("t" if one.enabled else "f" for one in members) + "}",
        "labels": texts([texts(one.labels) for one in members]),
        "settings": texts([_encode(_kept(one)).decode() for one in members]),
    }


def _kept(member: Resource) -> _Settings:
    return _Settings(
        fields=member.fields,
        secrets=member.secrets,
        weight=member.weight,
        limits=member.limits,
        valid_until=member.valid_until,
        disabled_reason=member.disabled_reason,
        added_at=member.added_at,
    )
