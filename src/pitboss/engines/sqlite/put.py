"""Storing tasks. Nearly all tasks of a put are new: they are inserted in one statement, without reading first."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.order import Line, line_of
from pitboss.engines.sqlite.rows import STATES, tags_text, want_text
from pitboss.model.batch import BatchId
from pitboss.model.duration import Span
from pitboss.model.errors import QueueFull
from pitboss.model.partition import partition_key
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed
from pitboss.model.usage import check_taking

_Met = tuple[str, str, str | None]
_met = msgspec.json.Decoder(list[_Met])
_holders = msgspec.json.Decoder(list[tuple[str, str, str, str | None]])


def put(act: Act, tasks: Sequence[NewTask]) -> list[Placed]:
    """As the contract says; raises `QueueFull` or `StoreFull` before anything is written."""
    return _put(act, tasks, bounded=True)


def put_items(act: Act, tasks: Sequence[NewTask], batch: BatchId) -> None:
    """As `put`, for the items of a new batch: they are held until they are drawn."""
    _put(act, tasks, bounded=True, batch=batch)


def put_follow_ups(act: Act, tasks: Sequence[NewTask]) -> list[Placed]:
    """As `put`, but a queue may be overfilled: tasks that follow from something must not be lost."""
    return _put(act, tasks, bounded=False)


class _Context(NamedTuple):
    """What a put depends on: registered handlers, new queues, limits by capacity, templates of partition keys.

    `batch` is the one whose items are put; `ahead` is how far the wall clock is ahead of the store's. `line` is None if
    no task has an order key.
    """

    known: set[str]
    new_queues: set[str]
    capacities: dict[str, int]
    templates: dict[str, str]
    batch: BatchId | None
    ahead: Span
    line: Line | None

    def partition(self, new: NewTask) -> str | None:
        template = self.templates.get(new.queue) if self.templates else None
        return None if template is None else partition_key(template, new.params)


def _put(act: Act, tasks: Sequence[NewTask], *, bounded: bool, batch: BatchId | None = None) -> list[Placed]:
    if not tasks:
        return []
    context = _context(act, tasks, bounded, batch)
    simple = not context.capacities and not any(new.unique for new in tasks)
    placed = _insert_unseen(act, tasks, context) if simple else None
    return _place_each(act, tasks, context) if placed is None else placed


def _context(act: Act, tasks: Sequence[NewTask], bounded: bool, batch: BatchId | None) -> _Context:
    known = _known(act, {new.handler for new in tasks}, bounded)
    # From the store: the step that changes it moves all tasks that were stored before.
    timed = any(new.run_at is not None or new.expires_at is not None for new in tasks)
    row: Any = act.one("clock_ahead") if timed else None
    line = line_of(act, (new.order_key for new in tasks)) if batch is None else None
    context = _Context(known, set(), {}, {}, batch, row[0] if row else 0, line)
    for name in {new.queue for new in tasks}:
        row = act.one("queue_for_put", name)
        if row is None:
            context.new_queues.add(name)
            continue
        capacity, template = row
        if capacity is not None and bounded:
            context.capacities[name] = capacity
        if template is not None:
            context.templates[name] = template
    return context


def _known(act: Act, handlers: Iterable[str], bounded: bool) -> set[str]:
    """Those that are registered. `StoreFull` if new tasks are refused."""
    rows: list[Any] = [(name, *(act.one("put_handler", name) or ())) for name in handlers]
    for _, refusing, _ in rows if bounded else ():
        check_taking(refusing)
    return {name for name, _, known in rows if known}


def _insert_unseen(act: Act, tasks: Sequence[NewTask], context: _Context) -> list[Placed] | None:
    """Insert them all; None, with nothing inserted, if one of the ids exists already."""
    placed = [_created(new, act, context) for new in tasks]
    many = len(tasks) > 1
    if many:
        act.savepoint()
    try:
        _insert(act, tasks, placed, context)
    except sqlite3.IntegrityError:
        if many:
            act.roll_back()
        if context.line is not None:
            context.line.forget()
        return None
    if many:
        act.release_savepoint()
    _account(act, tasks, placed, context)
    return placed


def _place_each(act: Act, tasks: Sequence[NewTask], context: _Context) -> list[Placed]:
    """Read existing tasks first; tasks of one call may meet each other."""
    tasks_met, keys_met = _look(act, tasks)
    fresh: list[NewTask] = []
    created: list[Placed] = []
    placed: list[Placed] = []
    for new in tasks:
        key = new.unique.key if new.unique else None
        there = tasks_met.get(new.id) or (keys_met.get(key) if key is not None else None)
        if there is None:
            one = _created(new, act, context)
            fresh.append(new)
            created.append(one)
            placed.append(one)
            tasks_met[new.id] = Placed(one.id, False, one.state, one.reason)
            if key is not None:
                keys_met[key] = tasks_met[new.id]
        else:
            placed.append(there)
    _check_room(act, Counter(new.queue for new in fresh), context.capacities)
    _insert(act, fresh, created, context)
    _account(act, fresh, created, context)
    _take_keys(act, fresh)
    return placed


def _look(act: Act, tasks: Sequence[NewTask]) -> tuple[dict[str, Placed], dict[str, Placed]]:
    """The tasks that have these ids, and those that have these keys at this moment."""
    ids = act.decoded("put_met_ids", _met, json_list(new.id for new in tasks))
    keys = [new.unique.key for new in tasks if new.unique]
    holders = act.decoded("put_met_keys", _holders, json_list(keys), act.now) if keys else []
    return (
        {task: Placed(task, False, STATES[state], reason) for task, state, reason in ids},
        {key: Placed(task, False, STATES[state], reason) for key, task, state, reason in holders},
    )


def _check_room(act: Act, asked: Mapping[str, int], bounds: Mapping[str, int]) -> None:
    for name in sorted(asked):
        if name in bounds:
            row: Any = act.one("queue_waiting", name)
            if row[0] + asked[name] > bounds[name]:
                raise QueueFull(name, bounds[name], row[0], asked[name])


def _created(new: NewTask, act: Act, context: _Context) -> Placed:
    if context.batch is not None:
        return Placed(new.id, True, State.HELD, "batch")
    if context.line is not None and context.line.is_behind(new.order_key, new.id):
        return Placed(new.id, True, State.HELD, "order")
    if new.handler not in context.known:
        return Placed(new.id, True, State.HELD, "handler")
    return Placed(new.id, True, State.PENDING if new.due(act.now, context.ahead) is None else State.SCHEDULED)


def _insert(act: Act, tasks: Sequence[NewTask], placed: Sequence[Placed], context: _Context) -> None:
    plain: list[tuple[object, ...]] = []
    marked: list[tuple[object, ...]] = []
    keyed: list[tuple[object, ...]] = []
    full: list[tuple[object, ...]] = []
    keys: dict[tuple[str, str], None] = {}
    now = act.now
    for new, one in zip(tasks, placed, strict=True):
        row = (new.id, new.handler, new.queue, new.priority, now, new.params)
        partition = context.partition(new)
        if partition is not None:
            keys[new.queue, partition] = None
        if one.state is not State.PENDING or not _is_plain(new):
            full.append((*row, *_rest(new, one, context, now), partition))
        elif partition is not None:
            keyed.append((*row, new.meta, partition))
        elif new.meta is not None:
            marked.append((*row, new.meta))
        else:
            plain.append(row)
    rows = {"put_plain": plain, "put_marked": marked, "put_keyed": keyed, "put_full": full}
    for name, values in (rows | {"partition_add": list(keys)}).items():
        if values:
            act.bulk(name, values)


def _is_plain(new: NewTask) -> bool:
    """Without optional fields but its meta: half as many values to bind."""
    return (
        new.max_attempts is None
        and new.timeout is None
        and new.unique is None
        and new.parent is None
        and not new.tags
        and new.expires_at is None
        and new.expires_in is None
        and new.want is None
        and new.order_key is None
    )


def _rest(new: NewTask, one: Placed, context: _Context, now: int) -> tuple[object, ...]:
    return (
        one.state.value,
        one.reason,
        new.due(now, context.ahead),
        new.max_attempts,
        new.timeout,
        new.expiry(now, context.ahead),
        new.unique.key if new.unique else None,
        tags_text(new.tags),
        new.parent,
        context.batch,
        want_text(new.want),
        new.by_wall,
        new.order_key,
        new.meta,
    )


def _account(act: Act, tasks: Sequence[NewTask], placed: Sequence[Placed], context: _Context) -> None:
    if context.line is not None:
        context.line.write()
    moves = Counter((new.queue, new.handler, one.state) for new, one in zip(tasks, placed, strict=True))
    for (queue, handler, state), n in moves.items():
        act.moved(queue, None, state.value, n, context.batch)
        act.happened("put", queue, handler, n)
        if queue in context.new_queues:
            context.new_queues.remove(queue)
            act.run("queue_create", queue)
        if state is State.PENDING:
            act.rings.add(queue)


def _take_keys(act: Act, fresh: Sequence[NewTask]) -> None:
    rows = [
        (new.unique.key, new.id, None if new.unique.period is None else act.now + new.unique.period)
        for new in fresh
        if new.unique
    ]
    act.bulk("key_take", rows)
