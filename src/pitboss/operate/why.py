"""Why nothing runs: the whole answer for one task or batch, and the troubles of all queues."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pitboss.client.waiting import explain_batches, explain_held, explain_queues, explain_task
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.model.batch import OVER, Batch
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.filter import by
from pitboss.model.gates import held_in_order
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.text import counted
from pitboss.model.waiting import MOST_BEFORE, Trouble, Why, troubles, waits_for, waits_for_slot
from pitboss.operate.lookup import find_batch, find_task
from pitboss.operate.partitions import read_waiting_keys


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A task or a batch, and why it does not run, or what it does."""

    thing: Task | Batch
    why: Why


async def explain(store: Store, text: str, now: Moment) -> Explained:
    """The task or batch that an id or a piece of one names."""
    try:
        task = await find_task(store, text)
    except NotFound:
        if capabilities(store).batches is None:
            raise
        batch = await _batch(store, text)
        return Explained(thing=batch, why=(await explain_batches(store, [batch], now)).get(batch.id) or _goes_on(batch))
    return Explained(thing=task, why=await explain_one(store, task, now))


class Look(NamedTuple):
    """What was found, and the queues with pending tasks of which none was looked at: of those nothing is known."""

    troubles: Sequence[Trouble] = ()
    unseen: frozenset[str] = frozenset()


async def read_troubles(store: Store, now: Moment, also: Sequence[TaskId] = ()) -> Look:
    """What keeps due tasks from starting, also those that are held for their handler. One read if nothing waits, and a
    few more for each of the fullest queues.

    `also`: look at these tasks too.
    """
    queues = await store.queues()
    if not any(queue.waiting for queue in queues):
        return Look()
    sessions = await store.sessions()
    held = await explain_held(store, queues, sessions, now)
    others = sorted({*also} - {one.task.id for one in held})
    waiting = await explain_queues(store, queues, sessions, now, also=others, sparing=True)
    pending = {queue.name for queue in queues if queue.counts.get(State.PENDING)}
    unseen = frozenset(pending - {one.task.queue for one in waiting})
    keys = await read_waiting_keys(store, queues) if any(waits_for_slot(one.why) for one in (*waiting, *held)) else ()
    return Look([*troubles(waiting, queues, keys), *troubles(held, queues, keys)], unseen)


async def _batch(store: Store, text: str) -> Batch:
    try:
        return await find_batch(store, text)
    except NotFound as error:
        raise NotFound(
            f"there is no task or batch {text}",
            why=error.why,
            fix="check the id and the store; pitboss tasks list and pitboss batches list show them",
        ) from error


def _goes_on(batch: Batch) -> Why:
    if batch.status in OVER:
        return Why(sentence=f"it has ended: {batch.status}", cause=batch.status.value)
    running = counted(batch.counts.get(State.RUNNING, 0), "item")
    return Why(
        sentence=f"it makes progress: {running} running, {batch.finished:,} of {batch.total:,} ended", cause="running"
    )


async def explain_one(store: Store, task: Task, now: Moment) -> Why:
    """Why this task does not run. If it waits for another one with its order key, the answer names that one."""
    why = await explain_task(store, task, now)
    if task.state is State.PENDING:
        before = await store.tasks_before(task.id, limit=MOST_BEFORE)
        why = msgspec.structs.replace(why, before=before)
    first = await _first_in_order(store, task) if held_in_order(task) else None
    return why if first is None else waits_for(why, first, now)


async def _first_in_order(store: Store, task: Task) -> Task | None:
    """The unfinished task with its order key that is not held for it."""
    if task.order_key is None:
        return None
    same = by(order=task.order_key)
    unheld = same.also(state=[State.RUNNING, State.PENDING, State.SCHEDULED])
    for wanted in (unheld, same.also(state=State.HELD, reason="handler")):
        for one in (await store.find(wanted, limit=1, oldest_first=True)).tasks:
            return one
    return None
