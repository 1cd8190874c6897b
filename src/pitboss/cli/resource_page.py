"""Resource pools and their members as tables and pages. Secrets appear by name only."""

from collections.abc import Mapping, Sequence

from pitboss.cli.formatting import ago, when
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.pool_rules import value_text
from pitboss.model.resource import Condition, Entry, PoolRules, Resource
from pitboss.model.text import HIDDEN, counted, one_line
from pitboss.operate.figures import Destination
from pitboss.operate.pool_rules import RuleReading
from pitboss.operate.resources import MemberPage, MemberReading, ResourcePoolReading, limits_text

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
_DESTINATIONS = (Column("Destination", fills=True), Column("Uses", right=True), Column("Refused", right=True))
_RULES = (Column("Rule"), Column("Value"), Column("From", fills=True))
_HISTORY = (
    Column("When", right=True),
    Column("What"),
    Column("Times", right=True, drop=1),
    Column("For", right=True, drop=2),
    Column("Why", fills=True),
)


def draw_pools(screen: Screen, pools: Sequence[ResourcePoolReading], now: Moment) -> None:
    if not pools:
        screen.note("there are no resource pools yet: declare one with app.resources(…), or pitboss resources add")
        return
    screen.table(_POOLS, [_pool_row(pool, now) for pool in pools])


def draw_members(screen: Screen, pool: ResourcePoolReading, now: Moment) -> None:
    if not pool.members:
        screen.note(f'resource pool "{pool.name}" has no members; add some with pitboss resources add or import')
        return
    screen.table(_MEMBERS, [_member_row(member, now) for member in pool.members])


def draw_pool(screen: Screen, pool: ResourcePoolReading, destinations: Mapping[str, Destination], now: Moment) -> None:
    """The pool: its rules, what it can provide, where it was used, and each of its members."""
    rules = pool.rules
    screen.fields([("pool", pool.name), ("members", _conditions(pool)), ("waiting", pool.shortage)])
    screen.fields([("limits", limits_text(rules.limits)), ("strategy", rules.strategy.replace("_", " "))])
    hourly = pool.steady * 3600
    screen.fields([("budget", f"{hourly:,.0f} uses an hour" if 0 < hourly < float("inf") else None)])
    screen.fields([("queues", ", ".join(pool.queues))])
    blacklist = f"after {rules.max_failures} failures in a row, for {spoken(rules.blacklist)} and doubling"
    screen.fields([("cooldown", f"{spoken(rules.cooldown)} after a refusal, doubling"), ("blacklist", blacklist)])
    draw_rules(screen, pool.sources, now)
    if destinations:
        screen.heading("By destination, last hour")
        screen.table(_DESTINATIONS, [_destination_row(name, one) for name, one in destinations.items()])
    screen.heading("Members")
    draw_members(screen, pool, now)


def _destination_row(name: str, one: Destination) -> list[str]:
    return [name, f"{one.uses:,}", f"{100 * one.refused / one.uses:.1f} %" if one.uses else f"{one.refused:,}"]


def draw_rules(screen: Screen, rules: Sequence[RuleReading], now: Moment) -> None:
    """Each rule that is set, and who set it."""
    if rules:
        screen.heading("Rules")
        screen.table(_RULES, [[rule.key, value_text(rule.key, rule.value), _source(rule, now)] for rule in rules])


def _source(rule: RuleReading, now: Moment) -> str:
    who = "set by operator" if rule.source == "operator" else "declared by" if rule.by else "declared"
    text = f"{who} {rule.by}" if rule.by else who
    text += f", {ago(rule.at, now)}" if rule.at else ""
    return f"{text} (declared: {value_text(rule.key, rule.declared)})" if rule.source == "operator" else text


def draw_member(screen: Screen, page: MemberPage, now: Moment) -> None:
    """Everything about one member except the values of its secrets."""
    reading, member, record = page.reading, page.reading.member, page.reading.member.record
    screen.fields([("member", member.id), ("condition", reading.condition), ("ends", _left(reading.until, now))])
    screen.fields([("why", reading.why), ("in use", _in_use(reading)), ("held by", ", ".join(page.held_by))])
    whose = "its own" if member.limits is not None else "the pool's"
    screen.fields([("limits", f"{limits_text(reading.limits)} ({whose})"), ("next use", _next_use(reading, now))])
    uses = f"{record.uses:,}: {record.ok:,} ok, {record.failed:,} failed, {record.refused:,} refused"
    screen.fields([("uses", uses), ("in a row", _in_a_row(member, page.rules))])
    # If it is at fault, its `why` says so.
    if reading.evidence.failed and not reading.at_fault:
        screen.fields([("compared", str(reading.evidence))])
    screen.fields([("fields", ", ".join(f"{key}={value}" for key, value in reading.fields.items()))])
    screen.fields([("secrets", ", ".join(f"{name} {HIDDEN}" for name in sorted(member.secrets)))])
    screen.fields([("labels", ", ".join(member.labels)), ("weight", str(member.weight))])
    screen.fields([("added", when(member.added_at or None, now)), ("last used", when(reading.used_at, now))])
    if record.late:
        screen.fields(
            [("late", f"{record.late:,} of the uses may have passed a limit: their process had been stopped")]
        )
    screen.fields([("last ok", when(record.last_ok_at or None, now)), ("valid until", when(member.valid_until, now))])
    screen.fields([("answers", f"after {record.took / 1000:,.0f} ms on average" if record.took else None)])
    if record.last_error:
        screen.fields([("last error", f"{one_line(record.last_error)} ({ago(record.last_error_at, now)})")])
    if record.history:
        screen.heading("History")
        screen.table(_HISTORY, [_history_row(entry, now) for entry in reversed(record.history)])


def _history_row(entry: Entry, now: Moment) -> list[str]:
    return [
        ago(entry.at, now),
        entry.what,
        f"{entry.times:,}" if entry.times > 1 else "",
        "" if entry.until is None else spoken(max(SECOND, entry.until - entry.at)),
        entry.why or "",
    ]


def _pool_row(pool: ResourcePoolReading, now: Moment) -> list[str]:
    return [
        pool.name,
        f"{len(pool.members):,}",
        *(f"{pool.count(how):,}" for how in Condition),
        _left(pool.next_at, now) or "",
        limits_text(pool.rules.limits),
    ]


def _member_row(reading: MemberReading, now: Moment) -> list[str]:
    member = reading.member
    return [
        member.name,
        reading.condition,
        "" if reading.until is None else spoken(max(SECOND, reading.until - now)),
        str(member.in_use),
        f"{member.record.uses:,}",
        _ok_share(member),
        ago(reading.used_at, now),
        ", ".join(member.labels),
        one_line(reading.why or "", 60),
    ]


def _ok_share(member: Resource) -> str:
    record = member.record
    ended = record.ok + record.failed + record.refused
    return f"{record.ok * 100 // ended} %" if ended else ""


def _conditions(pool: ResourcePoolReading) -> str:
    parts = [f"{pool.count(how):,} {how}" for how in Condition if pool.count(how)]
    return f"{len(pool.members):,}" + (f": {', '.join(parts)}" if parts else "")


def _left(until: Moment | None, now: Moment) -> str | None:
    return None if until is None else f"in {spoken(max(SECOND, until - now))}"


def _in_use(reading: MemberReading) -> str:
    most = "any number" if reading.limits.concurrency is None else str(reading.limits.concurrency)
    return f"{reading.member.in_use} of {most}"


def _next_use(reading: MemberReading, now: Moment) -> str | None:
    if reading.condition is Condition.DISABLED:
        return None
    available = reading.member.available_at
    if available > now and reading.open_until is not None:
        return f"when the open use ends, {_left(available, now)} at the latest"
    return "now" if available <= now else _left(available, now)


def _in_a_row(member: Resource, rules: PoolRules) -> str | None:
    record = member.record
    parts = [
        f"{record.failures} of {rules.max_failures} failures" if record.failures else "",
        counted(record.cooldowns, "refusal") if record.cooldowns else "",
        f"{counted(record.blacklistings, 'time')} on the blacklist; the next use is a trial"
        if record.blacklistings
        else "",
    ]
    return ", ".join(part for part in parts if part) or None
