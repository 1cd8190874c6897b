"""Claiming: slots of the same queues are filled together, plainly or jointly with members of resource pools."""

from typing import NamedTuple

from pitboss.engines.postgres.habit import Habit
from pitboss.engines.postgres.joint import joint
from pitboss.engines.postgres.rows import names
from pitboss.engines.postgres.script import Script, Statements
from pitboss.engines.postgres.work import Group, Rated, Undrawn, Work, grouped
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.session import Claimed, ClaimRequest


class Habits(NamedTuple):
    """What earlier claims found: queues with a rate, with a resource pool, with batches to draw from, and where tasks
    for other sessions stood in front."""

    rated: Habit
    pooled: Habit
    drawn: Habit
    mixed: Habit


def claim(
    say: Statements, request: ClaimRequest, now: Moment | None, habits: Habits, *, locked: bool, drawn: bool
) -> Script[Claimed]:
    """Fill the slots in order. Not `locked`: raises `Rated` when that needs a transaction. Not `drawn`: raises
    `Undrawn` when batches must be drawn from first."""
    groups = grouped(request.slots) or [Group(0, [], "{}")]
    if locked and not drawn:
        yield from _check_drawn(say, request, now)
    parts: list[Claimed] = []
    for group in groups:
        work = Work(say, request, group, now, habits.mixed, drawn=drawn or locked)
        if not locked:
            parts.append((yield from work.plain()))
        elif habits.pooled.holds([group.queues]):
            parts.append((yield from joint(work)))
        else:
            parts.append((yield from _found_out(work, habits.pooled)))
    shortages = {short.pool: short for part in parts for short in part.shortages}
    return Claimed(
        [claim for part in parts for claim in part.claims],
        min((part.next_due for part in parts if part.next_due is not None), default=None),
        tuple(shortages[pool] for pool in sorted(shortages)),
    )


def asked_queues(request: ClaimRequest) -> str | None:
    """All queues that a request names, as an array literal; None stands for every queue."""
    if any(slot.queues is None for slot in request.slots):
        return None
    return names(name for slot in request.slots for name in slot.queues or ())


def _check_drawn(say: Statements, request: ClaimRequest, now: Moment | None) -> Script[None]:
    asked = say.ask("drawable", now, session=request.session, queues=asked_queues(request))
    ((alive, drawable),) = yield asked
    if not alive:
        raise SessionLost(request.session)
    if drawable:
        raise Undrawn


def _found_out(work: Work, pooled: Habit) -> Script[Claimed]:
    try:
        return (yield from work.rated())
    except Rated:
        pooled.note([work.group.queues])
        return (yield from joint(work))
