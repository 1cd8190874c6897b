"""One group of slots that want the same, filled by one statement where the queues have neither rates nor pools."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from pitboss.engines.postgres.claim_plan import FOREIGN_FOR, ClaimPlan, Key
from pitboss.engines.postgres.rows import CLAIM_COLUMNS, names, numbers, texts
from pitboss.engines.postgres.rows import claim as claim_of
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import SessionLost
from pitboss.model.ids import TaskId
from pitboss.model.session import ORDERED, Claimed, ClaimRequest, Order, Slot
from pitboss.model.task import Claim

_PROMOTED_AT_ONCE = 5000
_ROUNDS = 20
LOOK_BEYOND = 1000
_ORDERS = [Order(field, down) for field in ("priority", "created_at", "id", "attempts") for down in (False, True)]
# A slot with its number in the request.
Numbered = tuple[int, Slot]


class Group(NamedTuple):
    """Neighbouring slots of a request that want the same. `only`: their handlers. `lasts`: the time limit of their
    claims."""

    session: int
    handlers: str | None
    queues: str | None
    slots: list[Numbered]
    only: str | None = None
    order: Order | None = None
    lasts: Span | None = None

    @property
    def key(self) -> Key:
        return self.queues, self.handlers, self.only

    @property
    def ahead(self) -> int:
        return sum(slot.ahead for _, slot in self.slots)

    @property
    def wanted(self) -> int:
        return sum(slot.free + slot.ahead for _, slot in self.slots)

    @property
    def plain(self) -> bool:
        """As managers ask."""
        return self.only is None and self.order is None and self.lasts is None

    @property
    def statement(self) -> str:
        if self.order is not None:
            return _ordered(self.order)
        return "claim_next" if self.plain else "claim_next_remote"

    def ends(self, now: Moment) -> Moment | None:
        return None if self.lasts is None else now + self.lasts

    def recorded(self, slots: Iterable[Slot]) -> dict[str, object]:
        """What is written with claims of these slots."""
        if self.lasts is None:
            return {"lasts": None, "workers": "{}", "keys": "{}"}
        found = list(slots)
        workers = texts([slot.worker or None for slot in found])
        return {"lasts": self.lasts, "workers": workers, "keys": texts([slot.repeat for slot in found])}


class _Pick(NamedTuple):
    """One claim statement, for places in slots. `ahead`: how many of the tasks are claimed ahead of a free slot.
    `fresh`: only tasks that may be. `choosy`: skip expired tasks and tasks for other sessions. `promote`: stop if tasks
    are due."""

    places: Sequence[Numbered]
    ahead: int = 0
    choosy: bool = False
    fresh: bool = False
    promote: bool = True

    @property
    def wanted(self) -> int:
        return len(self.places)


class _Answer(NamedTuple):
    """What a claim statement answered. With a `snag` it claimed nothing."""

    now: Moment
    next_due: Moment | None
    snag: str | None
    tasks: list[Row]


def grouped(request: ClaimRequest) -> list[Group]:
    """At least one, as the claim also tells whether the session is alive."""
    handlers = None if request.handlers is None else names(request.handlers)
    groups = []
    used: Counter[str] = Counter()

    def wanted(numbered: Numbered) -> tuple[set[str] | None, set[str] | None, Order | None, Span | None, int]:
        """What slots of one group have in common. Two slots with one key are in different groups."""
        _, slot = numbered
        queues = None if slot.queues is None else set(slot.queues)
        only = None if slot.handlers is None else set(slot.handlers)
        # By priority is the native order.
        order = None if slot.order == _ORDERS[0] else slot.order
        if slot.repeat is not None:
            used[slot.repeat] += 1
        return queues, only, order, slot.lasts, 0 if slot.repeat is None else used[slot.repeat] - 1

    for (queues, only, order, lasts, _), members in groupby(enumerate(request.slots), key=wanted):
        asked = None if queues is None else names(queues)
        narrow = None if only is None else names(only)
        groups.append(Group(request.session, handlers, asked, list(members), narrow, order, lasts))
    return groups or [Group(request.session, handlers, "{}", [])]


def define_claims(sql: Statements) -> None:
    """The statements that take tasks: for managers, for remote workers, and in other orders."""
    remote = {
        "claimed": "worker = picked.worker, claim_lasts = %(lasts)s::bigint, claim_key = picked.key, "
        "claim_expires_at = (SELECT now FROM clock) + %(lasts)s::bigint",
        "number": ", picked.number",
        "given_order": "given.number",
    }
    sql.define("claim_tidy_these", "claim_tidy", looked_at=sql.text("tidy_these"))
    sql.define("claim_tidy", "claim_tidy", looked_at=sql.text("tidy_first"))
    placed = sql.text("claim_placed", rank="priority, id")
    native = sql.text("claim_native", only=" AND {only_condition}", rank=", priority, id", found="found")
    sql.define("claim_next_remote", "claim_next", picked=f"{native}, {placed}", **remote)
    placed = sql.text("claim_placed", rank="rank")
    for order in _ORDERS:
        ordered = sql.text("claim_ordered", order=f"{order.field} {'DESC' if order.descending else 'ASC'}")
        sql.define(_ordered(order), "claim_next", picked=f"{ordered}, {placed}", **remote)
    sql.define(
        "claim_next",
        "claim_next",
        picked=sql.text("claim_native", only="", rank="", found="picked"),
        claimed="worker = NULL, claim_lasts = NULL, claim_expires_at = NULL, claim_key = NULL",
        number="",
        given_order="given.priority, given.id",
    )


def _ordered(order: Order) -> str:
    return f"claim_by_{order.field}{'_descending' if order.descending else ''}"


class Shared:
    """What the groups of a request share.

    `queues` and `batches` are locked because of partitions: the queues, and running batches with items to draw. Their
    rows come with the next answer. `drawn`: an earlier attempt has drawn already. `floors`: see `MemberGrants`.
    """

    def __init__(self, *, drawn: bool) -> None:
        self.drawn = drawn
        self.queues: list[Row] = []
        self.batches: list[Row] = []
        self.floors: dict[str, int] = {}


class GroupClaim:
    """The claim for one group of a request.

    `plan` is the guess that it begins with, and afterwards what the store said. A claim that answers None claimed
    nothing and must begin again: with the new plan, and after the expired items in `late` were cancelled.
    """

    def __init__(
        self, sql: Statements, group: Group, plan: ClaimPlan, now: Moment | None, *, drawn: bool, shared: Shared
    ) -> None:
        self.sql, self.group, self.plan, self.drawn, self.shared = sql, group, plan, drawn, shared
        self.clock = self.now = now
        # All slots, also those that get claims again.
        self.asked = group.slots
        self.rooms: dict[str, int] = {}
        self.late: list[TaskId] = []

    def plain(self) -> Script[Claimed | None]:
        places = self._places()
        answer = yield from self._ask(_Pick(places, ahead=self.group.ahead))
        if answer.snag == "lost":
            found = yield from self._slot_by_slot()
            return None if found is None else Claimed(*found)
        return None if answer.snag else Claimed(self._spread(answer, places), answer.next_due)

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
            places = self._places()
            answer = yield from self._ask(_Pick(places))
            if answer.snag:
                return None
            claims, next_due = self._spread(answer, places), answer.next_due
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

    def tidy_these(self, ids: Sequence[TaskId]) -> Script[None]:
        """As `tidy`, for tasks that the claim has met."""
        asked = self.sql.ask("claim_tidy_these", self.now, handlers=self.group.handlers, ids=texts(ids))
        ((_, self.late),) = yield asked

    def _tidy(self, depth: int) -> Script[tuple[int, list[TaskId]]]:
        group = self.group
        asked = self.sql.ask(
            "claim_tidy", self.now, queues=group.queues, handlers=group.handlers, only=group.only, wanted=depth
        )
        ((moved, late),) = yield asked
        return moved, late

    def _slot_by_slot(self) -> Script[tuple[list[Claim], Moment | None] | None]:
        """Fill the free places and those ahead apart: where a task was lost before, or a queue has a rate."""
        claims: list[Claim] = []
        next_due: Moment | None = None
        for one in self.group.slots:
            for pick in (_Pick([one] * one[1].free), _Pick([one] * one[1].ahead, fresh=True)):
                answer = yield from self._ask(pick)
                if answer.snag:
                    # Claims made so far must be returned: they may be committed. The next claim begins with the snag.
                    return (claims, claims[-1].claimed_at) if claims else None
                next_due = answer.next_due if next_due is None or not pick.fresh else next_due
                claims += self._spread(answer, pick.places)
                for row in answer.tasks:
                    if row[3] in self.rooms:
                        self.rooms[row[3]] -= 1
        if self.group.order is None:
            # Another claim may have held a task that comes first while the free places were filled.
            claims.sort(key=lambda claim: (claim.slot, claim.priority, claim.id))
        return claims, next_due

    def _places(self) -> list[Numbered]:
        return [one for one in self.group.slots for _ in range(one[1].free + one[1].ahead)]

    def _spread(self, answer: _Answer, places: Sequence[Numbered]) -> list[Claim]:
        session, now, ends = self.group.session, answer.now, self.group.ends(answer.now)
        if not self.group.plain:
            # The statement has chosen the places, and recorded their workers.
            places = [places[row[CLAIM_COLUMNS] - 1] for row in answer.tasks]
        return [
            claim_of(row, session, now, number, ends=ends)
            for row, (number, _) in zip(answer.tasks, places, strict=False)
        ]

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
        group = self.group
        more: dict[str, object] = {}
        if not group.plain:
            more = {"only": group.only, "ordered": ORDERED, **group.recorded(slot for _, slot in pick.places)}
        rows = yield self.sql.ask(
            group.statement,
            self.now,
            session=group.session,
            queues=group.queues,
            handlers=group.handlers,
            rated=texts(list(self.rooms)),
            rooms=numbers(list(self.rooms.values())),
            draw=not self.drawn,
            wanted=pick.wanted,
            ahead=pick.ahead,
            choosy=pick.choosy,
            fresh=pick.fresh,
            promote=pick.promote,
            **more,
        )
        now, alive, snag, next_due, rated, pooled, keyed, drawable = rows[0][:8]
        if not alive:
            raise SessionLost(group.session)
        self.plan = self.plan._replace(rated=rated, pooled=pooled, keyed=keyed, drawable=drawable)
        return _Answer(now, next_due, snag, [row[8:] for row in rows if row[8] is not None])

    def _pass_by(self, pick: _Pick) -> Script[_Pick]:
        """Clear away what cannot be given. If there is nothing to clear, the tasks in front are for other sessions, and
        the next statement skips them."""
        # Another order may have brought any of those that it looked at to the front.
        depth = pick.wanted if self.group.order is None else pick.wanted + ORDERED
        if (yield from self.tidy(depth)) or self.late:
            return pick
        # They may hide tasks whose handler no session knows.
        yield from self.tidy(pick.wanted + LOOK_BEYOND)
        self.plan = self.plan._replace(foreign=FOREIGN_FOR)
        return pick._replace(choosy=True)
