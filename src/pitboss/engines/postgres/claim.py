"""Claiming: slots of the same queues are filled together, plainly or jointly with members of resource pools."""

from typing import NamedTuple

from pitboss.engines.postgres.habit import Habit
from pitboss.engines.postgres.joint import Taken, joint
from pitboss.engines.postgres.rows import names
from pitboss.engines.postgres.script import ALL, Again, Script, Statements
from pitboss.engines.postgres.stock import Stock
from pitboss.engines.postgres.work import Group, Rated, Work, grouped
from pitboss.model.duration import Moment
from pitboss.model.resource import Shortage
from pitboss.model.session import Claimed, ClaimRequest

# Whoever had members in his hands has nearly always given them by then; asking at once only takes time from him.
_IN_HAND = 10_000


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
    parts: list[Claimed | Taken] = []
    stocks: list[Stock] = []
    for group in groups:
        work = Work(say, request, group, now, habits.mixed, drawn=drawn)
        try:
            part, stock = yield from _filled(work, habits.pooled, locked=locked)
        except Again as again:
            again.written = any(part.chosen if isinstance(part, Taken) else part.claims for part in parts)
            raise
        parts.append(part)
        stocks += [] if stock is None else [stock]
    shortages, waits = yield from _shortages(stocks)
    yield ALL
    claims = [claim for part in parts for claim in (part.claims() if isinstance(part, Taken) else part.claims)]
    moments = [part.next_due for part in parts if part.next_due is not None]
    return Claimed(claims, min(moments + waits, default=None), shortages)


def asked_queues(request: ClaimRequest) -> str | None:
    """All queues that a request names, as an array literal; None stands for every queue."""
    if any(slot.queues is None for slot in request.slots):
        return None
    return names(name for slot in request.slots for name in slot.queues or ())


def _filled(work: Work, pooled: Habit, *, locked: bool) -> Script[tuple[Claimed | Taken, Stock | None]]:
    if not locked:
        return (yield from work.plain()), None
    if pooled.holds([work.group.queues]):
        return (yield from joint(work))
    try:
        return (yield from work.rated()), None
    except Rated:
        pooled.note([work.group.queues])
        return (yield from joint(work))


def _shortages(stocks: list[Stock]) -> Script[tuple[tuple[Shortage, ...], list[Moment]]]:
    """Of which pools somebody is short, and when to ask again; soon where somebody else had members in his hands."""
    found: dict[str, Shortage] = {}
    moments: list[Moment] = []
    for stock in stocks:
        short = yield from stock.shortages()
        found |= {one.pool: one for one in short}
        now = stock.now or 0
        moments += [max(now, one.until) for one in short if one.until is not None]
        moments += [now + _IN_HAND] if stock.contended else []
    return tuple(found[pool] for pool in sorted(found)), moments
