"""The health of a resource: what a report on a use says, what is to blame, and how long a member is out. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pitboss.model.comparison import noted
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.leasing import limits_of, placed, rested_from_end
from pitboss.model.member_history import after_report
from pitboss.model.resource import PoolRules, Record, Report, Resource, ResourceOutcome

# If this many different members fail on one task, or on one destination, the members are not to blame.
NOT_THE_MEMBERS = 3
KEPT_TRIED = 16
# How long a failure on a destination is remembered, unless a use of it succeeds before.
STRIKES_KEPT: Span = 600 * SECOND
_FAULTS = (ResourceOutcome.BLOCKED, ResourceOutcome.RESOURCE_ERROR)


def released(
    resource: Resource,
    rules: PoolRules,
    report: Report | None,
    now: Moment,
    *,
    ejectable: bool = True,
    completed: bool = False,
) -> Resource:
    """Given back. The report says how the use went; None: unknown. `ejectable`: the blacklist has room for it.

    `completed`: its task ended well, which counts for it (see `model.comparison`).
    """
    record = resource.record
    if report is not None:
        record = after_report(record, _judged(resource, rules, report, now, ejectable), report, now)
    compared = record.compared
    if completed and is_good(report):
        compared = noted(compared, failed=False)
    record = msgspec.structs.replace(record, ended_at=now, compared=compared)
    limits = limits_of(resource, rules)
    rested = rested_from_end(limits, resource, now) if limits.delay_from == "end" else 0
    available_at = max(resource.available_at, rested, record.cooldown_until, record.blacklisted_until)
    changed = msgspec.structs.replace(
        resource, in_use=max(0, resource.in_use - 1), available_at=available_at, record=record
    )
    return placed(changed, rules, now)


def may_eject(resource: Resource, rules: PoolRules, report: Report) -> bool:
    """Whether this report would put the member on the blacklist if that has room."""
    record = resource.record
    return report.outcome in _FAULTS and (record.blacklistings > 0 or record.failures + 1 >= rules.max_failures)


def room_on_blacklist(rules: PoolRules, enabled: int, ejected: int) -> bool:
    """Whether one more of the enabled members may go on it; `ejected` does not count the one in question."""
    return ejected + 1 <= min(int(rules.max_ejected * enabled), enabled - 1)


def sent_away(record: Record, rules: PoolRules, now: Moment, *, room: bool) -> Record:
    """Put on the blacklist or, if that has no room, cooled down."""
    return _ejected(record, rules, now) if room else _cooled(record, rules, None, now)


def forgiven(resource: Resource, *, struck: bool = True) -> Resource:
    """Take back a failure that was not this member's fault. A cooldown or blacklisting that it caused stays.

    `struck`: it failed on a destination, which was counted. Else it has tried a task, maybe with an error of the task,
    which was not counted; then only a failure that its newest report told is taken back.
    """
    if not struck and resource.record.last_outcome not in _FAULTS:
        return resource
    record = msgspec.structs.replace(resource.record, failures=max(0, resource.record.failures - 1))
    return msgspec.structs.replace(resource, record=record)


def without_faults(record: Record) -> Record:
    """The record after an operator's reset."""
    return msgspec.structs.replace(
        record, failures=0, cooldowns=0, cooldown_until=0, blacklistings=0, blacklisted_until=0, compared=0
    )


class Judgement(NamedTuple):
    """A report as it counts, and the members whose earlier failures are taken back, see `forgiven`."""

    report: Report
    forgiven: tuple[str, ...] = ()
    struck: bool = False


def judge(report: Report, name: str, tried: Sequence[str], strikers: Sequence[str]) -> Judgement:
    """What is to blame: the member, or the task or destination that other members have failed on too.

    `tried` failed this task before, `strikers` failed on this destination since a use of it last succeeded. While
    another member is among those, the destination is in doubt, and a member's second failure there does not count.
    """
    if report.outcome not in _FAULTS:
        return Judgement(report)
    excused = msgspec.structs.replace(report, outcome=ResourceOutcome.TASK_ERROR)
    for those, struck in ((tried, False), (strikers, True)):
        others = {*those} - {name}
        if len(others) >= NOT_THE_MEMBERS - 1:
            just_now = len(others) == NOT_THE_MEMBERS - 1
            return Judgement(excused, tuple(sorted(others)) if just_now else (), struck)
    return Judgement(excused if name in strikers and len(strikers) > 1 else report)


class GivenBack(NamedTuple):
    """A member after it was given back, and what else that changes.

    `outdone` names members that failed the task before (see `outdone`), `forgiven` those whose last failure is taken
    back (see `forgiven`, also for `struck`). `strike` True adds this member to those that failed on the report's
    destination, False forgets all of them, None leaves them as they are.
    """

    member: Resource
    forgiven: tuple[str, ...] = ()
    strike: bool | None = None
    outdone: tuple[str, ...] = ()
    struck: bool = False


def given_back(
    member: Resource,
    rules: PoolRules,
    report: Report | None,
    now: Moment,
    *,
    tried: Sequence[str] = (),
    strikers: Sequence[str] = (),
    room: bool = True,
    completed: bool = False,
) -> GivenBack:
    """The end of a hold on a member.

    `tried` are members that this task failed with before, `strikers` those that failed on the report's destination
    within `STRIKES_KEPT`. `room`: the blacklist has room for it (`room_on_blacklist`); that only matters if
    `may_eject`. `completed`: it was held by a task, which is completed.
    """
    if report is None:
        return GivenBack(released(member, rules, None, now))
    counted, excused, struck = judge(report, member.name, tried, strikers)
    after = released(member, rules, counted, now, ejectable=room, completed=completed)
    worse = tuple(name for name in tried if name != member.name) if completed and is_good(report) else ()
    if report.destination is None:
        return GivenBack(after, excused, outdone=worse, struck=struck)
    strike = True if is_fault(report.outcome) else False if is_good(report) else None
    return GivenBack(after, excused, strike, worse, struck)


def is_fault(outcome: ResourceOutcome) -> bool:
    """Whether a report says that the member did not work; with a destination, that is a strike."""
    return outcome in _FAULTS


def is_good(report: Report | None) -> bool:
    return report is not None and report.outcome is ResourceOutcome.OK


def tried_after(tried: Sequence[str], name: str, outcome: ResourceOutcome) -> tuple[str, ...]:
    """The members that a task has failed with, whatever it raised, after one more use: by the report, not by the
    judgement. A member whose limit was reached did not fail: it cools down."""
    if outcome in (ResourceOutcome.OK, ResourceOutcome.RATE_LIMITED):
        return tuple(tried)
    return (*(one for one in tried if one != name), name)[-KEPT_TRIED:]


def _judged(resource: Resource, rules: PoolRules, report: Report, now: Moment, ejectable: bool) -> Record:
    record = msgspec.structs.replace(resource.record, last_outcome=report.outcome)
    if report.error is not None:
        record = msgspec.structs.replace(record, last_error=report.error, last_error_at=now)
    match report.outcome:
        case ResourceOutcome.OK:
            # A good probe is a new beginning.
            probe = record.blacklistings and record.blacklisted_until <= now
            return msgspec.structs.replace(
                record,
                ok=record.ok + 1,
                failures=0,
                cooldowns=0,
                blacklistings=0,
                last_ok_at=now,
                compared=0 if probe else record.compared,
            )
        case ResourceOutcome.RATE_LIMITED:
            return _cooled(msgspec.structs.replace(record, refused=record.refused + 1), rules, report, now)
        case ResourceOutcome.TASK_ERROR:
            return record
    # A holder that has it while it is on the blacklist got it before: that is no probe, and no new failure.
    fresh = record.blacklisted_until <= now
    record = msgspec.structs.replace(record, failed=record.failed + 1, failures=record.failures + fresh)
    due = fresh and may_eject(resource, rules, report)
    # A block cools it, and so does a blacklist without room; both together are still one refusal.
    if report.outcome is ResourceOutcome.BLOCKED or (due and not ejectable):
        record = _cooled(record, rules, report, now)
    return _ejected(record, rules, now) if due and ejectable else record


def _cooled(record: Record, rules: PoolRules, report: Report | None, now: Moment) -> Record:
    """Not used for a while: as long as the far side asked, or longer each time. Never shorter than it already is."""
    asked, cooling = None if report is None else report.retry_after, record.cooldown_until > now
    if cooling and asked is None:
        # Several holders were refused at the same time: that is one refusal.
        return record
    pause = min(rules.cooldown * 2 ** min(record.cooldowns, 30) if asked is None else asked, rules.cooldown_cap)
    until = max(record.cooldown_until, now + pause)
    return msgspec.structs.replace(record, cooldowns=record.cooldowns + (not cooling), cooldown_until=until)


def _ejected(record: Record, rules: PoolRules, now: Moment) -> Record:
    pause = min(rules.blacklist * 2 ** min(record.blacklistings, 30), rules.blacklist_cap)
    return msgspec.structs.replace(
        record, failures=0, blacklistings=record.blacklistings + 1, blacklisted_until=now + pause
    )
