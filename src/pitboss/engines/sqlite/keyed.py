"""Queues with partitions in a claim: which of their tasks a slot may take, in which order, and which items it draws.

`engines.partition_protocol` has the rule. The first waiting tasks of a queue are read once for all slots, with the
owners of their keys; the keys of a slot are gone through only if these are too few.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.claim_rows import (
    BEFORE_ALL,
    Key,
    KeyedRow,
    KeyItems,
    LookRow,
    PendingRow,
    Rank,
    key_items,
    key_names,
    keyed_rows,
    look_rows,
    rank,
)
from pitboss.engines.sqlite.open_queue import OpenQueue
from pitboss.engines.sqlite.partitions import kept_slots
from pitboss.model.batching import PASSED_BY
from pitboss.model.partition import LOOK
from pitboss.model.pool_slot import slot_name
from pitboss.model.session import Slot

# A slot with an order of its own looks no further, so that a claim stays short.
_ORDER_LOOK = 10 * LOOK
# Keys per read, tasks of a key per read, and portions of a look.
_KEYS_AT_ONCE = 64
_TASKS_AT_ONCE = 250
_FIRST_LOOK = 64
_SMALLEST_LOOK = 16


Wanted = Callable[[LookRow], bool]
LineOf = Callable[[Key], str | None]
# Lines beside those of slots, whose names have a slash: tasks without a key, and those that any slot may take.
_WITHOUT_KEY, _WITHOUT_OWNER = "without a key", "without an owner"


class _Look:
    """The first waiting tasks of a queue, or of a batch in it, by rank. Read in portions, as far as slots look.

    Those that a slot may have are also in lines of their own, so that many slots need not go through all of them.
    """

    def __init__(
        self, act: Act, statement: str, *values: str, size: int, line_of: LineOf, without: Container[int] = ()
    ) -> None:
        self._act, self._statement, self._values = act, statement, values
        self._line_of, self._without = line_of, without
        self._size, self._read_to, self._whole = size, BEFORE_ALL, False
        self._rows: list[LookRow] = []
        self._lines: dict[str, list[LookRow]] = defaultdict(list)

    def first(self, most: int = LOOK) -> Iterator[LookRow]:
        position = 0
        while position < most and (position < len(self._rows) or self._read(most)):
            yield self._rows[position]
            position += 1

    def of(self, *names: str) -> Iterator[LookRow]:
        """Those of the first `LOOK` that are in these lines."""
        lines, places = [self._lines[name] for name in names], [0] * len(names)
        while True:
            heads = [
                (rank(line[place]), n)
                for n, (line, place) in enumerate(zip(lines, places, strict=True))
                if place < len(line)
            ]
            if heads:
                at, n = min(heads)
                if len(self._rows) > LOOK and at > rank(self._rows[LOOK - 1]):
                    return
                places[n] += 1
                yield lines[n][places[n] - 1]
            elif len(self._rows) >= LOOK or not self._read():
                return

    def end(self) -> Rank | None:
        """The rank of the last of the first `LOOK`; None if there are none behind it."""
        while len(self._rows) <= LOOK:
            if not self._read():
                return None
        return rank(self._rows[LOOK - 1])

    def remove(self, tasks: Iterable[PendingRow | LookRow]) -> None:
        for task in tasks:
            place = bisect_left(self._rows, rank(task), key=rank)
            if place < len(self._rows) and self._rows[place].row == task.row:
                line = self._line(self._rows.pop(place))
                if line is not None:
                    del line[bisect_left(line, rank(task), key=rank)]

    def add(self, tasks: Iterable[LookRow]) -> None:
        """They wait here from now on. Those behind what was read are met when they are read."""
        for one in tasks:
            if self._whole or rank(one) <= self._read_to:
                insort(self._rows, one, key=rank)
                line = self._line(one)
                if line is not None:
                    insort(line, one, key=rank)

    def _line(self, one: LookRow) -> list[LookRow] | None:
        name = self._line_of(one)
        return None if name is None else self._lines[name]

    def _read(self, most: int = LOOK) -> bool:
        """Read the next portion of the first `most`; False if there are no more."""
        if self._whole:
            return False
        before = len(self._rows)
        size = min(self._size, max(_SMALLEST_LOOK, most + 1 - len(self._rows)))
        found = self._act.decoded(self._statement, look_rows, *self._values, *self._read_to, size)
        self._whole = len(found) < size
        self._read_to = rank(found[-1]) if found else self._read_to
        self._size = min(2 * self._size, LOOK)
        for one in found:
            if one.row not in self._without:
                self._rows.append(one)
                line = self._line(one)
                if line is not None:
                    line.append(one)
        return len(self._rows) > before or self._read(most)


class _Items:
    """The items of a running batch in a queue with partitions."""

    def __init__(self, act: Act, row: Sequence[Any], line_of: LineOf) -> None:
        self._act = act
        self.batch: str = row[0]
        self.queue: str = row[1]
        self.held: int = row[2]
        self._pending: int = row[3]
        self.beyond = PASSED_BY if row[4] else 0
        self.look = _Look(act, "draw_look", self.batch, self.queue, size=_FIRST_LOOK, line_of=line_of)

    @cached_property
    def drawn(self) -> dict[str | None, KeyItems]:
        """Those that are pending, by key."""
        keyed = self._act.decoded("draw_pending", key_items, self.batch, self.queue)
        without = KeyItems(None, None, False, self._pending - sum(one.n for one in keyed))
        return {one.partition: one for one in (*keyed, without)}

    def count(self, one: LookRow | KeyedRow, change: int) -> None:
        """One item more is pending, or one less."""
        known = self.drawn.get(one.partition)
        if known is not None:
            known.n += change
        elif isinstance(one, LookRow):
            self.drawn[one.partition] = KeyItems(one.partition, one.owner, one.moving, change)


class Keys:
    """The queues with partitions during one claim: what was read of them, and what slots have taken since."""

    def __init__(self, act: Act, session: int, queues: dict[str, OpenQueue], wanted: int, *, batches: bool) -> None:
        self.act, self._session, self._queues, self._batches = act, session, queues, batches
        self._size = max(_FIRST_LOOK, min(2 * wanted, LOOK))
        # Rows of tasks that were taken, though this may not be written yet.
        self.taken: set[int] = set()
        self._looks: dict[str, _Look] = {}
        self._running: dict[str, Counter[str]] = {}

    @cached_property
    def kept(self) -> set[str | None]:
        """The slots that belong to a node."""
        return {slot.name for slot, _ in kept_slots(self.act.rows, self.act.now)}

    def reach(self, slot: Slot) -> "Reach":
        """What this slot may take."""
        if slot.number is None:
            return Reach(self, None)
        name = slot_name(slot.pool, slot.number)
        return Reach(self, name if name in self._seated else None)

    def needs_turns(self, slot: Slot) -> bool:
        """Whether the slot gets other tasks than a slot that wants the same."""
        if slot.number is None and not self._batches:
            return False
        names = self._queues if slot.queues is None else slot.queues
        return any(queue.divided for name in names if (queue := self._queues.get(name)) is not None)

    def draw(self, slot: Slot, queues: Sequence[OpenQueue]) -> bool:
        """Draw the items that the slot may take; True if there may be more at once."""
        if not self._batches or slot.free <= 0:
            return False
        reach, drawn, pending = self.reach(slot), 0, 0
        known = {queue.name: queue for queue in queues}
        sources = [(known[items.queue], items) for items in self._items if items.queue in known and items.held]
        for queue, items in sources:
            there = sum(one.n for one in items.drawn.values() if one.n and reach.may_take(queue, one))
            missing = slot.free + items.beyond - there
            found = reach.undrawn(queue, items, missing) if missing > 0 else []
            pending += self._draw(queue, items, found)
            drawn += len(found)
        return drawn > 0 and not pending and any(reach.undrawn(queue, items, 1) for queue, items in sources)

    def is_full(self, queue: OpenQueue, partition: str | None) -> bool:
        """Whether as many tasks of the key run as may."""
        if queue.max_per_key is None or partition is None:
            return False
        return self.running(queue)[partition] >= queue.max_per_key

    def running(self, queue: OpenQueue) -> Counter[str]:
        """How many tasks of each key run."""
        found = self._running.get(queue.name)
        if found is None:
            rows: Iterable[Any] = self.act.rows("partition_running", queue.name)
            found = self._running[queue.name] = Counter(dict(rows))
        return found

    def look(self, queue: OpenQueue) -> _Look:
        if queue.name not in self._looks:
            line_of = self._line_of(queue)
            self._looks[queue.name] = _Look(
                self.act, "claim_look", queue.name, size=self._size, line_of=line_of, without=self.taken
            )
        return self._looks[queue.name]

    def count_start(self, one: PendingRow) -> None:
        """A slot takes the task."""
        queue = self._queues[one.queue]
        if not isinstance(one, KeyedRow) or not queue.divided:
            return
        self.taken.add(one.row)
        if one.partition is not None and queue.max_per_key is not None:
            self.running(queue)[one.partition] += 1

    def remove(self, tasks: Sequence[PendingRow]) -> None:
        """These tasks are not pending any more."""
        for one in tasks:
            if one.queue in self._looks:
                self._looks[one.queue].remove([one])
        if self._batches:
            known = {(items.batch, items.queue): items for items in self._items}
            for one in tasks:
                if isinstance(one, KeyedRow) and one.batch is not None and (one.batch, one.queue) in known:
                    known[one.batch, one.queue].count(one, -1)

    def forget(self) -> None:
        """Other tasks have become pending."""
        self._looks.clear()

    @cached_property
    def _seated(self) -> set[str]:
        """The slots of the session."""
        rows: Iterable[Any] = self.act.rows("slot_list_of", self._session)
        return {slot_name(pool, number) for pool, number in rows}

    @cached_property
    def _items(self) -> list[_Items]:
        self.act.write_counts()
        rows: list[Any] = list(self.act.rows("batch_draw_open"))
        return [
            _Items(self.act, row, self._line_of(queue))
            for row in rows
            if (queue := self._queues.get(row[1])) is not None and queue.divided
        ]

    def _line_of(self, queue: OpenQueue) -> LineOf:
        """In which line a task of the queue is: that of the slot that owns its key, or one for all slots."""
        kept = self.kept if queue.helped == "ownerless" else None

        def line_of(one: Key) -> str | None:
            if one.partition is None:
                return _WITHOUT_KEY
            if kept is not None and one.owner not in kept:
                return _WITHOUT_OWNER
            return None if one.moving else one.owner

        return line_of

    def _draw(self, queue: OpenQueue, items: _Items, found: list[LookRow]) -> int:
        """Release these items; how many of them are pending now."""
        if not found:
            return 0
        act = self.act
        act.run("held_release", act.now, json_list(one.row for one in found))
        later = [one.run_at for one in found if one.run_at is not None and one.run_at > act.now]
        pending = [one for one in found if one.run_at is None or one.run_at <= act.now]
        for state, n in (("scheduled", len(later)), ("pending", len(pending))):
            act.moved(queue.name, "held", state, n, items.batch)
        items.look.remove(found)
        items.held -= len(found)
        for one in pending:
            items.count(one, +1)
        self.look(queue).add(pending)
        queue.pending, queue.scheduled = queue.pending + len(pending), queue.scheduled + len(later)
        queue.due = min((*later, *(() if queue.due is None else (queue.due,))), default=None)
        return len(pending)


class Reach:
    """What one slot may take of queues with partitions; `slot` is None if it owns nothing."""

    def __init__(self, keys: Keys, slot: str | None) -> None:
        self._keys, self._slot, self._act = keys, slot, keys.act

    def owns(self, one: Key) -> bool:
        """Whether it comes first: the key is the slot's own, or there is none."""
        return one.partition is None or (self._slot is not None and one.owner == self._slot and not one.moving)

    def helps(self, queue: OpenQueue, one: Key) -> bool:
        """Whether the slot may take tasks of this key of another slot."""
        return queue.helped == "all" or (queue.helped == "ownerless" and one.owner not in self._keys.kept)

    def may_take(self, queue: OpenQueue, one: Key) -> bool:
        return (self.owns(one) or self.helps(queue, one)) and not self._keys.is_full(queue, one.partition)

    def own_first(self, queue: OpenQueue, wanted: Wanted) -> Iterator[KeyedRow]:
        """The first step: its own among the first tasks."""
        return self._tasks(queue, self._own(self._keys.look(queue)), wanted)

    def own_others(self, queue: OpenQueue, wanted: Wanted, size: int) -> Iterator[KeyedRow]:
        """The second step: the other tasks of its own keys, key by key."""
        return self._tasks(queue, self._of_own_keys(queue, size), wanted)

    def of_others(self, queue: OpenQueue, wanted: Wanted) -> Iterator[KeyedRow]:
        """The third step: those of other keys, among the first tasks."""
        return self._tasks(queue, self._of_others(queue, self._keys.look(queue)), wanted)

    def all_in_order(self, queue: OpenQueue, wanted: Wanted) -> Iterator[LookRow]:
        """What it may take, as one line, for a slot with an order of its own."""
        first = self._keys.look(queue).first(_ORDER_LOOK)
        return (one for one in first if wanted(one) and self.may_take(queue, one))

    def undrawn(self, queue: OpenQueue, items: _Items, most: int) -> list[LookRow]:
        """The next items to draw for it: its own, then those of others.

        Items without a key are in no index of keys: those behind the first `LOOK` wait until they have moved up.
        """
        found = self._not_full(queue, self._own(items.look), most)
        if len(found) < most and self._slot is not None:
            found += self._behind(queue, items, most - len(found), "draw_own", self._slot)
        if len(found) < most and queue.helped != "none":
            found += self._not_full(queue, self._of_others(queue, items.look), most - len(found))
            if len(found) < most:
                found += self._behind(queue, items, most - len(found), "draw_all")
        return found

    def _own(self, look: _Look) -> Iterator[LookRow]:
        return look.of(_WITHOUT_KEY) if self._slot is None else look.of(_WITHOUT_KEY, self._slot)

    def _of_others(self, queue: OpenQueue, look: _Look) -> Iterator[LookRow]:
        if queue.helped == "all":
            return (one for one in look.first() if not self.owns(one))
        return look.of(_WITHOUT_OWNER)

    def _not_full(self, queue: OpenQueue, tasks: Iterator[LookRow], most: int) -> list[LookRow]:
        return list(islice((one for one in tasks if not self._keys.is_full(queue, one.partition)), most))

    def _behind(self, queue: OpenQueue, items: _Items, most: int, statement: str, *values: str) -> list[LookRow]:
        """Items of its own keys, or of all others, behind the first ones: as many of each key, and the first of all."""
        end = items.look.end()
        if end is None:
            return []
        own = statement == "draw_own"
        rows = self._act.decoded(statement, look_rows, items.batch, items.queue, *end, most, *values)
        rows = [one for one in rows if self.owns(one) is own and self.may_take(queue, one)]
        return sorted(rows, key=rank)[:most]

    def _of_own_keys(self, queue: OpenQueue, size: int) -> Iterator[LookRow]:
        end = None if self._slot is None else self._keys.look(queue).end()
        if end is None or self._slot is None:
            return
        for key in self._own_keys(queue, self._slot, end):
            place, n = end, size
            while not self._keys.is_full(queue, key):
                rows = self._act.decoded("claim_look_key", look_rows, queue.name, key, *place, n)
                yield from rows
                if len(rows) < n:
                    break
                place, n = rank(rows[-1]), min(2 * n, _TASKS_AT_ONCE)

    def _own_keys(self, queue: OpenQueue, slot: str, end: Rank) -> Iterator[str]:
        """Its keys that have pending tasks behind this rank."""
        after, more = "", True
        while more:
            keys = self._act.decoded("claim_own_keys", key_names, queue.name, slot, after, *end, _KEYS_AT_ONCE)
            yield from keys
            more = len(keys) == _KEYS_AT_ONCE
            after = keys[-1] if more else after

    def _tasks(self, queue: OpenQueue, found: Iterator[LookRow], wanted: Wanted) -> Iterator[KeyedRow]:
        """Those that may start now, as long as the queue gives any."""
        for one in found:
            if queue.passed >= queue.max_passed:
                return
            if one.row not in self._keys.taken and wanted(one) and not self._keys.is_full(queue, one.partition):
                yield KeyedRow.sketched(one, queue.name)


def named(act: Act, rows: Sequence[int]) -> list[KeyedRow]:
    """The pending tasks of these rows, in this order."""
    found = {one.row: one for one in act.decoded("claim_named", keyed_rows, json_list(rows))}
    return [found[row] for row in rows]
