"""Tasks of queues with partitions that wait, read for the slots of a claim, in the order in which each slot takes them.

They are read without locks, for all slots of a group at once. The queues are locked, so that owners do not change.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush, nsmallest
from typing import Literal

from pitboss.engines.postgres.claim_group import LOOK_BEYOND, GroupClaim
from pitboss.engines.postgres.claim_with_resources import ANY_NUMBER, BEFORE_ALL, Candidate, OpenQueue
from pitboss.engines.postgres.ready_members import Need
from pitboss.engines.postgres.rows import numbers, texts, want_of
from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.model.batch import BatchId
from pitboss.model.ids import TaskId
from pitboss.model.picking import ANY

# How many more tasks to read of each kind than are wanted: some may not be taken.
MARGIN = 3
_CONDITIONS = {"pending": "{keyed_pending_condition}", "held": "{keyed_held_condition}"}
State = Literal["pending", "held"]
# By priority, then age.
_Rank = tuple[int, TaskId]
_Entry = tuple[int, TaskId, Candidate]
# The number of a line, and a key, a priority and a task in it.
_Position = tuple[int, str, int, TaskId]


def define_keyed_claims(sql: Statements) -> None:
    """The statements that read tasks: pending ones, and items of batches that are held until they are drawn."""
    for state, condition in _CONDITIONS.items():
        own = "{keyed_own_condition}"
        sql.define(f"keyed_beyond_{state}_own", "keyed_beyond", waiting=condition, of_keys=own)
        for name in ("keyed_startable", "keyed_startable_capped"):
            ending = name.removeprefix("keyed_startable")
            sql.define(f"keyed_page_{state}{ending}", "keyed_page", waiting=condition, startable=sql.text(name))
    helped = "{keyed_helped_condition}"
    sql.define("keyed_beyond_held_helped", "keyed_beyond", waiting=_CONDITIONS["held"], of_keys=helped)


class _Key:
    """A partition key: who owns it, and how many tasks of it run, counting those that are chosen."""

    __slots__ = ("moving", "owner", "running")

    def __init__(self, owner: str | None, moving: bool, running: int) -> None:
        self.owner, self.moving, self.running = owner, moving, running


class Line:
    """The pending tasks of a queue, or the items of a batch in it. `room`: how many more of them to look at. `asked`:
    how many of them to look at now. `last`: the last one that was looked at."""

    def __init__(self, queue: str, room: int, batch: BatchId | None = None) -> None:
        self.queue, self.room, self.batch = queue, room, batch
        self.asked = self.looked_at = 0
        self.last: _Rank = BEFORE_ALL
        # Key -> how many items of the batch are pending.
        self.pending: defaultdict[str | None, int] = defaultdict(int)

    def again(self) -> "Line":
        """What was looked at in this line."""
        line = Line(self.queue, 0, self.batch)
        line.asked = self.looked_at
        return line


class Keys:
    """What a claim knows of its queues, their keys, and its slots. `slots` are those of the session."""

    def __init__(self, claim: GroupClaim, queues: Iterable[OpenQueue], slots: Iterable[str], kept: list[Row]) -> None:
        self._claim = claim
        self.wanted = claim.group.wanted
        self.queues = {one.name: one for one in queues}
        self.slots = {name: number for number, name in enumerate(dict.fromkeys(slots), start=1)}
        self._kept, self._kept_names = kept, set[str]()
        self._keys: dict[tuple[str, str], _Key] = {}
        # The names of the slots that are not filled yet.
        self.following: list[str] = []

    def is_plain(self, queue: str) -> bool:
        """Whether the queue has no partitions."""
        return self.queues[queue].helped is None

    def has_owner(self, one: Candidate) -> bool:
        """Whether it counts who owns its key."""
        return one.key is not None and self.queues[one.queue].helped is not None

    def owner(self, one: Candidate) -> str | None:
        """The slot whose own the task is."""
        key = self._keys[one.queue, one.key or ""]
        return None if key.moving else key.owner

    def owns(self, one: Candidate, slot: str | None) -> bool:
        return not self.has_owner(one) or (slot is not None and self.owner(one) == slot)

    def helps(self, one: Candidate) -> bool:
        """Whether a slot may take the task of another one's key."""
        helped = self.queues[one.queue].helped
        if helped != "missing":
            return helped != "none"
        self._kept_names = self._kept_names or {name for (name,) in self._kept}
        return self._keys[one.queue, one.key or ""].owner not in self._kept_names

    def is_full(self, one: Candidate) -> bool:
        """Whether as many tasks of its key run as may."""
        most = self.most(one.queue)
        return most is not None and one.key is not None and self._keys[one.queue, one.key].running >= most

    def in_reach(self, one: Candidate, slot: str | None) -> bool:
        return not self.is_full(one) and (self.owns(one, slot) or self.helps(one))

    def most(self, queue: str) -> int | None:
        """How many tasks of a key may run."""
        return None if self.is_plain(queue) else self.queues[queue].max_per_key

    def note(self, queue: str, key: str, owner: str | None, moving: bool, running: int | None) -> None:
        if (queue, key) not in self._keys:
            self._keys[queue, key] = _Key(owner, bool(moving), running or 0)

    def note_start(self, one: Candidate) -> None:
        if self.has_owner(one):
            self._keys[one.queue, one.key or ""].running += 1

    def candidate(self, row: Row, depth: int) -> Candidate:
        """From `keyed_page` or `keyed_beyond`."""
        _, _, owner, moving, running, _, place, task, queue, priority, key, losses, want, tried = row[:14]
        created_at, attempts, batch, run_at, expired, odd, other = row[14:]
        pool = self.queues[queue].pool
        need = None if pool is None else Need(pool, ANY if want is None else want_of(want), tuple(tried or ()))
        if key is not None:
            self.note(queue, key, owner, moving, running)
        odd, other = expired or (odd and not other), other and not expired
        return Candidate(
            place, task, queue, losses > 0, need, key, priority, created_at, attempts, batch, run_at, odd, other, depth
        )

    def asking_page(self, state: State, lines: Sequence[Line], each: int) -> Ask:
        group = self._claim.group
        capped = each < ANY_NUMBER and any(self.most(line.queue) is not None for line in lines)
        return self._claim.sql.ask(
            f"keyed_page_{state}{'_capped' if capped else ''}",
            self._claim.now,
            **self._lines(lines),
            rooms=numbers([line.asked for line in lines]),
            handlers=group.handlers,
            only=group.only,
            slots=texts(list(self.slots)),
            each=each,
            margin=MARGIN,
        )

    def asking_behind(self, which: str, lines: Sequence[Line], after: Mapping[str, _Position], size: int) -> Ask:
        group = self._claim.group
        return self._claim.sql.ask(
            f"keyed_beyond_{which}",
            self._claim.now,
            **self._lines(lines),
            handlers=group.handlers,
            only=group.only,
            slots=texts(list(after)),
            after_lines=numbers([line for line, _, _, _ in after.values()]),
            after_keys=texts([key for _, key, _, _ in after.values()]),
            after_priorities=numbers([priority for _, _, priority, _ in after.values()]),
            after_ids=texts([task for _, _, _, task in after.values()]),
            size=size,
        )

    def _lines(self, lines: Sequence[Line]) -> dict[str, object]:
        return {
            "queues": texts([line.queue for line in lines]),
            "batches": texts([line.batch for line in lines]),
            "priorities": numbers([line.last[0] for line in lines]),
            "ids": texts([line.last[1] for line in lines]),
            "most": numbers([self.most(line.queue) for line in lines]),
            "helped": texts([self.queues[line.queue].helped for line in lines]),
        }


class _Behind:
    """Tasks behind those that were looked at, as far as they are read."""

    def __init__(self) -> None:
        self.waiting: deque[Candidate] = deque()
        self.after: _Position = (1, "", *BEFORE_ALL)
        self.over = False


class Waiting:
    """Lines of tasks. Each slot takes from them first its own, then its own behind those that are looked at, then
    those of others.

    Of what is looked at, only as many tasks of each kind are read as are probably enough (`each`); if they are not, all
    are read.
    """

    def __init__(self, keys: Keys, lines: Sequence[Line], state: State, each: int) -> None:
        self._keys, self.lines, self._state, self._each = keys, lines, state, each
        self._open = [line for line in lines if line.room > 0]
        # The last task up to which all are looked at; None: all of them are.
        self._read_to: _Rank | None = BEFORE_ALL if self._open else None
        # The kinds of which not all were read (`keyed_page`), each with the last task up to which they were; and such
        # keys, with their kinds.
        self._cut: dict[int, _Rank] = {}
        self._cut_keys: list[tuple[int, Candidate]] = []
        self._known: set[TaskId] = set()
        self._own: defaultdict[str, list[_Entry]] = defaultdict(list)
        self._shared: list[_Entry] = []
        self._owned: list[_Entry] = []
        self._behind: dict[str, _Behind] = {}
        self._rest: dict[str | None, _Behind] = {}

    @property
    def looked_at(self) -> int:
        """How many tasks were looked at in the line in which these were most."""
        return max((line.looked_at for line in self.lines), default=0)

    def asking(self, size: int) -> Ask:
        """The next tasks, `size` of each line. The rows are for `note`."""
        for line in self._open:
            enough = self._keys.is_plain(line.queue) and not line.looked_at
            line.asked = min(line.room, self._each if enough else size)
        return self._keys.asking_page(self._state, self._open, self._each)

    def note(self, rows: Iterable[Row]) -> None:
        ends, tasks = dict[int, Row](), list[Row]()
        for row in rows:
            if row[6] is None:
                ends[row[0]] = row
            else:
                tasks.append(row)
        self._add(tasks)
        lines, self._open = self._open, []
        for number, line in enumerate(lines, start=1):
            if number in ends:
                row = ends[number]
                line.looked_at, line.room, line.last = line.looked_at + row[1], line.room - row[1], (row[9], row[7])
                if row[1] == line.asked and line.room > 0 and not self._is_far(line):
                    self._open.append(line)
        self._read_to = min((line.last for line in self._open), default=None)

    def _is_far(self, line: Line) -> bool:
        """Whether enough was looked at in a queue without partitions."""
        return self._keys.is_plain(line.queue) and line.looked_at > self._keys.wanted + LOOK_BEYOND

    def _add(self, rows: Sequence[Row]) -> None:
        depth = self.looked_at
        kinds, keys = Counter[tuple[int, int]](), Counter[tuple[int, str]]()
        for row in sorted(rows, key=lambda row: row[1]):
            line, _, _, _, running, kind = row[:6]
            one = self._keys.candidate(row, depth + row[1])
            if one.id not in self._known:
                self.add(one)
            kinds[line, kind] += 1
            if kinds[line, kind] == self._each:
                self._cut[kind] = min((one.priority, one.id), self._cut.get(kind, (one.priority, one.id)))
            if running is not None and one.key is not None and self._each < ANY_NUMBER:
                keys[line, one.key] += 1
                if keys[line, one.key] == (self._keys.most(one.queue) or 0) - running + MARGIN:
                    self._cut_keys.append((kind, one))

    def add(self, one: Candidate) -> None:
        self._known.add(one.id)
        if self._keys.has_owner(one):
            self._owned.append((one.priority, one.id, one))
        self.back(one)

    def back(self, one: Candidate) -> None:
        """Put back what `first` gave."""
        if not self._keys.has_owner(one):
            heappush(self._shared, (one.priority, one.id, one))
        elif (owner := self._keys.owner(one)) is not None:
            heappush(self._own[owner], (one.priority, one.id, one))

    def page(self) -> Script[bool]:
        """Look at more; False if a claim looks at no more."""
        if self._read_to is None:
            return False
        self.note((yield self.asking(LOOK_BEYOND)))
        return True

    def read_all(self) -> Script[bool]:
        """Read all that were looked at; False if they are read."""
        if not self._cut and not self._cut_keys:
            return False
        self._cut, self._cut_keys, self._each = {}, [], ANY_NUMBER
        again = [line.again() for line in self.lines if line.looked_at]
        rows = yield self._keys.asking_page(self._state, again, ANY_NUMBER)
        self._add([row for row in rows if row[6] is not None])
        return True

    def first(self, slot: str | None) -> Script[Candidate | None]:
        """The next of the slot's own tasks among those that are looked at."""
        while True:
            line, own = self._shared, self._own[slot] if slot is not None else []
            if own and (not line or own[0] < line[0]):
                line = own
            if self.hides(line[0][2] if line else None, slot, own=True):
                yield from self.read_all()
                continue
            if line and (self._read_to is None or line[0][:2] <= self._read_to):
                return heappop(line)[2]
            if not (yield from self.page()):
                return None

    def hides(self, following: Candidate | None, slot: str | None, *, own: bool) -> bool:
        """Whether the slot may take a task before this one that was looked at and not read: one of its own, or one of
        others."""
        if not self._cut and not self._cut_keys:
            return False
        mine = {0} if slot is None else {0, self._keys.slots[slot]}
        rank = None if following is None else (following.priority, following.id)
        ends = [(kind, end) for kind, end in self._cut.items()]
        ends += [(kind, (one.priority, one.id)) for kind, one in self._cut_keys if not self._keys.is_full(one)]
        return any((kind in mine) is own and (rank is None or rank > end) for kind, end in ends)

    def behind(self, slot: str | None, wanted: int) -> Script[Candidate | None]:
        """The next of the slot's own tasks behind those that are looked at."""
        lines = [line for line in self.lines if line.room <= 0 and not self._keys.is_plain(line.queue)]
        if slot is None or not lines:
            return None
        if slot not in self._behind:
            few = [name for name in self._keys.following if len(self._own[name]) < wanted]
            asked = {name: self._behind.setdefault(name, _Behind()) for name in dict.fromkeys([slot, *few])}
            yield from self._read_behind("own", lines, asked, wanted)
        return (yield from self._next_behind("own", lines, slot, self._behind[slot]))

    def rest(self, slot: str | None) -> Script[Candidate | None]:
        """The next item of others that the slot may draw, behind those that are looked at."""
        lines = [line for line in self.lines if line.room <= 0 and self._keys.queues[line.queue].helped != "none"]
        if self._state == "pending" or not lines:
            return None
        known = self._rest.setdefault(slot, _Behind())
        while (one := (yield from self._next_behind("helped", lines, slot or "", known))) is not None:
            if not self._keys.owns(one, slot):
                return one
        return None

    def _next_behind(self, which: str, lines: Sequence[Line], slot: str, known: _Behind) -> Script[Candidate | None]:
        while not known.waiting and not known.over:
            yield from self._read_behind(which, lines, {slot: known}, LOOK_BEYOND)
        return known.waiting.popleft() if known.waiting else None

    def _read_behind(self, which: str, lines: Sequence[Line], asked: Mapping[str, _Behind], size: int) -> Script[None]:
        after = {slot: one.after for slot, one in asked.items()}
        rows = yield self._keys.asking_behind(f"{self._state}_{which}", lines, after, size)
        for slot, one in asked.items():
            mine = sorted((row for row in rows if row[5] == slot), key=lambda row: (row[0], row[10], row[9], row[7]))
            one.waiting.extend([self._keys.candidate(row, self.looked_at) for row in mine])
            one.over = len(mine) < size
            if mine:
                line, key, priority, task = (mine[-1][place] for place in (0, 10, 9, 7))
                one.after = (line, key, priority, task)

    def others(self, slot: str | None) -> list[Candidate]:
        """Tasks of others that the slot may take."""
        ones = (one for _, _, one in sorted(self._owned))
        return [one for one in ones if not self._keys.owns(one, slot) and self._keys.helps(one)]

    def in_reach(self, slot: str | None) -> list[Candidate]:
        """All that are read and that the slot may take, in their common order."""
        entries = sorted([*self._shared, *self._owned])
        return [one for _, _, one in entries if self._keys.in_reach(one, slot)]

    def upcoming(self, each: int, shared: int) -> list[Candidate]:
        """What the slots that are not filled yet may take next."""
        found = [one for _, _, one in nsmallest(shared, self._shared)]
        for slot in self._keys.following:
            found += [one for _, _, one in nsmallest(each, self._own[slot])]
            found += list(self._behind[slot].waiting)[:each] if slot in self._behind else []
        return found


class Steps:
    """The tasks that a slot may take, in its order. `step`: where the last one came from."""

    def __init__(self, waiting: Waiting, slot: str | None, wanted: int) -> None:
        self._waiting, self._slot, self._wanted = waiting, slot, wanted
        self.step: Literal["own", "behind", "others"] = "own"
        self._others: deque[Candidate] | None = None

    def next(self) -> Script[Candidate | None]:
        if self.step == "own":
            one = yield from self._waiting.first(self._slot)
            if one is not None:
                return one
            self.step = "behind"
        if self.step == "behind":
            one = yield from self._waiting.behind(self._slot, self._wanted)
            if one is not None:
                return one
            self.step = "others"
        if self._others is None:
            self._others = deque(self._waiting.others(self._slot))
        following = self._others[0] if self._others else None
        if self._waiting.hides(following, self._slot, own=False) and (yield from self._waiting.read_all()):
            self._others = deque(self._waiting.others(self._slot))
        return self._others.popleft() if self._others else (yield from self._waiting.rest(self._slot))

    def upcoming(self, number: int) -> list[Candidate]:
        return list(self._others or ())[:number]


class InOrder(Steps):
    """The same for a slot with an order of its own: the first tasks that it may take, in that order."""

    def __init__(self, waiting: Waiting, slot: str | None, ones: Sequence[Candidate]) -> None:
        super().__init__(waiting, slot, 0)
        self.step = "others"
        self._others = deque(ones)
