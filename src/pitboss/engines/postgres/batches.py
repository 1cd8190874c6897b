"""Batches as operators make, change and see them. Locks: full queues, the lane, batches, then items by id."""

from collections.abc import Sequence

from pitboss.engines.postgres.control import cancel_locked, current, revive_locked
from pitboss.engines.postgres.gate import Gate, Standing, task_text
from pitboss.engines.postgres.put import check_room, lock_room, put
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.engines.postgres.views import view, views
from pitboss.model.batch import (
    Batch,
    BatchAct,
    BatchChanged,
    BatchId,
    BatchStatus,
    Cancel,
    Delete,
    Move,
    NewBatch,
    Pause,
    Requeue,
    Resume,
    Start,
    check_act,
    check_before,
    no_such_batch,
)
from pitboss.model.batching import checked_lane, end_of_line, ranks_after, status_wanted
from pitboss.model.duration import Moment
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed

_PUT_AT_ONCE = 10_000


def create(say: Statements, new: NewBatch, items: Sequence[NewTask], now: Moment | None) -> Script[Batch]:
    """Store a batch with its items, within a transaction; the same id again changes nothing."""
    moment = yield from current(say, now)
    known = yield from view(say, new.id, moment)
    if known is not None:
        return known
    bounded = yield from lock_room(say, items)
    gate = Gate(say, lanes=True)
    yield say.ask("lane_create", name=new.lane)
    yield say.ask("lane_lock", names=names([new.lane]))
    status = BatchStatus.PAUSED if new.paused else BatchStatus.QUEUED
    rank = end_of_line((yield from gate.line(new.lane)))
    made = yield say.ask(
        "batch_create",
        moment,
        id=new.id,
        rank=rank,
        status=status.value,
        lane=new.lane,
        name=new.name,
        data=new.data,
        by=new.by,
        on_complete=task_text(new.on_complete),
    )
    if made:
        gate.batches[new.id] = Standing(new.id, new.lane, status, 0, rank, None, None, task_text(new.on_complete))
        placed = yield from _put(say, items, new.id, moment)
        if bounded:
            yield from check_room(say, items, placed)
        yield from gate.changed({new.id: sum(one.created for one in placed)}, moment)
        yield from gate.promote(new.lane, moment)
    batch = yield from view(say, new.id, moment)
    if batch is None:
        raise no_such_batch(new.id)
    return batch


def _put(say: Statements, items: Sequence[NewTask], batch: BatchId, now: Moment) -> Script[list[Placed]]:
    """In portions, as the time limit is one for each statement."""
    placed: list[Placed] = []
    for start in range(0, len(items), _PUT_AT_ONCE):
        some = items[start : start + _PUT_AT_ONCE]
        placed += yield from put(say, some, now, ring=False, batch=batch)
    return placed


def act_on(say: Statements, batch: BatchId, act: BatchAct, limit: int, now: Moment | None) -> Script[BatchChanged]:
    """Do what an operator wants, within a transaction."""
    moment = yield from current(say, now)
    gate = Gate(say, lanes=True)
    yield from gate.lock({batch: 0})
    shown = yield from view(say, batch, moment)
    if shown is None or batch not in gate.batches:
        raise no_such_batch(batch)
    check_act(shown, act)
    done = yield from _Act(say, gate, batch, limit, moment).do(act)
    if batch in gate.batches:
        yield from gate.close([batch], moment)
    left = yield from view(say, batch, moment)
    return BatchChanged(batch=left, changed=done[0], refused=done[2], more=done[1])


def change_lane(say: Statements, name: str, max_running: int, now: Moment | None) -> Script[None]:
    moment = yield from current(say, now)
    yield say.ask("lane_set", name=name, max_running=checked_lane(max_running))
    yield from Gate(say, lanes=True).promote(name, moment)


def cancel_items(say: Statements, gate: Gate, batch: Standing, limit: int, now: Moment) -> Script[tuple[int, bool]]:
    """Cancel what waits and ask what runs to stop, of a batch that is locked: how many, and whether more are left."""
    found = yield say.ask("batch_open_items", batch=batch.id, limit=limit + 1)
    rows = yield say.ask("batch_lock_items", ids=texts([row[0] for row in found[:limit]]))
    changed, asked = yield from cancel_locked(say, gate, [row[0] for row in rows], batch.reason or "cancelled", now)
    return changed + asked, len(found) > limit


def go_on_cancelling(
    say: Statements, ids: Sequence[BatchId], limit: int, now: Moment | None
) -> Script[tuple[int, bool]]:
    """What a caller left of a cancellation, within a transaction."""
    moment = yield from current(say, now)
    gate = Gate(say, lanes=True)
    yield from gate.lock(dict.fromkeys(ids, 0))
    cancelled, more = 0, False
    for batch in sorted(gate.batches):
        if gate.batches[batch].status is BatchStatus.CANCELLING:
            changed, left = yield from cancel_items(say, gate, gate.batches[batch], limit - cancelled, moment)
            cancelled, more = cancelled + changed, more or left
    return cancelled, more


_Done = tuple[int, bool, tuple[str, ...]]


class _Act:
    """One act on one batch, which is locked together with its lane."""

    def __init__(self, say: Statements, gate: Gate, batch: BatchId, limit: int, now: Moment) -> None:
        self._say, self._gate, self._id, self._limit, self._now = say, gate, batch, limit, now

    @property
    def _batch(self) -> Standing:
        return self._gate.batches[self._id]

    def do(self, act: BatchAct) -> Script[_Done]:
        match act:
            case Pause():
                return (yield from self._stop(act)), False, ()
            case Resume() | Start():
                yield from self._go(act)
            case Move():
                yield from self._move(act)
            case Cancel():
                yield from self._stop(act, reason=self._batch.reason or act.reason or None)
                changed, more = yield from cancel_items(self._say, self._gate, self._batch, self._limit, self._now)
                return changed, more, ()
            case Requeue():
                return (yield from self._requeue(act))
            case Delete():
                yield from self._stop(act)
                return (yield from self._delete())
        return 0, False, ()

    def _stop(self, act: BatchAct, reason: str | None = None) -> Script[int]:
        """Into a status in which nothing of it starts; how many items had been drawn."""
        if status_wanted(act, self._batch.status, {}) is self._batch.status:
            return 0
        ((held,),) = yield self._say.ask("batch_hold", batch=self._id)
        # Whoever was about to claim some was waited for: only now is it known what runs.
        running = yield from self._running()
        if isinstance(act, Delete) and running[State.RUNNING]:
            shown = yield from views(self._say, [self._id], self._now)
            check_act(shown[self._id], act)
        status = status_wanted(act, self._batch.status, running)
        yield from self._gate.enter(self._batch, status, self._now, reason)
        count: int = held
        return count

    def _running(self) -> Script[dict[State, int]]:
        ((_, runs, _),) = yield self._say.ask("batch_check", ids=texts([self._id]))
        return {State.RUNNING: int(runs)}

    def _go(self, act: Resume | Start) -> Script[None]:
        if isinstance(act, Resume) and self._batch.status is BatchStatus.PAUSED:
            yield from self._write_ranks(act)
        status = status_wanted(act, self._batch.status, {})
        yield from self._gate.enter(self._batch, status, self._now)

    def _move(self, act: Move) -> Script[None]:
        if act.to == "before":
            shown = yield from views(self._say, [self._id, *([act.before] if act.before else [])], self._now)
            check_before(shown[self._id], shown.get(act.before or ""))
        yield from self._write_ranks(act)

    def _write_ranks(self, act: Move | Resume) -> Script[None]:
        ranks = ranks_after(act, self._id, (yield from self._gate.line(self._batch.lane)))
        if ranks:
            yield self._say.ask("batch_rank", ids=texts(list(ranks)), ranks=numbers(list(ranks.values())))
        if self._id in ranks:
            self._gate.batches[self._id] = self._batch._replace(rank=ranks[self._id])

    def _requeue(self, act: Requeue) -> Script[_Done]:
        found = yield self._say.ask(
            "batch_requeueable", batch=self._id, cancelled=act.cancelled, error=act.error, limit=self._limit + 1
        )
        tasks = [(row[0], row[1]) for row in found[: self._limit]]
        changed, refused = yield from revive_locked(self._say, self._gate, tasks, act.keep_attempts, self._now)
        yield from self._gate.promote(self._batch.lane, self._now)
        return changed, len(found) > self._limit, refused

    def _delete(self) -> Script[_Done]:
        """Finished items first: as long as any item is left, the batch is what its items say."""
        found: list[Row] = yield self._say.ask("batch_items", batch=self._id, limit=self._limit + 1)
        ids = texts([row[0] for row in found[: self._limit]])
        ((gone, unfinished),) = yield self._say.ask("task_remove", self._now, ids=ids)
        yield self._say.ask("batch_count_unfinished", ids=texts([self._id]), changes=numbers([-unfinished]))
        more = len(found) > self._limit
        if not more:
            yield self._say.ask("batch_count_remove", batch=self._id)
            yield self._say.ask("batch_remove", batch=self._id)
            lane = self._gate.batches.pop(self._id).lane
            yield from self._gate.promote(lane, self._now)
        return gone, more, ()
