"""What happened to a member, newest last. Only the newest entries are kept, so that its record stays small."""

import msgspec

from pitboss.model.duration import Moment, Span
from pitboss.model.resource import Entry, EntryKind, Record, Report, Resource, ResourceOutcome
from pitboss.model.text import one_line

KEPT = 10
LONGEST = 120
_AWAY = (EntryKind.BLACKLISTED, EntryKind.COOLING)
# The share of the newest answer in the average time, in tenths.
_NEWEST = 3


def noted(record: Record, what: EntryKind, now: Moment, why: str | None = None, until: Moment | None = None) -> Record:
    """With one more entry. The same thing twice in a row is one entry that counts both."""
    entry = Entry(now, what, None if why is None else one_line(why, LONGEST), until)
    history = record.history
    if history and (history[-1].what, history[-1].why) == (entry.what, entry.why):
        entry = msgspec.structs.replace(entry, times=history[-1].times + 1)
        history = history[:-1]
    return msgspec.structs.replace(record, history=(*history, entry)[-KEPT:])


def after_report(before: Record, after: Record, report: Report, now: Moment) -> Record:
    """With what a report says: how long an answer took, an error, sent away, or back in service."""
    if report.took is not None:
        after = msgspec.structs.replace(after, took=_averaged(before.took, report.took))
    if report.outcome is ResourceOutcome.OK:
        return noted(after, EntryKind.BACK, now) if _is_back(after, now) else after
    why = report.error or report.outcome.replace("_", " ")
    away = after_absence(before, after, why, now)
    if away is not after:
        return away
    if report.outcome is not ResourceOutcome.TASK_ERROR:
        return noted(after, EntryKind.FAILED, now, why)
    # An error without a destination is no error of a request: it says nothing about the member.
    return noted(after, EntryKind.NOT_BLAMED, now, why) if report.error and report.destination else after


def after_absence(before: Record, after: Record, why: str, now: Moment) -> Record:
    """With the blacklist or the cooldown that it was sent to, if it was."""
    if after.blacklisted_until > before.blacklisted_until:
        return noted(after, EntryKind.BLACKLISTED, now, why, after.blacklisted_until)
    if after.cooldown_until > before.cooldown_until:
        return noted(after, EntryKind.COOLING, now, why, after.cooldown_until)
    return after


def after_change(before: Resource, after: Resource, now: Moment, reason: str | None = None) -> Resource:
    """With what an operator, a hook or a declaration changed, and the operator's reason."""
    record = after.record
    if after.enabled != before.enabled:
        record = noted(record, EntryKind.ENABLED if after.enabled else EntryKind.DISABLED, now, reason)
    renewed = sorted(name for name, sealed in after.secrets.items() if before.secrets.get(name) != sealed)
    if renewed:
        record = noted(record, EntryKind.RENEWED, now, ", ".join(renewed))
    return msgspec.structs.replace(after, record=record)


def _averaged(before: Span, took: Span) -> Span:
    return ((10 - _NEWEST) * before + _NEWEST * took) // 10 if before else took


def _is_back(record: Record, now: Moment) -> bool:
    """Whether a good use is the first since it was sent away, and not one that had begun before."""
    for entry in reversed(record.history):
        if entry.what in _AWAY:
            return (entry.until or 0) <= now
        if entry.what in (EntryKind.BACK, EntryKind.RESET):
            return False
    return False
