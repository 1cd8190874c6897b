"""Giving out tasks. The usual case, one queue whose tasks all fit, is one read and one write; the rest is sifted.

Slots that want the same are filled as one: many remote workers ask in one request.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, groupby, islice

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.batch_lifecycle import conclude, draw
from pitboss.engines.sqlite.claim_round import Group, Round, Sifted
from pitboss.engines.sqlite.claim_rows import (
    BEFORE_ALL,
    ClaimedRows,
    KeyedRow,
    LookRow,
    PendingRow,
    RankedRow,
    pending_rows,
    rank,
    ranked_rows,
    running_rows,
)
from pitboss.engines.sqlite.failures import follow
from pitboss.engines.sqlite.keyed import Keys, named
from pitboss.engines.sqlite.open_queue import OpenQueue, open_queues
from pitboss.engines.sqlite.order import release_next
from pitboss.model.errors import SessionLost
from pitboss.model.session import ORDERED, ClaimRequest, Order, Slot

# Rows per read: params may be a mebibyte each, and one text must stay below SQLite's limit of a gigabyte.
_AT_ONCE = 250
# Bounds on what one claim does besides claiming; the next claim goes on.
_SET_ASIDE_AT_ONCE = 1000
# Values of a row of `claim_take_each`.
_WIDTH = 6


def claim(act: Act, request: ClaimRequest) -> ClaimedRows:
    """As the contract says."""
    row = act.one("claim_begin", request.session, act.now)
    if row is None:
        raise SessionLost(request.session)
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    queues, again = _opened(act, request.slots, wanted, batches=bool(row[0]))
    this = Round(act, request, queues, wanted, batches=bool(row[0]))
    slots, cut = _filled(this)
    slots = _completed(this, slots) if this.late else slots
    again = again or cut
    shortages = this.shortages()
    moments = [act.now] if again else []
    moments += [short.until for short in shortages if short.until is not None]
    moments += [moment for queue in queues.values() if (moment := queue.next_moment(act)) is not None]
    moments += _put_for_later(act, request.slots) if act.touched else []
    due = min(moments, default=None)
    return ClaimedRows(request, act.now, slots, this.granted, due, shortages, this.keys is not None)


def _put_for_later(act: Act, slots: Sequence[Slot]) -> list[int]:
    """A batch whose last item expired may have put a task that is due later."""
    conclude(act)
    later = (queue.next_scheduled(act) for queue in open_queues(act, slots).values() if queue.scheduled)
    return [moment for moment in later if moment is not None]


def _opened(act: Act, slots: Sequence[Slot], wanted: int, *, batches: bool) -> tuple[dict[str, OpenQueue], bool]:
    """The queues with all tasks that may start now, and whether there may be more at once."""
    queues, again = open_queues(act, slots), False
    for queue in queues.values():
        queue.release_due(act, wanted, batches=batches)
    if batches:
        again = draw(act, slots, {name for name, queue in queues.items() if queue.divided})
        queues = open_queues(act, slots)
        for queue in queues.values():
            queue.release_due(act, wanted, batches=True)
    for queue in queues.values():
        queue.measure_room(act)
    return queues, again


def _filled(this: Round) -> tuple[list[list[PendingRow]], bool]:
    """The tasks for each slot, and whether a bound cut the look short."""
    slots = this.request.slots
    if len(slots) == 1 and slots[0].repeat is None:
        found, cut = _fill(this, Group(slots))
        return [found], cut
    filled: list[list[PendingRow]] = [[] for _ in slots]
    keys = [slot.repeat for slot in slots if slot.repeat is not None]
    repeated = len(set(keys)) < len(keys)
    given, again = _given_again(this.act, keys), False
    for alike in _alike(this, apart=repeated):
        if repeated:
            # A slot before this one may have the same key.
            filled = _completed(this, filled)
            given = _given_again(this.act, keys)
        asking = [index for index in alike if slots[index].repeat not in given] if given else alike
        for index in alike if given else ():
            filled[index] = given.get(slots[index].repeat, [])
        if asking:
            found, cut = _fill(this, Group([slots[index] for index in asking]))
            _spread(found, slots, asking, filled)
            again = again or cut
    return filled, again


def _alike(this: Round, *, apart: bool) -> list[list[int]]:
    """The positions of neighbouring slots that want the same, except how many and for whom."""
    slots, keys = this.request.slots, this.keys
    if apart:
        return [[index] for index in range(len(slots))]
    groups = groupby(range(len(slots)), key=lambda index: _wanted_by(slots[index], index, keys))
    return [list(group) for _, group in groups]


def _wanted_by(slot: Slot, index: int, keys: Keys | None) -> object:
    alone = slot.ahead or slot.order is not None or (keys is not None and keys.needs_turns(slot))
    return index if alone else (slot.queues, slot.handlers)


def _spread(
    found: list[PendingRow], slots: Sequence[Slot], asking: Sequence[int], filled: list[list[PendingRow]]
) -> None:
    if len(asking) == 1:
        filled[asking[0]] = found
        return
    left = iter(found)
    for index in asking:
        filled[index] = list(islice(left, slots[index].free))


def _given_again(act: Act, keys: Sequence[str]) -> dict[str | None, list[PendingRow]]:
    """The claims that still run under these keys: their answer was lost."""
    given: dict[str | None, list[PendingRow]] = {}
    rows = act.decoded("claim_again", running_rows, json_list(keys), act.now) if keys else []
    for one in sorted(rows, key=lambda one: one.id):
        given.setdefault(one.claim_key, []).append(one)
    return given


def _fill(this: Round, group: Group) -> tuple[list[PendingRow], bool]:
    """The tasks for slots that want the same, and whether a bound cut the look short."""
    queues = _queues_of(this, group)
    again = this.keys is not None and this.keys.draw(group.slot, queues)
    full = [queue for queue in queues if queue.may_give]
    if not full or group.free + group.ahead <= 0:
        return [], again
    taken, done = _take_in_order(this, group, full[0]) if _is_plain(group, full) else ([], False)
    if done:
        return taken, again
    sifted = _sift(this, group, full, len(taken))
    if this.keys is not None:
        this.keys.remove(sifted.taken + sifted.expired + sifted.unknown)
    _set_aside(this, sifted)
    _take(this, group, sifted.taken)
    return taken + sifted.taken, again or sifted.cut


def _queues_of(this: Round, group: Group) -> list[OpenQueue]:
    if group.queues is None:
        return [queue for queue in this.queues.values() if not queue.remote]
    names = dict.fromkeys(group.queues)
    return [queue for name in names if (queue := this.queues.get(name)) is not None]


def _is_plain(group: Group, queues: Sequence[OpenQueue]) -> bool:
    """Whether the first tasks of one queue are what the slots get."""
    first = queues[0]
    return len(queues) == 1 and not first.rate and first.pool is None and not first.divided and group.order is None


def _take_in_order(this: Round, group: Group, queue: OpenQueue) -> tuple[list[PendingRow], bool]:
    """Take the first tasks of the only queue as long as all of them fit; False if one needs a closer look."""
    taken: list[PendingRow] = []
    while queue.pending and (left := group.free + group.ahead - len(taken)):
        size = min(_AT_ONCE, left)
        portion = _first(this.act, group, queue, size)
        if not _all_fit(portion, group, this.request, this.act.now, len(taken)):
            return taken, False
        _take(this, group, portion)
        taken += portion
        if len(portion) < size:
            break
    return taken, True


def _first(act: Act, group: Group, queue: OpenQueue, most: int) -> list[PendingRow]:
    if group.handlers is None:
        return act.decoded("claim_next", pending_rows, queue.name, most)
    return act.decoded("claim_next_of", pending_rows, queue.name, group.handlers, act.now, most)


def _all_fit(portion: list[PendingRow], group: Group, request: ClaimRequest, now: int, before: int) -> bool:
    handlers = request.handlers
    return all(
        (handlers is None or one.handler in handlers) and (one.expires_at is None or one.expires_at > now)
        for one in portion
    ) and not any(one.losses for one in islice(portion, max(0, group.free - before), None))


def _sift(this: Round, group: Group, queues: Sequence[OpenQueue], before: int) -> Sifted:
    """Go through the pending tasks of all queues in their common order and decide each; no task is written yet."""
    sifted, handlers, now = Sifted(), this.request.handlers, this.act.now
    for one in _pending(this, group, queues):
        claimed = before + len(sifted.taken)
        if this.keys is not None and not _may_start(this.keys, this.queues[one.queue], one, claimed >= group.free):
            continue
        if len(sifted.expired) + len(sifted.unknown) >= _SET_ASIDE_AT_ONCE:
            sifted.cut = True
            break
        if one.expires_at is not None and one.expires_at <= now:
            sifted.expired.append(one)
        elif handlers is not None and one.handler not in handlers:
            if one.handler not in this.others:
                sifted.unknown.append(one)
        elif _may_take(this, one, ahead=claimed >= group.free):
            sifted.taken.append(one)
            if this.keys is not None:
                this.keys.count_start(one)
            if claimed + 1 >= group.free + group.ahead:
                # Without a look at the next one: that may be another read.
                break
        else:
            this.queues[one.queue].passed += 1
    return sifted


def _may_start(keys: Keys, queue: OpenQueue, one: PendingRow, ahead: bool) -> bool:
    """False for a task of a queue with partitions that is not claimed ahead, or whose key is full."""
    if not queue.divided or not isinstance(one, KeyedRow):
        return True
    if ahead:
        queue.skip_rest()
    return not ahead and not keys.is_full(queue, one.partition)


def _may_take(this: Round, one: PendingRow, *, ahead: bool) -> bool:
    queue = this.queues[one.queue]
    if queue.pool is not None and (ahead or queue.no_members):
        queue.skip_rest()
        return False
    if queue.room == 0 or (ahead and (queue.rate or one.losses)):
        return False
    if queue.pool is not None and not this.grant(one, queue, queue.pool):
        return False
    if queue.room is not None:
        queue.room -= 1
    return True


def _pending(this: Round, group: Group, queues: Sequence[OpenQueue]) -> Iterator[PendingRow]:
    """Pending tasks of the queues as they should run, of the wanted handlers."""
    if group.order is not None:
        return _in_another_order(this, group, group.order, queues)
    if this.keys is not None and any(queue.divided for queue in queues):
        return _in_steps(this, this.keys, group, queues)
    others = json_list(this.others)
    return merge(*(_candidates(this, group, queue, others) for queue in queues), key=rank)


def _in_steps(this: Round, keys: Keys, group: Group, queues: Sequence[OpenQueue]) -> Iterator[PendingRow]:
    """The same where some queues have partitions: the slot's own, then those of others."""
    reach, wanted = keys.reach(group.slot), _wanted(this, group)
    divided = sorted((queue for queue in queues if queue.divided), key=lambda queue: queue.name)
    size = max(1, min(group.free, _AT_ONCE))
    for queue in divided:
        queue.passed = 0
    others = json_list(this.others) if len(divided) < len(queues) else ""
    undivided = (_candidates(this, group, queue, others) for queue in queues if not queue.divided)
    return chain(
        merge(*undivided, *(reach.own_first(queue, wanted) for queue in divided), key=rank),
        chain.from_iterable(reach.own_others(queue, wanted, size) for queue in divided),
        merge(*(reach.of_others(queue, wanted) for queue in divided), key=rank),
    )


def _wanted(this: Round, group: Group) -> Callable[[LookRow], bool]:
    """Whether the group decides on a task: not if it is for other handlers, unless it is past its expiry."""
    ours, asked, now = this.request.handlers, group.slot.handlers, this.act.now

    def is_wanted(one: LookRow) -> bool:
        if one.expires_at is not None and one.expires_at <= now:
            return True
        known = ours is None or one.handler in ours or one.handler not in this.others
        return known and (asked is None or one.handler in asked)

    return is_wanted


def _candidates(this: Round, group: Group, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    """Pending tasks of a queue as they should run, without those for the handlers of other sessions only.

    A queue that cannot give, because its rate is used up, is left after a while, so that a backlog in it costs little.
    """
    queue.passed = 0
    pool = queue.pool
    pending = _in_order(this.act, group, queue, others) if pool is None else _in_portions(this, group, queue, others)
    for one in pending:
        if queue.passed >= queue.max_passed:
            return
        yield one


def _in_order(act: Act, group: Group, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    return (PendingRow(*row) for row in act.rows("claim_sift", queue.name, others, act.now, group.handlers))


def _in_portions(this: Round, group: Group, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    """For a queue that is bound to a pool: the first portion is as large as the number of ready members."""
    act, place = this.act, BEFORE_ALL
    size = max(1, min(group.free, this.grants.of(queue.pool or "").ready(), _AT_ONCE))
    while True:
        wanted = (queue.name, others, act.now, group.handlers)
        portion = act.decoded("claim_bound", pending_rows, *wanted, *place, size)
        yield from portion
        if len(portion) < size:
            return
        place, size = rank(portion[-1]), min(2 * size, _AT_ONCE)


def _in_another_order(this: Round, group: Group, order: Order, queues: Sequence[OpenQueue]) -> Iterator[PendingRow]:
    """The first pending tasks in this order. Only what is wanted of them is read as a whole: params may be large."""
    ranked = (_ranked(this, group, queue) for queue in queues)
    first = islice(merge(*ranked, key=rank), ORDERED)
    rows = [one.row for one in order.apply(first)]
    size = max(1, min(group.free + group.ahead, _AT_ONCE))
    for start in range(0, len(rows), size):
        yield from named(this.act, rows[start : start + size])


def _ranked(this: Round, group: Group, queue: OpenQueue) -> Iterable[RankedRow | LookRow]:
    if this.keys is not None and queue.divided:
        asked = group.slot.handlers
        return this.keys.reach(group.slot).all_in_order(queue, lambda one: asked is None or one.handler in asked)
    return this.act.decoded("claim_ranks", ranked_rows, queue.name, group.handlers, ORDERED)


def _take(this: Round, group: Group, found: list[PendingRow]) -> None:
    if not found:
        return
    if this.keys is None and not group.limited and not this.granted:
        this.act.run("claim_take", this.request.session, this.act.now, json_list(one.row for one in found))
    else:
        pairs = list(zip(found, group.takers, strict=False))
        this.late += [pair for pair in pairs if this.queues[pair[0].queue].divided]
        _take_each(this, [pair for pair in pairs if not this.queues[pair[0].queue].divided])
    for (queue, batch), n in Counter((one.queue, one.batch) for one in found).items():
        this.act.moved(queue, "pending", "running", n, batch)
        this.queues[queue].pending -= n
        this.queues[queue].started(this.act, n)


def _take_each(this: Round, pairs: Iterable[tuple[PendingRow, Slot]]) -> None:
    """As `claim_take`, where some have a member or a time limit of their own."""
    act, session = this.act, this.request.session
    plain: list[int] = []
    values: list[object] = []
    for one, slot in pairs:
        granted = this.granted.get(one.row)
        if granted is None and slot.lasts is None:
            plain.append(one.row)
            continue
        member = (None, None) if granted is None else (granted[1].id, granted[0])
        limit = (None, None, None) if slot.lasts is None else (slot.worker or None, slot.lasts, slot.repeat)
        values += (one.row, *member, *limit)
    if plain:
        act.run("claim_take", session, act.now, json_list(plain))
    act.bulk_values("claim_take_each", (session, act.now), values, _WIDTH)


def _completed(this: Round, slots: list[list[PendingRow]]) -> list[list[PendingRow]]:
    """Read the tasks of queues with partitions as a whole, and write that they are taken: all that are not yet."""
    rows = [one.row for one, _ in this.late]
    portions = (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))
    whole: dict[int, PendingRow] = {one.row: one for portion in portions for one in named(this.act, portion)}
    _take_each(this, this.late)
    this.late = []
    return [[whole.get(one.row, one) for one in found] for found in slots]


def _set_aside(this: Round, sifted: Sifted) -> None:
    """Cancel tasks that are past their expiry, and hold those whose handler no live session knows."""
    act, queues = this.act, this.queues
    if sifted.expired:
        act.run("claim_expire", act.now, json_list(one.row for one in sifted.expired))
        for one in sifted.expired:
            act.moved(one.queue, "pending", "cancelled", batch=one.batch)
            act.happened("cancelled", one.queue, one.handler)
            queues[one.queue].pending -= 1
            if one.unique_key is not None:
                act.run("key_free", one.id, one.unique_key)
    if sifted.unknown:
        act.run("claim_hold", json_list(one.row for one in sifted.unknown))
        for one in sifted.unknown:
            act.moved(one.queue, "pending", "held", batch=one.batch)
            queues[one.queue].pending -= 1
    if sifted.expired:
        _let_follow(this, [one.id for one in sifted.expired])


def _let_follow(this: Round, expired: list[str]) -> None:
    """Put and release what follows expired tasks. The slots that are not filled yet may take it."""
    released = release_next(this.act, expired)
    if not follow(this.act, expired) and not released:
        return
    this.act.write_counts()
    if this.keys is not None:
        this.keys.forget()
    for name, found in open_queues(this.act, this.request.slots).items():
        queue = this.queues.setdefault(name, found)
        if queue is found:
            queue.measure_room(this.act)
        queue.pending, queue.scheduled = found.pending, found.scheduled
        queue.due = queue.next_scheduled(this.act) if found.scheduled else None
