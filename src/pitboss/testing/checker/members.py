"""Promises about members: no limit is exceeded, no member is given while away, and each is given back."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pitboss.model.duration import Moment, Span
from pitboss.model.leasing import APART, open_span
from pitboss.model.resource import Limits, Report, ResourceOutcome
from pitboss.model.states import State
from pitboss.testing import history as acts
from pitboss.testing.checker.evidence import Evidence
from pitboss.testing.checker.holdings import Grant, Holdings, LimitsInForce
from pitboss.testing.checker.violation import Violation, shown
from pitboss.testing.history import FOREVER, Call

LIMITS = "no limit of a member is ever exceeded"
AWAY = "no member is given that is cooling or disabled"
GIVEN_BACK = "a member that was given is given back, once"


class Refusal(NamedTuple):
    """A report that surely counted, and until when the member must rest after it."""

    call: Call
    until: Moment


def check_members(seen: Evidence) -> Iterator[Violation]:
    holdings = Holdings(seen)
    for member, grants in holdings.grants.items():
        limits_in_force = holdings.limits_in_force(member)
        for in_force in limits_in_force:
            within = [grant for grant in grants if in_force.governs(grant.call)]
            if in_force.limits is not None:
                yield from _check_limits(member, in_force.limits, within)
                yield from _check_open(holdings, member, in_force.limits, within)
        yield from _check_away(seen, member, grants, limits_in_force)
        yield from _check_disabled(seen, member, grants)
    yield from _check_given_back(seen, holdings)


def _check_limits(member: str, limits: Limits, grants: list[Grant]) -> Iterator[Violation]:
    for count, span in _spans(limits):
        yield from _check_spans(member, grants, count, span + limits.guard)
    if limits.concurrency is not None:
        yield from _check_at_once(member, grants, limits.concurrency)


def _check_spans(member: str, grants: list[Grant], count: int, span: int) -> Iterator[Violation]:
    for index in range(len(grants) - count):
        few = grants[index : index + count + 1]
        if few[-1].at - few[0].at < span:
            yield _fault(
                LIMITS, f"member {member}: {len(few)} uses within {span} µs, but only {count} are allowed", few
            )
            return


def _check_open(holdings: Holdings, member: str, limits: Limits, grants: list[Grant]) -> Iterator[Violation]:
    """A use that has surely not ended counts from the last moment at which it can be made."""
    if not open_span(limits):
        return
    for place, grant in enumerate(grants):
        moments = [(holdings.counts_from(use, grant.call), use) for use in grants[:place]]
        for count, span in _spans(limits):
            within = [use for moment, use in moments if moment > grant.at - span]
            if len(within) >= count:
                what = f"member {member}: used at {grant.at}, though {len(within)} uses count within {span} µs"
                yield _fault(LIMITS, f"{what}, and only {count} are allowed", [*within, grant])
                return


def _spans(limits: Limits) -> Iterator[tuple[int, Span]]:
    """How many uses are allowed within which span. Open uses of one moment are told apart by a few microseconds."""
    apart = APART if open_span(limits) else 0
    for window in limits.windows:
        yield window.count, window.per - apart
    if limits.min_delay and limits.delay_from == "start":
        yield 1, limits.min_delay - apart


def _check_at_once(member: str, grants: list[Grant], most: int) -> Iterator[Violation]:
    held = [grant for grant in grants if grant.held_until is not None]
    for grant in held:
        together = [other for other in held if other.call is grant.call or other.covers(grant.call)]
        if len(together) > most:
            yield _fault(LIMITS, f"member {member}: {len(together)} hold it at once, but only {most} may", together)
            return


def _check_away(
    seen: Evidence, member: str, grants: list[Grant], limits_in_force: list[LimitsInForce]
) -> Iterator[Violation]:
    for refusal in _refusals(seen, member, grants, limits_in_force):
        forgotten = _first_reset(seen, member, refusal.call)
        for grant in grants:
            after = grant.call.begun > refusal.call.ended and grant.call.ended < forgotten
            if after and grant.at < refusal.until:
                line = shown(refusal.call, f"{member} was refused, to rest until {refusal.until}")
                yield _fault(AWAY, f"member {member} was given at {grant.at}, while it was cooling", [grant], line)
                return


def _refusals(
    seen: Evidence, member: str, grants: list[Grant], limits_in_force: list[LimitsInForce]
) -> Iterator[Refusal]:
    """Refusals that say for how long. They cool a member whatever caused them, even if it is cooling already."""
    for grant in grants:
        kind, _, whom = grant.whom.partition(" ")
        for call, report in _reports(seen, grant, whom) if kind == "task" else _lease_reports(seen, grant, whom):
            in_force = next((one for one in limits_in_force if one.governs(call)), None)
            if in_force is None or in_force.rules is None or report is None or call.asked_at is None:
                continue
            if report.outcome is ResourceOutcome.RATE_LIMITED and report.retry_after is not None:
                yield Refusal(call, call.asked_at + min(report.retry_after, in_force.rules.cooldown_cap))


def _reports(seen: Evidence, grant: Grant, task: str) -> Iterator[tuple[Call, Report | None]]:
    """The first settlement of the claim, if it was surely the one that was applied."""
    given = [one.claim for one in seen.given.get(task, ()) if one.call is grant.call]
    tokens = [claim.token for claim in given]
    said = [one for one in seen.written.get(task, ()) if one.settlement.token in tokens and not one.is_progress]
    if said and said[0].applied and not any(one.unknown for one in said):
        yield said[0].call, said[0].settlement.report


def _lease_reports(seen: Evidence, grant: Grant, lease: str) -> Iterator[tuple[Call, Report | None]]:
    """The report with which the lease was released, unless its name may have been used for another lease by then."""
    for call in (call for call in seen.calls if call.begun > grant.call.ended):
        match call.act:
            case acts.Acquire(lease=name) if name == lease:
                return
            case acts.Release(lease=name, released=released, report=report) if name == lease:
                if released:
                    yield call, report
                return


def _first_reset(seen: Evidence, member: str, after: Call) -> int:
    """When an operator may first have reset the member, or removed it so that another took its name."""
    return next((call.begun for call in _changes(seen, member) if call.ended > after.begun and _resets(call)), FOREVER)


def _resets(call: Call) -> bool:
    return isinstance(call.act, acts.ChangeResources) and (call.act.change is None or call.act.change.reset)


def _changes(seen: Evidence, member: str) -> Iterator[Call]:
    pool, _, name = member.partition("/")
    for call in seen.calls:
        act = call.act
        if not isinstance(act, acts.ChangeResources) or act.pool != pool or call.phase == "fail":
            continue
        if act.names is None or name in act.names:
            yield call


def _check_disabled(seen: Evidence, member: str, grants: list[Grant]) -> Iterator[Violation]:
    """No grant from an answered disabling until the next call that may have enabled the member."""
    switched = [call for call in _changes(seen, member) if _switches(call)]
    for index, call in enumerate(switched):
        act = call.act
        if not isinstance(act, acts.ChangeResources) or act.change is None or act.change.enabled is not False:
            continue
        until = switched[index + 1].begun if index + 1 < len(switched) else FOREVER
        for grant in grants:
            new = grant.held_until is not None and call.answered
            if new and grant.call.begun > call.ended and grant.call.ended < until:
                line = shown(call, f"{member} was disabled")
                yield _fault(AWAY, f"member {member} was given to {grant.whom}, though disabled", [grant], line)
                return


def _switches(call: Call) -> bool:
    act = call.act
    return isinstance(act, acts.ChangeResources) and (
        act.change is None or not isinstance(act.change.enabled, msgspec.UnsetType)
    )


def _check_given_back(seen: Evidence, holdings: Holdings) -> Iterator[Violation]:
    """At the end only running tasks, and leases that may still be held, use members."""
    running = Counter(task.resource for task in seen.final.tasks if task.state is State.RUNNING)
    unknown = any(call.unknown for calls in holdings.leases.values() for call in calls)
    for member in seen.final.resources:
        grants = holdings.grants.get(member.id, [])
        leases = sum(grant.whom.startswith("lease") and _may_be_held(seen, grant) for grant in grants)
        if member.in_use > running[member.id] + leases and not unknown:
            what = f"member {member.id} is in use {member.in_use} times, but {running[member.id]} tasks run with it"
            yield _fault(GIVEN_BACK, f"{what}, and {leases} leases may be held", grants[-20:])


def _may_be_held(seen: Evidence, grant: Grant) -> bool:
    """Whether the lease was neither surely released, nor ended by a sweep after its time."""
    lease = grant.whom.removeprefix("lease ")
    act, over = grant.call.act, 0
    if isinstance(act, acts.Acquire) and act.leased is not None:
        over = act.leased.expires_at or 0
    for call in seen.calls:
        match call.act:
            case acts.Extend(lease=name, until=until) if name == lease and call.begun > grant.call.ended:
                over = max(over, until or 0) if call.answered else FOREVER
            case acts.Release(lease=name, released=True) if name == lease and call.begun > grant.call.ended:
                return False
            case acts.Reclaim(reclaimed=done) if done is not None and not done.more and call.begun > grant.call.ended:
                if call.asked_at is not None and call.asked_at >= over:
                    return False
            case _:
                continue
    return True


def _fault(invariant: str, what: str, grants: list[Grant], *lines: str) -> Violation:
    told_of = [shown(grant.call, f"{grant.member} to {grant.whom} at {grant.at}") for grant in grants]
    return Violation(invariant=invariant, what=what, lines=(*lines, *told_of))
