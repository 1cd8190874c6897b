"""A member that a task failed with, when the task has succeeded with another one."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pitboss.model.comparison import at_fault, evidence, noted, suspected
from pitboss.model.duration import Moment
from pitboss.model.leasing import placed
from pitboss.model.member_health import sent_away
from pitboss.model.member_history import after_absence
from pitboss.model.resource import PoolRules, Resource


class SentAway(NamedTuple):
    """A member (pool/name) that is not used until a moment, because it failed tasks that then succeeded with others."""

    resource: str
    until: Moment
    why: str


class Outdone(NamedTuple):
    """The member with one more failure, and whether that sent it away."""

    member: Resource
    away: SentAway | None = None


def may_send_away(resource: Resource, now: Moment) -> bool:
    """Whether one more failure may send the member away. Only then `outdone` needs `others` and `room`."""
    record = resource.record
    # One that is on the blacklist failed the task before it went there.
    return record.blacklisted_until <= now and (
        record.blacklistings > 0 or suspected(noted(record.compared, failed=True))
    )


def outdone(
    resource: Resource, rules: PoolRules, now: Moment, *, others: Sequence[int] = (), room: bool = True
) -> Outdone:
    """Count the failure. It sends the member away if it is on probation, or if `model.comparison.at_fault` says so.

    `others` are the uses (`Record.compared`) of the other enabled members. `room`: the blacklist has room for it.
    """
    record = msgspec.structs.replace(resource.record, compared=noted(resource.record.compared, failed=True))
    if not may_send_away(resource, now) or not (record.blacklistings or at_fault(record.compared, others)):
        return Outdone(msgspec.structs.replace(resource, record=record))
    why = str(evidence(record.compared))
    record = after_absence(resource.record, sent_away(record, rules, now, room=room), why, now)
    until = max(resource.available_at, record.cooldown_until, record.blacklisted_until)
    after = placed(msgspec.structs.replace(resource, available_at=until, record=record), rules, now)
    return Outdone(after, SentAway(resource.id, until, why))
