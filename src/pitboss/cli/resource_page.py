"""Resource pools and their members as tables, as pages, and as documents. Secrets only ever by name."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pitboss.cli.screen import Column, Screen
from pitboss.cli.words import ago, local, masked, one_line, utc
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.leasing import condition, limits_of
from pitboss.model.resource import Condition, Limits, PoolRules, Resource
from pitboss.model.supply import PoolView, steady
from pitboss.model.task import Task

MASK = "***"
_POOLS = (
    Column("Pool", fills=True),
    Column("Members", right=True),
    Column("Ready", right=True),
    Column("Busy", right=True),
    Column("Resting", right=True, drop=4),
    Column("Cooling", right=True),
    Column("Blacklisted", right=True, drop=1),
    Column("Disabled", right=True, drop=2),
    Column("Next", drop=3),
    Column("Limits", drop=5),
)
_MEMBERS = (
    Column("Name", fills=True),
    Column("Condition"),
    Column("For", right=True),
    Column("In use", right=True, drop=3),
    Column("Uses", right=True, drop=2),
    Column("Ok", right=True),
    Column("Last used", right=True, drop=4),
    Column("Labels", drop=6),
    Column("Why", drop=5),
)
_LONGEST = 200


def pool_row(view: PoolView, now: Moment) -> list[str]:
    standing = [condition(member, view.rules, now) for member in view.members]
    found = [how for how, _ in standing]
    back = [until for _, until in standing if until is not None]
    return [
        view.name,
        f"{len(view.members):,}",
        *(f"{found.count(how):,}" for how in Condition),
        f"in {spoken(max(SECOND, min(back) - now))}" if back and Condition.READY not in found else "",
        limits_text(view.rules.limits),
    ]


def draw_pools(screen: Screen, views: Sequence[PoolView], now: Moment) -> None:
    if not views:
        screen.note("there are no resource pools yet: declare one with app.resources(…), or pitboss resources add")
        return
    screen.table(_POOLS, [pool_row(view, now) for view in views])


def draw_members(screen: Screen, view: PoolView, members: Sequence[Resource], now: Moment) -> None:
    if not members:
        screen.note(f'pool "{view.name}" has no members; add some with pitboss resources add or import')
        return
    screen.table(_MEMBERS, [_member_row(view.rules, member, now) for member in members])


def draw_pool(screen: Screen, view: PoolView, queues: Sequence[str], now: Moment) -> None:
    """The pool: its rules, what it can give, and each of its members."""
    rules, supply = view.rules, view.supply(now)
    screen.facts([("pool", view.name), ("members", _standing(view, now)), ("waiting", view.shortage(now))])
    screen.facts([("limits", limits_text(rules.limits)), ("strategy", rules.strategy.replace("_", " "))])
    rate = supply.steady * 3600
    screen.facts([("budget", f"{rate:,.0f} uses an hour" if 0 < rate < float("inf") else None)])
    screen.facts([("queues", ", ".join(queues))])
    away = f"after {rules.max_failures} failures in a row, for {spoken(rules.blacklist)} and doubling"
    screen.facts([("cooldown", f"{spoken(rules.cooldown)} after a refusal, doubling"), ("blacklist", away)])
    screen.heading("Members")
    draw_members(screen, view, view.members, now)


def draw_member(screen: Screen, view: PoolView, member: Resource, holders: Sequence[Task], now: Moment) -> None:
    """Everything about one member but what its secrets are."""
    limits, record = limits_of(member, view.rules), member.record
    how, until = condition(member, view.rules, now)
    screen.facts([("member", member.id), ("condition", how), ("ends", _ends(until, now)), ("why", _why(member, how))])
    screen.facts([("in use", _in_use(member, limits)), ("held by", ", ".join(task.id for task in holders))])
    whose = "its own" if member.limits is not None else "the pool's"
    screen.facts([("limits", f"{limits_text(limits)} ({whose})"), ("next use", _next(member, how, now))])
    screen.facts([("uses", f"{record.uses:,}: {record.ok:,} ok, {record.failed:,} failed, {record.refused:,} refused")])
    screen.facts([("in a row", _in_a_row(member, view.rules))])
    screen.facts([("fields", _fields_text(member)), ("secrets", _secrets_text(member))])
    screen.facts([("labels", ", ".join(member.labels)), ("weight", str(member.weight))])
    for label, moment in (
        ("added", member.added_at),
        ("last used", member.last_used_at),
        ("last ok", record.last_ok_at),
        ("valid until", member.valid_until),
    ):
        screen.facts([(label, f"{local(moment)} ({ago(moment, now)})" if moment else None)])
    if record.last_error:
        screen.facts([("last error", f"{one_line(record.last_error)} ({ago(record.last_error_at, now)})")])


def pool_document(view: PoolView, now: Moment) -> dict[str, Any]:
    supply = view.supply(now)
    found = [condition(member, view.rules, now)[0] for member in view.members]
    return {
        "name": view.name,
        "members": len(view.members),
        "conditions": {how.value: found.count(how) for how in Condition if how in found},
        "waiting": view.shortage(now),
        "steady_per_second": None if supply.steady == float("inf") else supply.steady,
        "rules": _rules_document(view.rules),
    }


def member_document(view: PoolView, member: Resource, now: Moment) -> dict[str, Any]:
    how, until = condition(member, view.rules, now)
    record = member.record
    return {
        "pool": member.pool,
        "name": member.name,
        "condition": how,
        "until": utc(until),
        "why": _why(member, how),
        "enabled": member.enabled,
        "in_use": member.in_use,
        "available_at": utc(member.available_at or None),
        "fields": open_fields(member),
        "secrets": dict.fromkeys(sorted(member.secrets), MASK),
        "labels": list(member.labels),
        "weight": member.weight,
        "limits": _limits_document(limits_of(member, view.rules)),
        "own_limits": member.limits is not None,
        "uses": record.uses,
        "ok": record.ok,
        "failed": record.failed,
        "refused": record.refused,
        "failures_in_a_row": record.failures,
        "last_outcome": record.last_outcome,
        "last_error": record.last_error,
        "last_error_at": utc(record.last_error_at or None),
        "last_ok_at": utc(record.last_ok_at or None),
        "last_used_at": utc(member.last_used_at or None),
        "added_at": utc(member.added_at or None),
        "valid_until": utc(member.valid_until),
    }


def open_fields(member: Resource) -> dict[str, Any]:
    """The fields, without a password that somebody left in a URL."""
    found = from_json(member.fields)
    return {key: masked(value) if isinstance(value, str) and "://" in value else value for key, value in found.items()}


def limits_text(limits: Limits) -> str:
    parts = [f"{window.count}/{spoken(window.per)}" for window in limits.windows]
    if limits.min_delay or limits.jitter:
        least, most = limits.min_delay, limits.min_delay + limits.jitter
        gap = spoken(least) if least == most else f"{spoken(least)}–{spoken(most)}"
        parts.append(f"{gap} between uses" + (" after the end" if limits.delay_from == "end" else ""))
    parts.append("any number at a time" if limits.concurrency is None else f"{limits.concurrency} at a time")
    return ", ".join(parts)


def _member_row(rules: PoolRules, member: Resource, now: Moment) -> list[str]:
    how, until = condition(member, rules, now)
    return [
        member.name,
        how,
        "" if until is None else spoken(max(SECOND, until - now)),
        str(member.in_use),
        f"{member.record.uses:,}",
        _health(member),
        ago(member.last_used_at or None, now),
        ", ".join(member.labels),
        one_line(_why(member, how) or "", 60),
    ]


def _health(member: Resource) -> str:
    record = member.record
    ended = record.ok + record.failed + record.refused
    return f"{record.ok * 100 // ended} %" if ended else ""


def _why(member: Resource, how: Condition) -> str | None:
    if how is Condition.DISABLED:
        return member.disabled_reason
    if how in (Condition.COOLING, Condition.BLACKLISTED):
        told = member.record.last_error or member.record.last_outcome
        return None if told is None else one_line(str(told), _LONGEST)
    return None


def _standing(view: PoolView, now: Moment) -> str:
    found = [condition(member, view.rules, now)[0] for member in view.members]
    parts = [f"{found.count(how):,} {how}" for how in Condition if how in found]
    return f"{len(found):,}" + (f": {', '.join(parts)}" if parts else "")


def _ends(until: Moment | None, now: Moment) -> str | None:
    return None if until is None else f"in {spoken(max(SECOND, until - now))}"


def _in_use(member: Resource, limits: Limits) -> str:
    most = "any number" if limits.concurrency is None else str(limits.concurrency)
    return f"{member.in_use} of {most}"


def _next(member: Resource, how: Condition, now: Moment) -> str | None:
    if how is Condition.DISABLED:
        return None
    return "now" if member.available_at <= now else f"in {spoken(max(SECOND, member.available_at - now))}"


def _in_a_row(member: Resource, rules: PoolRules) -> str | None:
    record = member.record
    parts = [
        f"{record.failures} of {rules.max_failures} failures" if record.failures else "",
        f"{record.cooldowns} refusals" if record.cooldowns else "",
        f"on probation after {record.blacklistings} times on the blacklist" if record.blacklistings else "",
    ]
    return ", ".join(part for part in parts if part) or None


def _fields_text(member: Resource) -> str:
    return ", ".join(f"{key}={value}" for key, value in open_fields(member).items())


def _secrets_text(member: Resource) -> str:
    return ", ".join(f"{name} {MASK}" for name in sorted(member.secrets))


def _rules_document(rules: PoolRules) -> dict[str, Any]:
    spans = ("bound_for", "cooldown", "cooldown_cap", "blacklist", "blacklist_cap")
    found = dict(msgspec.structs.asdict(rules))
    return {key: value / SECOND if key in spans else value for key, value in found.items()} | {
        "limits": _limits_document(rules.limits)
    }


def _limits_document(limits: Limits) -> dict[str, Any]:
    rate = steady(limits)
    return {
        "windows": [{"count": window.count, "seconds": window.per / SECOND} for window in limits.windows],
        "min_delay": limits.min_delay / SECOND,
        "jitter": limits.jitter / SECOND,
        "delay_from": limits.delay_from,
        "concurrency": limits.concurrency,
        "guard": limits.guard / SECOND,
        "steady_per_second": None if rate == float("inf") else rate,
    }
