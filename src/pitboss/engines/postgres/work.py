"""One group of slots of the same queues, filled by one statement; what stands in its way is seen to first."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from pitboss.engines.postgres.habit import Habit
from pitboss.engines.postgres.rows import claim as claim_of
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Again, Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.ids import TaskId
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import Claim

_PROMOTED_AT_ONCE = 5000
_ROUNDS = 20
LOOK_BEYOND = 1000


class Rated(Again):
    """A queue has a rate or a resource pool: there is something to lock first. Nothing was claimed."""


class Undrawn(Again):
    """Running batches have items to be drawn first. Nothing was claimed."""


class Late(Again):
    """Items of batches that have expired stand in front: ending them may end their batch. Nothing was claimed."""

    def __init__(self, ids: list[TaskId]) -> None:
        super().__init__(ids)
        self.ids = ids


class Group(NamedTuple):
    """Neighbouring slots with the same queues; `first` is the number of the first one."""

    first: int
    slots: list[Slot]
    queues: str | None

    @property
    def ahead(self) -> int:
        return sum(slot.ahead for slot in self.slots)

    @property
    def wanted(self) -> int:
        return sum(slot.free + slot.ahead for slot in self.slots)


class Pick(NamedTuple):
    """One try to claim: how many, and from what."""

    wanted: int
    ahead: int = 0
    choosy: bool = False
    fresh: bool = False
    promote: bool = True
    draw: bool = True


class _Answer(NamedTuple):
    now: Moment
    next_due: Moment | None
    tasks: list[Row]


def grouped(slots: Sequence[Slot]) -> list[Group]:
    numbered = groupby(enumerate(slots), key=lambda item: None if item[1].queues is None else set(item[1].queues))
    groups = []
    for queues, members in numbered:
        found = list(members)
        groups.append(Group(found[0][0], [slot for _, slot in found], None if queues is None else names(queues)))
    return groups


class Work:
    """One group of one request."""

    def __init__(
        self, say: Statements, request: ClaimRequest, group: Group, now: Moment | None, mixed: Habit, *, drawn: bool
    ) -> None:
        self.mixed, self.drawn = mixed, drawn
        self.say, self.request, self.group, self.now = say, request, group, now
        self.handlers = None if request.handlers is None else names(request.handlers)
        self.rooms: dict[str, int] = {}

    def plain(self) -> Script[Claimed]:
        answer = yield from self._all()
        if answer is None:
            return Claimed(*(yield from self._slot_by_slot()))
        return Claimed(self._spread(answer), answer.next_due)

    def rated(self) -> Script[Claimed]:
        """With the rows of rated queues locked: each claim is a start, taken from what every window still allows."""
        if not (yield from self.measure()):
            return (yield from self.plain())
        if self.group.ahead:
            claims, next_due = yield from self._slot_by_slot()
        else:
            answer = yield from self._ask(Pick(self.group.wanted))
            claims, next_due = self._spread(answer), answer.next_due
        openings = yield from self.started([claim.queue for claim in claims])
        return Claimed(claims, min([*openings, *([] if next_due is None else [next_due])], default=None))

    def measure(self) -> Script[bool]:
        """Lock the rows of queues with a rate, and see how many may start; False if there are none."""
        locked = yield self.say.ask("lock_rated_queues", queues=self.group.queues)
        if not locked:
            return False
        windows = yield self.say.ask("windows", self.now, queues=self.group.queues)
        self.rooms = {name: max(0, room) for name, _, room, _, _ in windows}
        # From here on one moment holds: the one at which the windows were measured, behind the locks.
        self.now = windows[0][1]
        return True

    def started(self, queues: list[str]) -> Script[list[Moment]]:
        """Note starts in queues with a rate; the moments at which their windows open."""
        starts = [queue for queue in queues if queue in self.rooms]
        if starts:
            yield self.say.ask("start", self.now, queues=texts(starts))
        windows = yield self.say.ask("windows", self.now, queues=self.group.queues)
        return [opens for _, now, _, opens, wanted in windows if wanted and opens is not None and opens > now]

    def _all(self) -> Script["_Answer | None"]:
        try:
            return (yield from self._ask(Pick(self.group.wanted, ahead=self.group.ahead)))
        except _Lost:
            return None

    def _slot_by_slot(self) -> Script[tuple[list[Claim], Moment | None]]:
        """Where a task was lost before or a queue has a rate, the free places and those ahead are filled apart."""
        claims: list[Claim] = []
        next_due: Moment | None = None
        for number, slot in enumerate(self.group.slots, start=self.group.first):
            for pick in (Pick(slot.free), Pick(slot.ahead, fresh=True)):
                try:
                    answer = yield from self._ask(pick)
                except Again:
                    # What was taken before must be told: nobody else knows of it. The next claim begins with this.
                    if not claims:
                        raise
                    return claims, claims[-1].claimed_at
                next_due = answer.next_due if next_due is None or not pick.fresh else next_due
                claims += [claim_of(row, self.request.session, answer.now, number) for row in answer.tasks]
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
        session = self.request.session
        return [claim_of(row, session, answer.now, place) for row, place in zip(answer.tasks, places, strict=False)]

    def _ask(self, pick: Pick) -> Script[_Answer]:
        if not self.mixed.holds([(self.group.queues, self.handlers)]):
            return (yield from self._try(pick))
        answer = yield from self._try(pick._replace(choosy=True))
        if len(answer.tasks) < pick.wanted:
            # Room is left: time to look whether somebody still knows what was passed by.
            yield from self.tidy(pick.wanted + LOOK_BEYOND, patient=True)
        return answer

    def _try(self, pick: Pick) -> Script[_Answer]:
        pick = pick._replace(draw=not self.drawn)
        for _ in range(_ROUNDS):
            rows = yield self.say.ask("claim", self.now, **self._values(pick))
            now, alive, snag, next_due = rows[0][:4]
            if not alive:
                raise SessionLost(self.request.session)
            if snag is None:
                return _Answer(now, next_due, [row[4:] for row in rows if row[4] is not None])
            pick = yield from self._clear(snag, pick)
        rows = yield self.say.ask(
            "claim", self.now, **self._values(pick._replace(choosy=True, promote=False, draw=False))
        )
        return _Answer(rows[0][0], rows[0][3], [row[4:] for row in rows if row[4] is not None])

    def _values(self, pick: Pick) -> dict[str, object]:
        return {
            "session": self.request.session,
            "queues": self.group.queues,
            "handlers": self.handlers,
            "rated": texts(list(self.rooms)),
            "rooms": numbers(list(self.rooms.values())),
            **pick._asdict(),
        }

    def _clear(self, snag: str, pick: Pick) -> Script[Pick]:
        """See to what stands in the way; the next try may be told to overlook it."""
        if snag in ("rated", "pooled"):
            raise Rated
        if snag == "batch":
            raise Undrawn
        if snag == "lost":
            raise _Lost
        if snag == "due":
            return pick._replace(promote=(yield from self.promote()))
        if (yield from self.tidy(pick.wanted)):
            return pick
        # Nothing to tidy, and still odd: tasks for other sessions stand in front, and may hide some that nobody knows.
        yield from self.tidy(pick.wanted + LOOK_BEYOND)
        self.mixed.note([(self.group.queues, self.handlers)])
        return pick._replace(choosy=True)

    def promote(self) -> Script[bool]:
        """Make scheduled tasks pending that are due; True if there may be more."""
        asked = self.say.ask("promote", self.now, queues=self.group.queues, limit=_PROMOTED_AT_ONCE)
        ((moved,),) = yield asked
        return bool(moved >= _PROMOTED_AT_ONCE)

    def tidy(self, depth: int, *, patient: bool = False) -> Script[int]:
        """See to tasks in front that cannot be given. `patient`: what needs more than that is left to another claim."""
        asked = self.say.ask("tidy", self.now, queues=self.group.queues, handlers=self.handlers, wanted=depth)
        ((moved, late),) = yield asked
        if late and not patient:
            raise Late(late)
        number: int = moved
        return number


class _Lost(Exception):
    """A task that was lost before is among those that might be given ahead."""
