"""Which ranges of which indexes lead to the tasks of a filter, so that a read does not grow with what is stored.

The SQL engines share this: their indexes on tasks have the same columns. A plan is a generator: it asks what it has to
know, gets rows, and returns ranges. Each task that matches is in exactly one of them; whether a task of a range matches
is for the filter's condition to say.
"""

from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from pitboss.engines.sqlfilter import finished_bound
from pitboss.model.duration import Moment
from pitboss.model.filter import Count, Filter
from pitboss.model.ids import TaskId, ids_beginning
from pitboss.model.matching import id_bound
from pitboss.model.states import FINISHED, State

# With more ranges, reading all tasks is better.
MOST_RANGES = 100
_MOST_OF_STATE = 40
# The conditions of partial indexes, word for word: SQLite would not use them otherwise.
_AT_REST = "state NOT IN ('pending', 'running')"
_ENDED = "state IN ('completed', 'failed', 'cancelled')"
_LIVE = frozenset({State.PENDING, State.RUNNING})
# Items that have been drawn are few.
_DRAWN = frozenset({State.PENDING, State.SCHEDULED, State.RUNNING})
_OF_FAILURES = ("fingerprint", "task")
_WITH_KEY = "(state = 'held' OR state = 'scheduled' OR state = 'pending' OR state = 'running')"
Row = tuple[Any, ...]


class Range(NamedTuple):
    """Tasks in the index `name` (without the table's; empty: the primary key) for which `where` is true. The index has
    them in the order of their ids, or they are few enough to sort (not `by_id`)."""

    name: str
    where: str
    values: tuple[object, ...] = ()
    by_id: bool = True


class Question(NamedTuple):
    """What a plan has to know. Answers are rows:

    "counts": queue, state and the exact number of tasks in it; "priorities": queue and priority of pending tasks, of
    the queues `names`; "failures": fingerprint (or None) and handler of failed tasks; "unknown": handlers for which
    tasks are held; "size": one row with the number of tasks in `ranges`, or a number above `most` if there are more.
    """

    about: Literal["counts", "priorities", "failures", "unknown", "size"]
    names: Sequence[str] = ()
    ranges: Sequence[Range] = ()
    most: int = 0


Plan = Generator[Question, Sequence[Row], list[Range]]
_Way = Generator[Question, Sequence[Row], list[Range] | None]


def plan(wanted: Filter, now: Moment, most: int, *, ordered: bool) -> Plan:
    """The ranges for a filter. They are read no further than `most` tasks; `ordered`: by their ids."""
    return _Planner(wanted, now, most, ordered).plan()


def counted_by_queue(wanted: Filter) -> bool:
    """Whether the numbers that the store keeps for its queues say how many tasks match."""
    return all(term.field in ("queue", "state") for term in wanted.terms)


def counted(wanted: Filter, counts: Iterable[Row]) -> Count:
    states = wanted.states()
    return Count(sum(n for queue, state, n in counts if state in states and wanted.admits("queue", queue)))


class _Planner:
    def __init__(self, wanted: Filter, now: Moment, most: int, ordered: bool) -> None:
        self._wanted, self._now, self._most, self._ordered = wanted, now, most, ordered
        self._states = wanted.states()

    def plan(self) -> Plan:
        """By the first way that serves this filter; those that lead to fewer tasks come first."""
        for way in (
            self._ids,
            self._items,
            self._in_order,
            self._ended,
            self._failures,
            self._members,
            self._unknown,
            self._rest,
        ):
            found = yield from way()
            if found is not None and len(found) <= MOST_RANGES and (yield from self._can_be_sorted(found)):
                return self._bounded(found)
        return self._bounded([Range("", "1 = 1")])

    def _ids(self) -> _Way:
        yield from ()
        ids = self._wanted.named("id")
        return None if ids is None else [Range("", f"id IN ({_places(ids)})", ids)]

    def _items(self) -> _Way:
        yield from ()
        batches = self._wanted.named("batch")
        if batches is None:
            return None
        return [
            Range("items", f"batch = ? AND {_is(state)}", (one,), by_id=state not in _DRAWN)
            for one in batches
            for state in self._named()
        ]

    def _in_order(self) -> _Way:
        """Of the unfinished tasks with an order key, one is first, and the others are held behind it."""
        yield from ()
        keys = self._wanted.named("order")
        if keys is None or self._states & FINISHED:
            return None
        firsts = f"id IN (SELECT task FROM {{order_heads}} WHERE key IN ({_places(keys)}))"
        found = [Range("", firsts, keys, by_id=False)]
        if State.HELD in self._states and self._wanted.admits("reason", "order"):
            behind = f"{_is(State.HELD)} AND reason = 'order' AND order_key = ?"
            found += [Range("in_order", behind, (key,), by_id=False) for key in keys]
        return found

    def _ended(self) -> _Way:
        """By the moment at which they ended."""
        yield from ()
        bounds = [finished_bound(term, self._now) for term in self._wanted.terms if term.field == "finished"]
        if not bounds:
            return None
        since = " AND ".join(f"finished_at {op} ?" for op, _ in bounds)
        values = tuple(moment for _, moment in bounds)
        return [
            Range(index, f"{_is(state)} AND {_ENDED} AND {which} AND {since}", values, by_id=False)
            for state in self._named(FINISHED)
            for index, which in (("finished", "batch IS NULL"), ("items_finished", "batch IS NOT NULL"))
        ]

    def _failures(self) -> _Way:
        if self._states != {State.FAILED} or not any(term.field in _OF_FAILURES for term in self._wanted.terms):
            return None
        groups = yield Question("failures")
        return [
            _failures_of(mark, name)
            for mark, name in groups
            if self._wanted.admits("fingerprint", *_known(mark)) and self._wanted.admits("task", name)
        ]

    def _members(self) -> _Way:
        yield from ()
        members = self._wanted.named("resource")
        if members is None:
            return None
        return [
            Range("by_resource", f"resource = ? AND {_is(state)}", (one,)) for one in members for state in self._named()
        ]

    def _unknown(self) -> _Way:
        if self._states != {State.HELD} or self._wanted.named("reason") != ("handler",):
            return None
        names = yield Question("unknown")
        where = f"{_is(State.HELD)} AND reason = 'handler' AND handler = ?"
        return [Range("unknown", where, (name,)) for (name,) in names if self._wanted.admits("task", name)]

    def _rest(self) -> _Way:
        """By partition key, or else by queue; pending and running tasks by the indexes of claims."""
        keys = self._wanted.named("partition")
        by_queue = len(self._states) < len(State) or any(term.field == "queue" for term in self._wanted.terms)
        if keys is None and not by_queue:
            return None
        counts = yield Question("counts")
        left = [(queue, state) for queue, state, n in counts if n > 0 and self._is_admitted(queue, state)]
        by_state = {state: [queue for queue, its in left if its == state] for state in self._named()}
        found = []
        for state, queues in by_state.items():
            if not queues:
                continue
            if state is State.RUNNING:
                found.append(Range("running", _is(state), by_id=False))
            elif state is State.PENDING:
                found += yield from self._pending(queues)
            else:
                found += _at_rest("queue", queues, state) if keys is None else _at_rest("partition", keys, state)
        return found

    def _is_admitted(self, queue: str, state: str) -> bool:
        return state in self._states and self._wanted.admits("queue", queue)

    def _pending(self, queues: Sequence[str]) -> Plan:
        """They are kept by priority, so each priority is a range of its own; many priorities have to be sorted."""
        keys = self._wanted.named("partition")
        if keys is not None:
            some = f"queue IN ({_places(queues)}) AND partition IN ({_places(keys)})"
            return [Range("keyed", f"{_is(State.PENDING)} AND {some} AND {_WITH_KEY}", (*queues, *keys), by_id=False)]
        wanted = self._wanted.named("priority")
        if wanted is not None:
            lines = [(queue, int(number)) for queue in queues for number in wanted]
        else:
            lines = list((yield Question("priorities", names=queues)))
        if len(lines) > _MOST_OF_STATE:
            return [Range("pending", f"{_is(State.PENDING)} AND queue IN ({_places(queues)})", (*queues,), by_id=False)]
        return [Range("pending", f"{_is(State.PENDING)} AND queue = ? AND priority = ?", line) for line in lines]

    def _can_be_sorted(self, found: Sequence[Range]) -> Generator[Question, Sequence[Row], bool]:
        loose = [one for one in found if not one.by_id]
        if not self._ordered or not loose:
            return True
        ((number,),) = yield Question("size", ranges=self._bounded(loose), most=self._most)
        return bool(number <= self._most)

    def _named(self, among: Collection[State] = frozenset(State)) -> list[State]:
        return [state for state in State if state in self._states and state in among]

    def _bounded(self, found: Iterable[Range]) -> list[Range]:
        """Only the ids that the filter allows: an age, or the beginning of an id."""
        bounds: list[tuple[str, TaskId]] = []
        for term in self._wanted.terms:
            if term.field == "age":
                bounds.append(id_bound(term, self._now))
            elif term.field == "id" and not term.negated and len(term.values) == 1:
                beginning, star, _ = term.values[0].partition("*")
                ends = ids_beginning(beginning) if star else None
                bounds += [] if ends is None else [(">=", ends[0]), ("<=", ends[1])]
        also = "".join(f" AND id {op} ?" for op, _ in bounds)
        values = tuple(bound for _, bound in bounds)
        return [one._replace(where=one.where + also, values=(*one.values, *values)) for one in found]


def _is(state: State) -> str:
    return f"state = '{state.value}'"


def _at_rest(column: str, values: Sequence[str], state: State) -> list[Range]:
    name, its_state = f"by_{column}", f"{_is(state)} AND {_AT_REST}"
    if len(values) > _MOST_OF_STATE:
        return [Range(name, f"{column} IN ({_places(values)}) AND {its_state}", (*values,), by_id=False)]
    return [Range(name, f"{column} = ? AND {its_state}", (value,)) for value in values]


def _known(text: str | None) -> tuple[str, ...]:
    return () if text is None else (text,)


def _failures_of(fingerprint: str | None, handler: str) -> Range:
    if fingerprint is None:
        return Range("failed", f"{_is(State.FAILED)} AND fingerprint IS NULL AND handler = ?", (handler,))
    return Range("failed", f"{_is(State.FAILED)} AND fingerprint = ? AND handler = ?", (fingerprint, handler))


def _places(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
