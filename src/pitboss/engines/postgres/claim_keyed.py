"""Claims on queues with partitions: each slot gets tasks of its own keys first (`Partitions`).

The queues are locked, so that claims on them take turns. Tasks are chosen before they are locked: they are locked when
they are taken, or before that where they need members, or where other claims may take them at the same time.
"""

from collections import defaultdict
from collections.abc import Sequence

from pitboss.engines.postgres.claim_group import LOOK_BEYOND, GroupClaim, Numbered
from pitboss.engines.postgres.claim_with_resources import (
    ANY_NUMBER,
    Candidate,
    Chosen,
    ClaimWithResources,
    OpenQueue,
    Taken,
)
from pitboss.engines.postgres.keyed_tasks import MARGIN, InOrder, Keys, Line, Steps, Waiting
from pitboss.engines.postgres.rows import numbers, texts
from pitboss.engines.postgres.script import ALL, Ask, Row, Script
from pitboss.model.batching import PASSED_BY
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.partition import LOOK
from pitboss.model.pool_slot import slot_name
from pitboss.model.session import ORDERED

# How many tasks to look at first, at least; the plan knows how many were needed last.
_FIRST = 60
# Tasks to look at for a slot with an order of its own, if it may not take most of them.
_MOST_ORDERED = 20 * ORDERED


def claim_keyed(claim: GroupClaim) -> Script[Taken | None]:
    """Fill a group with queues that have partitions, within a transaction that has locked them; None as `GroupClaim`
    says."""
    return (yield from _KeyedClaim(claim).run())


class _KeyedClaim(ClaimWithResources):
    """The claim for a group whose queues may have partitions."""

    taking = "claim_take_keyed"

    def __init__(self, claim: GroupClaim) -> None:
        super().__init__(claim)
        self._mine: list[Row] = []
        self._kept: list[Row] = []
        self._keys = Keys(claim, (), (), self._kept)
        self._pending = Waiting(self._keys, (), "pending", 0)
        # Items of batches that are not drawn yet, each line for itself, and those that are drawn by this claim.
        self._items: list[Waiting] = []
        self._drawn: dict[TaskId, Candidate] = {}
        self._come_again = False
        # Tasks that no slot may take any more, and those that are locked.
        self._gone: set[TaskId] = set()
        self._locked: set[TaskId] = set()
        self._odd: list[TaskId] = []

    def run(self) -> Script[Taken | None]:
        taken = yield from super().run()
        if taken is None:
            return None
        moments = [] if taken.next_due is None else [taken.next_due]
        moments += [one.run_at for one in self._drawn.values() if one.run_at is not None and one.run_at > taken.now]
        return taken._replace(next_due=taken.now if self._come_again else min(moments, default=None))

    def _prepare(self) -> Script[tuple[Moment, Moment | None] | None]:
        numbered = [(slot.pool, slot.number) for _, slot in self._claim.asked if slot.number is not None]
        yield self._sql.ask(
            "keyed_slots",
            session=self._claim.group.session,
            pools=texts([pool for pool, _ in numbered]),
            numbers=numbers([number for _, number in numbered]),
        ).into(self._mine)
        return (yield from super()._prepare())

    def _suits(self, queues: list[OpenQueue]) -> bool:
        """Not if a queue has got partitions since the queues were locked."""
        self._keys = Keys(self._claim, queues, (name for (name,) in self._mine), self._kept)
        locked = {name for (name,) in self._claim.shared.queues}
        return all(one.helped is None or one.name in locked for one in queues)

    def _is_hopeless(self, queues: list[OpenQueue]) -> bool:
        divided = any(one.helped is not None and one.odd is not None for one in queues)
        return not divided and not self._claim.shared.batches and super()._is_hopeless(queues)

    def _choose(self) -> Script[list[Chosen]]:
        named = [(place, self._name(place)) for place in self._claim.asked]
        filled = {number for number, _ in self._claim.group.slots}
        yield from self._read()
        chosen: list[Chosen] = []
        lacking = False
        for index, (place, slot) in enumerate(named):
            self._keys.following = [name for _, name in named[index:] if name is not None]
            yield from self._draw(place[1].free, slot)
            if place[0] in filled:
                given = yield from self._fill_slot(place, slot)
                chosen += given
                lacking = lacking or len(given) < place[1].free
        self._note_depth(chosen, lacking=lacking)
        moved = yield from self._write_drawn({one.task.id for one in chosen})
        if self._odd:
            yield from self._claim.tidy_these(self._odd)
        return [one._replace(task=one.task._replace(place=moved.get(one.task.id, one.task.place))) for one in chosen]

    def _name(self, place: Numbered) -> str | None:
        """The name of the slot, if it is the session's."""
        _, slot = place
        name = None if slot.number is None else slot_name(slot.pool, slot.number)
        return name if name in self._keys.slots else None

    def _note_depth(self, chosen: Sequence[Chosen], *, lacking: bool) -> None:
        """Remember how many tasks to look at next time: a little more than now."""
        depths = (
            [one.looked_at for one in (self._pending, *self._items)] if lacking else [one.task.depth for one in chosen]
        )
        deepest = max(depths, default=0)
        self._claim.plan = self._claim.plan._replace(look=min(LOOK_BEYOND, deepest + deepest // 4))

    def _read(self) -> Script[None]:
        """Read the first tasks, and the first items that can be drawn."""
        keys, ordered = self._keys, self._claim.group.order is not None
        names = sorted(keys.queues)
        size = LOOK_BEYOND if ordered else min(LOOK_BEYOND, max(self._claim.plan.look, _FIRST + keys.wanted))
        if any(one.helped == "missing" for one in keys.queues.values()):
            yield self._sql.ask("slot_kept", self._claim.now).into(self._kept)
        divided = [name for name in names if not keys.is_plain(name)]
        lines = [Line(name, LOOK, batch) for (batch,) in self._claim.shared.batches for name in divided]
        # Of items for queues that are bound to a pool, many more are drawn.
        each = ANY_NUMBER if any(self._pools[name] for name in divided) else self._each()
        items, counts, rows = list[Row](), list[Row](), list[Row]()
        if lines:
            for line in lines:
                line.asked = size
            yield keys.asking_page("held", lines, each).into(items)
            yield self._asking_counts(lines).into(counts)
        looks = [Line(name, self._look(name, ordered=ordered)) for name in names]
        self._pending = Waiting(keys, looks, "pending", ANY_NUMBER if ordered else self._each())
        if names:
            yield self._pending.asking(size).into(rows)
        yield ALL
        self._pending.note(rows)
        self._note_items(lines, items, counts, each)

    def _each(self) -> int:
        """How many tasks of each kind to read. Where slots help each other, each may take them all."""
        if any(one.helped not in (None, "none") for one in self._keys.queues.values()):
            return self._keys.wanted + MARGIN
        return max((slot.free + slot.ahead for _, slot in self._claim.asked), default=0) + MARGIN

    def _look(self, queue: str, *, ordered: bool) -> int:
        """How many tasks of the queue to look at."""
        room = self._room(queue)
        if not room or self._keys.is_plain(queue):
            return room
        return ANY_NUMBER if ordered else LOOK

    def _asking_counts(self, lines: Sequence[Line]) -> Ask:
        return self._sql.ask(
            "keyed_items",
            queues=texts([line.queue for line in lines]),
            batches=texts([line.batch for line in lines]),
            most=numbers([self._keys.most(line.queue) for line in lines]),
            limit=self._keys.wanted + 2 * PASSED_BY,
        )

    def _note_items(self, lines: Sequence[Line], items: Sequence[Row], counts: Sequence[Row], each: int) -> None:
        by_line: defaultdict[int, list[Row]] = defaultdict(list)
        for row in items:
            # Each line is alone.
            by_line[row[0]].append((1, *row[1:]))
        for number, n, owner, moving, running, key in counts:
            lines[number - 1].pending[key] = n
            if key is not None:
                self._keys.note(lines[number - 1].queue, key, owner, moving, running)
        for number, line in enumerate(lines, start=1):
            if number in by_line:
                waiting = Waiting(self._keys, [line], "held", each)
                waiting.note(by_line[number])
                self._items.append(waiting)

    def _draw(self, free: int, slot: str | None) -> Script[None]:
        """Draw items for a slot, until as many are pending that it may take as it has free."""
        drawn: list[bool] = []
        for items in self._items if free else ():
            (line,) = items.lines
            beyond = 0 if self._pools[line.queue] is None else PASSED_BY
            missing = free + beyond - self._there(line, slot)
            steps = Steps(items, slot, missing)
            while missing > 0 and (one := (yield from self._next_item(steps))) is not None:
                missing -= 1
                drawn.append(self._note_drawn(one, line))
        if drawn and not any(drawn) and (yield from self._has_more(slot)):
            self._come_again = True

    def _has_more(self, slot: str | None) -> Script[bool]:
        """Whether there are items left that the slot may take."""
        for items in self._items:
            steps = Steps(items, slot, 1)
            one = yield from self._next_item(steps)
            if one is not None:
                if steps.step == "own":
                    items.back(one)
                return True
        return False

    def _there(self, line: Line, slot: str | None) -> int:
        """How many items are pending that the slot may take."""
        ones = (Candidate("", "", line.queue, False, None, key) for key in line.pending)
        return sum(line.pending[one.key] for one in ones if self._keys.in_reach(one, slot))

    def _next_item(self, steps: Steps) -> Script[Candidate | None]:
        while (one := (yield from steps.next())) is not None:
            if one.id not in self._drawn and not self._keys.is_full(one):
                return one
        return None

    def _note_drawn(self, one: Candidate, line: Line) -> bool:
        """Whether it is pending now."""
        self._drawn[one.id] = one
        if one.run_at is not None and one.run_at > (self._claim.now or 0):
            return False
        line.pending[one.key] += 1
        self._pending.add(one)
        return True

    def _fill_slot(self, place: Numbered, slot: str | None) -> Script[list[Chosen]]:
        """Give a slot the first tasks that it may have; what it skips is left to the next slot."""
        free, ahead = place[1].free, place[1].ahead
        chosen: list[Chosen] = []
        passed: list[Candidate] = []
        steps = yield from self._steps(slot, free)
        # Nothing of queues with partitions is claimed ahead.
        most = free + (ahead if any(map(self._keys.is_plain, self._keys.queues)) else 0)
        while len(chosen) < most and self._has_room():
            early = len(chosen) >= free
            one = yield from steps.next()
            if one is None:
                break
            if one.id in self._gone:
                continue
            found = None
            if self._may_try(one, early=early) and (yield from self._hold(one, steps)):
                found = yield from self._try(one, place, early=early)
            if found is not None:
                chosen.append(found)
                self._note_chosen(one)
            elif steps.step == "own" and one.id not in self._gone:
                passed.append(one)
        for one in passed:
            self._pending.back(one)
        return chosen

    def _has_room(self) -> bool:
        """Whether a queue is left that rates and members allow tasks of."""
        if not self._rated and not self._dry:
            return True
        return any(self._room(name) and self._pools[name] not in self._dry for name in self._keys.queues)

    def _steps(self, slot: str | None, wanted: int) -> Script[Steps]:
        order = self._claim.group.order
        if order is None:
            return Steps(self._pending, slot, wanted)
        while True:
            ones = [one for one in self._pending.in_reach(slot) if not one.other and one.id not in self._gone]
            enough = len(ones) >= ORDERED or self._pending.looked_at > _MOST_ORDERED
            if enough or not (yield from self._pending.page()):
                return InOrder(self._pending, slot, order.apply(ones[:ORDERED]))

    def _may_try(self, one: Candidate, *, early: bool) -> bool:
        """Whether a slot may take it now. Tasks in front that cannot be given are noted on the way."""
        pool = self._pools[one.queue]
        if pool is not None and (early or pool in self._dry):
            return False
        if not self._keys.is_plain(one.queue) and (early or self._keys.is_full(one)):
            return False
        if one.odd:
            self._odd.append(one.id)
            self._gone.add(one.id)
        return not one.odd and not one.other

    def _hold(self, one: Candidate, steps: Steps) -> Script[bool]:
        """Lock the task, and with it those that may be next, if it must be locked now; False if it cannot be."""
        if one.id in self._locked or not self._must_hold(one):
            return True
        wanted = max(self._keys.wanted, 2 * len(self._locked))
        each = max(1, wanted // max(1, len(self._keys.following)))
        ones = {other.id: other for other in (one, *self._pending.upcoming(each, wanted), *steps.upcoming(wanted))}
        known = self._gone | self._locked
        asked = [other for other in ones.values() if other.id not in known and self._must_hold(other)]
        places = {place for (place,) in (yield self._sql.ask("keyed_lock", places=texts([o.place for o in asked])))}
        locked = [other for other in asked if other.place in places]
        self._locked |= {other.id for other in locked}
        self._gone |= {other.id for other in asked} - self._locked
        yield from self._grants.load([other.need for other in locked if other.need is not None], self._keys.wanted)
        return one.id in self._locked

    def _must_hold(self, one: Candidate) -> bool:
        """Members are given only for locked tasks. Claims on queues without partitions do not take turns."""
        return self._keys.is_plain(one.queue) if one.need is None else one.need not in self._unmet

    def _note_chosen(self, one: Candidate) -> None:
        self._gone.add(one.id)
        self._keys.note_start(one)
        for items in self._items if one.batch is not None else ():
            (line,) = items.lines
            if (line.batch, line.queue) == (one.batch, one.queue):
                line.pending[one.key] -= 1

    def _write_drawn(self, chosen: set[TaskId]) -> Script[dict[TaskId, str]]:
        """Make items pending that were drawn, and say where they are now. Those that are chosen start at once, unless
        the claim may begin again."""
        left = [one for one in self._drawn.values() if self._odd or one.id not in chosen]
        if not left:
            return {}
        asked = self._sql.ask("keyed_draw", self._claim.now, places=texts([one.place for one in left]))
        return dict((yield asked if self._odd else asked.unheard()))
