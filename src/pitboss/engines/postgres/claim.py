"""Claiming: slots of the same queues are filled by one statement; what stands in its way is seen to first."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from pitboss.engines.postgres.habit import Habit
from pitboss.engines.postgres.rows import claim as claim_of
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import Claim

_PROMOTED_AT_ONCE = 5000
_ROUNDS = 20
_LOOK_BEYOND = 1000


class Rated(Exception):
    """A queue has a rate: its row must be locked first. Nothing was claimed."""


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


def claim(say: Statements, request: ClaimRequest, now: Moment | None, mixed: Habit, *, locked: bool) -> Script[Claimed]:
    """Fill the slots in order. Not `locked`: raises `Rated` when a queue has a rate; that needs a transaction.

    `mixed` remembers where tasks for other sessions stood in front.
    """
    claims: list[Claim] = []
    moments: list[Moment] = []
    for group in grouped(request.slots) or [Group(0, [], "{}")]:
        work = _Work(say, request, group, now, mixed)
        found, next_due = yield from (work.rated() if locked else work.plain())
        claims += found
        moments += [] if next_due is None else [next_due]
    return Claimed(claims, min(moments, default=None))


class _Work:
    """One group of one request."""

    def __init__(self, say: Statements, request: ClaimRequest, group: Group, now: Moment | None, mixed: Habit) -> None:
        self.mixed = mixed
        self.say, self.request, self.group, self.now = say, request, group, now
        self.handlers = None if request.handlers is None else names(request.handlers)
        self.rooms: dict[str, int] = {}

    def plain(self) -> Script[tuple[list[Claim], Moment | None]]:
        answer = yield from self._all()
        if answer is None:
            return (yield from self._slot_by_slot())
        return self._spread(answer), answer.next_due

    def rated(self) -> Script[tuple[list[Claim], Moment | None]]:
        """With the rows of rated queues locked: each claim is a start, taken from what every window still allows."""
        locked = yield self.say.ask("lock_rated_queues", queues=self.group.queues)
        if not locked:
            return (yield from self.plain())
        windows = yield self.say.ask("windows", self.now, queues=self.group.queues)
        self.rooms = {name: max(0, room) for name, _, room, _, _ in windows}
        # From here on one moment holds: the one at which the windows were measured, behind the locks.
        self.now = windows[0][1]
        if self.group.ahead:
            claims, next_due = yield from self._slot_by_slot()
        else:
            answer = yield from self._ask(Pick(self.group.wanted))
            claims, next_due = self._spread(answer), answer.next_due
        starts = [claim.queue for claim in claims if claim.queue in self.rooms]
        if starts:
            yield self.say.ask("start", self.now, queues=texts(starts))
        windows = yield self.say.ask("windows", self.now, queues=self.group.queues)
        openings = [opens for _, now, _, opens, wanted in windows if wanted and opens is not None and opens > now]
        return claims, min([*openings, *([] if next_due is None else [next_due])], default=None)

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
                answer = yield from self._ask(pick)
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
            yield from self._tidy(pick.wanted + _LOOK_BEYOND)
        return answer

    def _try(self, pick: Pick) -> Script[_Answer]:
        for _ in range(_ROUNDS):
            rows = yield self.say.ask("claim", self.now, **self._values(pick))
            now, alive, snag, next_due = rows[0][:4]
            if not alive:
                raise SessionLost(self.request.session)
            if snag is None:
                return _Answer(now, next_due, [row[4:] for row in rows if row[4] is not None])
            pick = yield from self._clear(snag, pick)
        rows = yield self.say.ask("claim", self.now, **self._values(pick._replace(choosy=True, promote=False)))
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
        if snag == "rated":
            raise Rated
        if snag == "lost":
            raise _Lost
        if snag == "due":
            asked = self.say.ask("promote", self.now, queues=self.group.queues, limit=_PROMOTED_AT_ONCE)
            ((moved,),) = yield asked
            return pick._replace(promote=moved >= _PROMOTED_AT_ONCE)
        if (yield from self._tidy(pick.wanted)):
            return pick
        # Nothing to tidy, and still odd: tasks for other sessions stand in front, and may hide some that nobody knows.
        yield from self._tidy(pick.wanted + _LOOK_BEYOND)
        self.mixed.note([(self.group.queues, self.handlers)])
        return pick._replace(choosy=True)

    def _tidy(self, depth: int) -> Script[int]:
        asked = self.say.ask("tidy", self.now, queues=self.group.queues, handlers=self.handlers, wanted=depth)
        ((moved,),) = yield asked
        number: int = moved
        return number


class _Lost(Exception):
    """A task that was lost before is among those that might be given ahead."""
