"""One group of slots with the same queues, filled by one statement where the queues have neither rates nor pools."""

from itertools import groupby
from typing import NamedTuple

from pitboss.engines.postgres.claim_plan import FOREIGN_FOR, ClaimPlan, Key
from pitboss.engines.postgres.rows import claim as claim_of
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.ids import TaskId
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import Claim

_PROMOTED_AT_ONCE = 5000
_ROUNDS = 20
LOOK_BEYOND = 1000


class Group(NamedTuple):
    """Neighbouring slots of a request with the same queues; `first` is the number of the first one."""

    session: int
    handlers: str | None
    queues: str | None
    first: int
    slots: list[Slot]

    @property
    def key(self) -> Key:
        return self.queues, self.handlers

    @property
    def ahead(self) -> int:
        return sum(slot.ahead for slot in self.slots)

    @property
    def wanted(self) -> int:
        return sum(slot.free + slot.ahead for slot in self.slots)


class _Pick(NamedTuple):
    """One claim statement. `ahead`: how many of the wanted tasks are claimed ahead of a free slot. `fresh`: only tasks
    that may be. `choosy`: skip expired tasks and tasks for other sessions. `promote`: stop if tasks are due."""

    wanted: int
    ahead: int = 0
    choosy: bool = False
    fresh: bool = False
    promote: bool = True


class _Answer(NamedTuple):
    """What a claim statement answered. With a `snag` it claimed nothing."""

    now: Moment
    next_due: Moment | None
    snag: str | None
    tasks: list[Row]


def grouped(request: ClaimRequest) -> list[Group]:
    """At least one, as the claim also tells whether the session is alive."""
    handlers = None if request.handlers is None else names(request.handlers)
    numbered = groupby(
        enumerate(request.slots), key=lambda item: None if item[1].queues is None else set(item[1].queues)
    )
    groups = []
    for queues, members in numbered:
        found = list(members)
        wanted = None if queues is None else names(queues)
        groups.append(Group(request.session, handlers, wanted, found[0][0], [slot for _, slot in found]))
    return groups or [Group(request.session, handlers, "{}", 0, [])]


class GroupClaim:
    """The claim for one group of a request.

    `plan` is the guess that it begins with, and afterwards what the store said. A claim that answers None claimed
    nothing and must begin again: with the new plan, and after the expired items in `late` were cancelled.
    """

    def __init__(self, sql: Statements, group: Group, plan: ClaimPlan, now: Moment | None, *, drawn: bool) -> None:
        self.sql, self.group, self.plan, self.drawn = sql, group, plan, drawn
        self.clock = self.now = now
        self.rooms: dict[str, int] = {}
        self.late: list[TaskId] = []

    def plain(self) -> Script[Claimed | None]:
        answer = yield from self._ask(_Pick(self.group.wanted, ahead=self.group.ahead))
        if answer.snag == "lost":
            found = yield from self._slot_by_slot()
            return None if found is None else Claimed(*found)
        return None if answer.snag else Claimed(self._spread(answer), answer.next_due)

    def rated(self) -> Script[Claimed | None]:
        """With the rows of rated queues locked: each claim is a start, taken from what every window still allows."""
        if not (yield from self.measure()):
            return (yield from self.plain())
        if self.group.ahead:
            found = yield from self._slot_by_slot()
            if found is None:
                return None
            claims, next_due = found
        else:
            answer = yield from self._ask(_Pick(self.group.wanted))
            if answer.snag:
                return None
            claims, next_due = self._spread(answer), answer.next_due
        openings = yield from self.started([claim.queue for claim in claims])
        return Claimed(claims, min([*openings, *([] if next_due is None else [next_due])], default=None))

    def measure(self) -> Script[bool]:
        """Lock the rows of queues with a rate, and measure how many tasks may start; False if there are none."""
        rows: list[Row] = []
        yield self.sql.ask("queue_lock_rated", queues=self.group.queues).into(rows)
        windows = yield self.sql.ask("queue_windows", self.now, queues=self.group.queues)
        # A queue that got its rate after the others were locked is left out; the claim statement then refuses it.
        locked = {row[0] for row in rows}
        self.rooms = {name: max(0, room) for name, _, room, _, _ in windows if name in locked}
        if not self.rooms:
            return False
        # From here on one moment holds: the one at which the windows were measured, behind the locks.
        self.now = windows[0][1]
        return True

    def started(self, queues: list[str]) -> Script[list[Moment]]:
        """Record starts in queues with a rate; answers the moments at which their windows open."""
        starts = [queue for queue in queues if queue in self.rooms]
        if starts:
            yield self.sql.ask("start_add", self.now, queues=texts(starts)).unheard()
        windows = yield self.sql.ask("queue_windows", self.now, queues=self.group.queues)
        return [opens for _, now, _, opens, wanted in windows if wanted and opens is not None and opens > now]

    def promote(self) -> Script[bool]:
        """Make scheduled tasks pending that are due; True if there may be more."""
        asked = self.sql.ask("claim_due", self.now, queues=self.group.queues, limit=_PROMOTED_AT_ONCE)
        ((moved,),) = yield asked
        return bool(moved >= _PROMOTED_AT_ONCE)

    def tidy(self, depth: int) -> Script[int]:
        """Clear away tasks in front that cannot be given; how many. Expired items of batches are only noted in `late`:
        their batch must be locked before them."""
        moved, late = yield from self._tidy(depth)
        if late:
            # As many as possible, so that one repetition is enough.
            more, self.late = yield from self._tidy(depth + LOOK_BEYOND)
            moved += more
        return moved

    def _tidy(self, depth: int) -> Script[tuple[int, list[TaskId]]]:
        asked = self.sql.ask(
            "claim_tidy", self.now, queues=self.group.queues, handlers=self.group.handlers, wanted=depth
        )
        ((moved, late),) = yield asked
        return moved, late

    def _slot_by_slot(self) -> Script[tuple[list[Claim], Moment | None] | None]:
        """Fill the free places and those ahead apart: where a task was lost before, or a queue has a rate."""
        claims: list[Claim] = []
        next_due: Moment | None = None
        for number, slot in enumerate(self.group.slots, start=self.group.first):
            for pick in (_Pick(slot.free), _Pick(slot.ahead, fresh=True)):
                answer = yield from self._ask(pick)
                if answer.snag:
                    # Claims made so far must be returned: they may be committed. The next claim begins with the snag.
                    return (claims, claims[-1].claimed_at) if claims else None
                next_due = answer.next_due if next_due is None or not pick.fresh else next_due
                claims += [claim_of(row, self.group.session, answer.now, number) for row in answer.tasks]
                for row in answer.tasks:
                    if row[3] in self.rooms:
                        self.rooms[row[3]] -= 1
        return claims, next_due

    def _spread(self, answer: _Answer) -> list[Claim]:
        places = (
            number
            for number, slot in enumerate(self.group.slots, start=self.group.first)
            for _ in range(slot.free + slot.ahead)
        )
        session = self.group.session
        return [claim_of(row, session, answer.now, place) for row, place in zip(answer.tasks, places, strict=False)]

    def _ask(self, pick: _Pick) -> Script[_Answer]:
        if not self.plan.foreign:
            return (yield from self._try(pick))
        self.plan = self.plan._replace(foreign=self.plan.foreign - 1)
        answer = yield from self._try(pick._replace(choosy=True))
        if not answer.snag and len(answer.tasks) < pick.wanted:
            # Slots are left: time to look whether a session still knows the handlers of skipped tasks.
            yield from self._tidy(pick.wanted + LOOK_BEYOND)
        return answer

    def _try(self, pick: _Pick) -> Script[_Answer]:
        for _ in range(_ROUNDS):
            answer = yield from self._claim(pick)
            if answer.snag == "due":
                pick = pick._replace(promote=(yield from self.promote()))
            elif answer.snag == "odd":
                pick = yield from self._pass_by(pick)
                if self.late:
                    return answer
            else:
                return answer
        return (yield from self._claim(pick._replace(choosy=True, promote=False)))

    def _claim(self, pick: _Pick) -> Script[_Answer]:
        rows = yield self.sql.ask(
            "claim_next",
            self.now,
            session=self.group.session,
            queues=self.group.queues,
            handlers=self.group.handlers,
            rated=texts(list(self.rooms)),
            rooms=numbers(list(self.rooms.values())),
            draw=not self.drawn,
            **pick._asdict(),
        )
        now, alive, snag, next_due, rated, pooled, drawable = rows[0][:7]
        if not alive:
            raise SessionLost(self.group.session)
        self.plan = self.plan._replace(rated=rated, pooled=pooled, drawable=drawable)
        return _Answer(now, next_due, snag, [row[7:] for row in rows if row[7] is not None])

    def _pass_by(self, pick: _Pick) -> Script[_Pick]:
        """Clear away what cannot be given. If there is nothing to clear, the tasks in front are for other sessions, and
        the next statement skips them."""
        if (yield from self.tidy(pick.wanted)) or self.late:
            return pick
        # They may hide tasks whose handler no session knows.
        yield from self.tidy(pick.wanted + LOOK_BEYOND)
        self.plan = self.plan._replace(foreign=FOREIGN_FOR)
        return pick._replace(choosy=True)
