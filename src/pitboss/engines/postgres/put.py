"""Putting tasks, on a connection of the engine's own or inside a caller's transaction."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pitboss.engines.postgres.order import advance, first_in_line, locking
from pitboss.engines.postgres.rows import STATES, names, numbers, texts, want_text
from pitboss.engines.postgres.script import Again, Ask, Row, Script, Statements
from pitboss.model.batch import BatchId
from pitboss.model.duration import Moment
from pitboss.model.errors import QueueFull, StoreUnavailable
from pitboss.model.task import NewTask, Placed
from pitboss.model.usage import check_taking

_ROUNDS = 10
_NONE = "{}"
_LONGEST_PAYLOAD = 7000
# Tasks of a large call that one statement creates, and tasks that are prepared in one step meanwhile.
PART = 500
_STEP = 100
# ON CONFLICT writes every row in two steps. Where an error is answered by another try, a look beforehand is cheaper.
_CAREFUL = {"unless_there": "", "or_meet": "ON CONFLICT (id) DO NOTHING"}
_FAST = {
    "unless_there": "(SELECT true FROM {schema}.tasks AS there WHERE there.id = new.id) IS NULL AND",
    "or_meet": "",
}
# What a statement has only if one of its tasks has an order key or meta.
_PLAIN = {"and_more": "", "more_arrays": "", "or_behind": ""}
_MORE = {
    "and_more": ", order_key, meta",
    "more_arrays": ", %(order_keys)s::text[], %(metas)s::text[]",
    "or_behind": "WHEN order_key IS NOT NULL"
    " AND (SELECT task FROM {schema}.order_heads WHERE key = order_key) <> new.id THEN 'order'",
}


class _Way(NamedTuple):
    """How to put. `locked`: queues with a capacity are locked, or may be overfilled. `ordered`: so are order keys.
    `follows`: the tasks follow from something, so that they are stored even while new ones are refused."""

    parts: Mapping[str, str]
    ring: bool
    locked: bool = False
    batch: BatchId | None = None
    ordered: bool = False
    follows: bool = False


class _Round(NamedTuple):
    """What one statement creates: tasks by their place in the call, and their columns. What to do meanwhile."""

    places: list[int]
    columns: dict[str, object]
    meanwhile: Iterator[None] | None = None


def put(
    sql: Statements,
    tasks: Sequence[NewTask],
    now: Moment | None,
    *,
    ring: bool,
    batch: BatchId | None = None,
    quickly: bool = False,
    meanwhile: Iterator[None] | None = None,
    follows: bool = True,
) -> Script[list[Placed]]:
    """Create each task or meet the one that is there. Capacities are not looked at: see `put_locked`.

    With a `batch` they are its items, held until they are drawn. Tasks with order keys need a transaction. `quickly`:
    an error if another call puts one of the ids meanwhile. `meanwhile` is work to do while the server is busy. Tasks
    that do not follow from something are refused while new ones are: `StoreFull`.
    """
    first = {} if batch is not None else first_in_line(tasks)
    new_keys: list[Row] = []
    if first:
        yield locking(sql, first).into(new_keys)
    way = _Way(_FAST if quickly else _CAREFUL, ring, locked=True, batch=batch, ordered=True, follows=follows)
    round_ = _round(tasks, list(range(len(tasks))), way)._replace(meanwhile=meanwhile) if meanwhile else None
    placed = yield from _put(sql, tasks, now, way, round_)
    while placed is None:
        # If they are taken again by now, try once more.
        check_taking((yield sql.ask("refusing_get"))[0][0])
        placed = yield from _put(sql, tasks, now, way)
    return (yield from _in_order(sql, first, new_keys, placed, now))


def put_quickly(
    sql: Statements, tasks: Sequence[NewTask], now: Moment | None, *, ring: bool, first: "_Round | None" = None
) -> Script[list[Placed] | Again]:
    """As `put`, but `Again` if a queue has a capacity, a task an order key, or new tasks are refused; an error if
    another call puts one of the ids meanwhile.

    `first` is the first round, if it is made already.
    """
    placed = yield from _put(sql, tasks, now, _Way(_FAST, ring), first)
    return Again() if placed is None else placed


def put_in_parts(
    sql: Statements, tasks: Sequence[NewTask], now: Moment | None, *, ring: bool
) -> Script[list[Placed] | Again]:
    """As `put_quickly`, within a transaction, for many tasks: some are prepared while the server creates others.

    The tasks may be made as they are read.
    """
    return (yield from _put_in_parts(sql, tasks, now, _Way(_FAST, ring)))


def put_new(
    sql: Statements, tasks: Sequence[NewTask], now: Moment | None, *, ring: bool, ordered: bool
) -> Script[list[Placed]]:
    """As `put`, within a transaction, for many tasks that no other call puts: an error if one does. If none of them is
    `ordered`, they may be made as they are read."""
    first = first_in_line(tasks) if ordered else {}
    new_keys: list[Row] = []
    if first:
        yield locking(sql, first).into(new_keys)
    placed = yield from _put_in_parts(sql, tasks, now, _Way(_FAST, ring, locked=True, ordered=ordered, follows=True))
    if isinstance(placed, Again):
        raise AssertionError
    return (yield from _in_order(sql, first, new_keys, placed, now))


def _put_in_parts(
    sql: Statements, tasks: Sequence[NewTask], now: Moment | None, way: "_Way"
) -> Script[list[Placed] | Again]:
    placed: list[Placed] = []
    part = _Part(tasks, 0, way)
    for _ in part.made():
        pass
    while part.round is not None:
        following = _Part(tasks, part.end, way)
        first = part.round._replace(meanwhile=following.made())
        found = yield from _put(sql, part.tasks, now, way, first)
        if found is None:
            return Again()
        placed += found
        part = following
    return placed


def _in_order(
    sql: Statements, first: Mapping[str, str], new_keys: list[Row], placed: list[Placed], now: Moment | None
) -> Script[list[Placed]]:
    """Let the next task of each line wait whose first task was not created, as it met another one."""
    created = {one.id for one in placed if one.created} if new_keys else set()
    moved = yield from advance(sql, [key for (key,) in new_keys if first[key] not in created], now)
    if not moved:
        return placed
    states = {task: (STATES[state], reason) for task, state, reason in moved}
    return [Placed(one.id, one.created, *states[one.id]) if one.id in states else one for one in placed]


def _put(
    sql: Statements, tasks: Sequence[NewTask], now: Moment | None, way: "_Way", first: "_Round | None" = None
) -> Script[list[Placed] | None]:
    """None if a queue has a capacity, or a task an order key, and is not locked.

    Each round creates the tasks that are the first of their id and key within the call. A task that is left has met
    another one; if that one is gone by now, it tries again.
    """
    placed: list[Placed | None] = [None] * len(tasks)
    left = list(range(len(tasks)))
    for _ in range(_ROUNDS):
        if not left:
            return [one for one in placed if one is not None]
        round_, first = first or _round(tasks, left, way), None
        if not way.ordered and "order_keys" in round_.columns and round_.columns["order_keys"] != _NONE:
            return None
        ask = sql.asked(_text(sql, way, round_), now, batch=way.batch, **round_.columns)
        rows = yield ask if round_.meanwhile is None else ask._replace(meanwhile=round_.meanwhile)
        if not rows[0][4]:
            return None
        _note_created(rows, tasks, round_.places, placed)
        left = [i for i in left if placed[i] is None]
        if left:
            yield from _meet(sql, tasks, left, placed, now)
            left = [i for i in left if placed[i] is None]
    raise StoreUnavailable(
        "the put could not be finished",
        why="the tasks that it met vanished each time before they could be read",
        fix="put again; nothing is stored twice",
    )


def _text(sql: Statements, way: _Way, round_: _Round) -> str:
    parts = _MORE if "order_keys" in round_.columns else _PLAIN
    return sql.text("put", **way.parts, **parts).replace("{schema}", sql.quoted)


class _Part:
    """Some tasks of a large call. They and their columns are ready when `made` is exhausted."""

    def __init__(self, tasks: Sequence[NewTask], start: int, way: _Way) -> None:
        self._all, self._start, self._way = tasks, start, way
        self.end = min(start + PART, len(tasks))
        self.tasks: Sequence[NewTask] = ()
        self.round: _Round | None = None

    def made(self) -> Iterator[None]:
        made: list[NewTask] = []
        for start in range(self._start, self.end, _STEP):
            made += self._all[start : min(start + _STEP, self.end)]
            yield
        if made:
            self.tasks, self.round = made, _round(made, list(range(len(made))), self._way)


def _round(tasks: Sequence[NewTask], left: list[int], way: _Way) -> _Round:
    places = _distinct(tasks, left)
    chosen = [tasks[i] for i in places]
    columns = _columns(chosen, ring=way.ring) | {"locked": way.locked, "follows": way.follows}
    if any(task.order_key is not None or task.meta is not None for task in chosen):
        columns["order_keys"] = texts([task.order_key for task in chosen])
        columns["metas"] = texts([task.meta for task in chosen])
    return _Round(places, columns)


class PutLocked(NamedTuple):
    """What was put, and whether one of its queues has a capacity."""

    placed: list[Placed]
    bounded: bool


def put_locked(sql: Statements, tasks: Sequence[NewTask], now: Moment | None, *, ring: bool) -> Script[PutLocked]:
    """As `put`, within a transaction: queues with a capacity are locked first. `QueueFull` undoes the whole call."""
    bounded: list[Row] = []
    yield _locking_room(sql, tasks).into(bounded)
    placed = yield from put(sql, tasks, now, ring=ring, follows=False)
    if bounded:
        yield from check_room(sql, tasks, placed)
    return PutLocked(placed, bool(bounded))


def lock_room(sql: Statements, tasks: Sequence[NewTask]) -> Script[bool]:
    """Lock those of the tasks' queues that have a capacity; whether there are any."""
    return bool((yield _locking_room(sql, tasks)))


def _locking_room(sql: Statements, tasks: Sequence[NewTask]) -> Ask:
    return sql.ask("queue_lock_bounded", queues=names(task.queue for task in tasks))


def check_room(sql: Statements, tasks: Sequence[NewTask], placed: Sequence[Placed]) -> Script[None]:
    """`QueueFull` if those that were created do not fit."""
    asked: dict[str, int] = {}
    for task, one in zip(tasks, placed, strict=True):
        if one.created:
            asked[task.queue] = asked.get(task.queue, 0) + 1
    for name, capacity, waiting in (yield sql.ask("queue_waiting", queues=names(asked))):
        if waiting > capacity:
            raise QueueFull(name, capacity, waiting - asked[name], asked[name])


def payload(queues: Sequence[str]) -> str:
    """The payload of a ring: the queues, or "any" where there are too many for one notification."""
    joined = ",".join(queues)
    return joined if len(joined) < _LONGEST_PAYLOAD else "*"


def _distinct(tasks: Sequence[NewTask], left: list[int]) -> list[int]:
    ids: set[str] = set()
    keys: set[str] = set()
    chosen: list[int] = []
    for i in left:
        task = tasks[i]
        if task.id in ids or (task.unique is not None and task.unique.key in keys):
            continue
        ids.add(task.id)
        if task.unique is not None:
            keys.add(task.unique.key)
        chosen.append(i)
    # Writers that insert the same ids must do it in the same order.
    chosen.sort(key=lambda i: tasks[i].id)
    return chosen


def _columns(tasks: list[NewTask], *, ring: bool) -> dict[str, object]:
    keyed = sorted((task.unique.key, task.id, task.unique.period) for task in tasks if task.unique is not None)
    queues = sorted({task.queue for task in tasks})
    return {
        "size": len(tasks),
        "ring": payload(queues) if ring else None,
        "queues": texts(queues),
        "known": names(task.handler for task in tasks),
        "keys": texts([key for key, _, _ in keyed]),
        "key_tasks": texts([task for _, task, _ in keyed]),
        "periods": numbers([period for _, _, period in keyed]),
        "ids": texts([task.id for task in tasks]),
        "priorities": numbers([task.priority or None for task in tasks]),
        "run_ats": numbers([task.run_at for task in tasks]),
        "delays": numbers([task.delay for task in tasks]),
        "expires_ats": numbers([task.expires_at for task in tasks]),
        "lives": numbers([task.expires_in for task in tasks]),
        "timeouts": numbers([task.timeout for task in tasks]),
        "max_attempts": numbers([task.max_attempts for task in tasks]),
        "parents": texts([task.parent for task in tasks]),
        "task_queues": texts([task.queue for task in tasks]),
        "handlers": texts([task.handler for task in tasks]),
        "params": texts([task.params for task in tasks]),
        "tags": texts([texts(task.tags) if task.tags else None for task in tasks]),
        "by_walls": numbers([task.by_wall for task in tasks]),
        "wants": texts([want_text(task.want) for task in tasks]),
        "unique_keys": texts([None if task.unique is None else task.unique.key for task in tasks]),
    }


def _note_created(rows: list[Row], tasks: Sequence[NewTask], round_: list[int], placed: list[Placed | None]) -> None:
    details = {row[0]: (STATES[row[2]], row[6]) for row in rows if row[0] is not None}
    if not details and rows[0][2] is not None:
        # All were created and all are in one state: the answer does not repeat them.
        details = dict.fromkeys((tasks[i].id for i in round_), (STATES[rows[0][2]], rows[0][6]))
    for i in round_:
        if found := details.get(tasks[i].id):
            placed[i] = Placed(tasks[i].id, True, *found)


def _meet(
    sql: Statements, tasks: Sequence[NewTask], left: list[int], placed: list[Placed | None], now: Moment | None
) -> Script[None]:
    keys = [None if (unique := tasks[i].unique) is None else unique.key for i in left]
    rows = yield sql.ask("put_met", now, ids=texts([tasks[i].id for i in left]), keys=texts(keys))
    wrong: list[tuple[str, str]] = []
    for place, met, state, reason in rows:
        i, key = left[place - 1], keys[place - 1]
        placed[i] = Placed(met, False, STATES[state], reason)
        if key is not None and met == tasks[i].id:
            wrong.append((key, met))
    if wrong:
        wrong.sort()
        yield sql.ask("key_free", keys=texts([key for key, _ in wrong]), tasks=texts([task for _, task in wrong]))
