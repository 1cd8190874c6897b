"""The schedules of a store in figures, and what is wrong with them."""

from collections.abc import Iterator

import msgspec

from pitboss.model.duration import Moment, Span, spoken
from pitboss.model.finding import Finding, fine, warning
from pitboss.model.text import counted, listed


class ScheduleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules of a store. `next_at` is the next tick by the wall clock, of the schedule `next_name`. `overdue`
    are those whose tick passed and did not fire, the longest first; `late_by` is how long that is. `first` are some of
    those whose tick is next, or overdue."""

    total: int = 0
    paused: int = 0
    next_at: Moment | None = None
    next_name: str | None = None
    overdue: tuple[str, ...] = ()
    late_by: Span = 0
    first: tuple[str, ...] = ()


def schedule_findings(found: ScheduleFigures | None, *, managed: bool) -> Iterator[Finding]:
    """`managed`: a manager runs."""
    if found is None or not found.total:
        return
    if not found.overdue:
        paused = f", {found.paused:,} paused" if found.paused else ""
        yield fine("schedules", f"{counted(found.total, 'schedule')}{paused}, none overdue")
        return
    names = f": {listed(found.overdue)}" if len(found.overdue) > 1 else ""
    why, fix = "no manager runs, and only the leading one fires schedules", "pitboss up"
    if managed:
        why = "no manager leads, or the leading one cannot reach the store or cannot follow them"
        fix = "pitboss logs manager says more; pitboss schedules list shows them"
    yield warning("schedules", f"{are_overdue(found)}{names}", why=why, fix=fix)


def are_overdue(found: ScheduleFigures) -> str:
    """ "2 schedules are overdue by up to 5m", or the name of a single one."""
    number = len(found.overdue)
    if number == 1:
        return f'schedule "{found.overdue[0]}" is overdue by {spoken(found.late_by)}'
    return f"{number:,} schedules are overdue by up to {spoken(found.late_by)}"
