"""Enqueues by name, for callers without the handler's code: the registry says what the handler accepts and needs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pitboss.client.batches import checked_title, refuse_order_keys, with_completion_params
from pitboss.client.client import Client
from pitboss.client.options import Options
from pitboss.client.schema import checked
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import Batch, BatchId, NewBatch
from pitboss.model.canonical import Json, to_json
from pitboss.model.ids import TaskId
from pitboss.model.new_task import new_task, new_tasks
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.task import Placed
from pitboss.operate.lookup import find_handler


async def enqueue(
    client: Client,
    name: str,
    params: Mapping[str, Any],
    task_id: TaskId,
    *,
    queue: str | None = None,
    held: bool = False,
    **options: Any,
) -> Placed:
    """Store a task; params that do not fit the handler's schema are refused. The options are those of `Handler.using`.

    A name that is not registered is refused; with `held` its task is stored and waits for a worker that knows it.
    """
    handler = await find_handler(client.store, name, held=held)
    chosen = Options().changed(**options)
    task = new_task(handler, checked(handler, params), task_id, chosen, queue=queue)
    return (await client.put([task], wait=chosen.wait))[0]


async def create_batch(
    client: Client,
    handler: HandlerInfo,
    params: Sequence[Json],
    make_id: Callable[[], TaskId],
    new: NewBatch,
    *,
    on_complete: str | None = None,
    queue: str | None = None,
    **options: Any,
) -> Batch:
    """Store a batch with one item for each of the checked params, all of them or none.

    `on_complete` names the handler of the task that is put when the batch has ended.
    """
    batches = batches_of(client.store)
    chosen = Options().changed(**options)
    refuse_order_keys([chosen])
    items = list(new_tasks(handler, params, make_id, chosen, queue=queue))
    following = None
    if on_complete is not None:
        after = await find_handler(client.store, on_complete)
        given = with_completion_params(new.id, lambda told: checked(after, told))
        following = new_task(after, given, make_id())
    complete = msgspec.structs.replace(new, on_complete=following)
    return await client.patiently(lambda: batches.create_batch(complete, items))


def described_batch(
    batch_id: BatchId,
    *,
    name: str = "",
    lane: str = "default",
    data: Mapping[str, Any] | None = None,
    by: str | None = None,
    paused: bool = False,
) -> NewBatch:
    """The batch without its items, checked."""
    return NewBatch(
        id=batch_id,
        name=checked_title(name),
        lane=checked_name(lane, "lane"),
        data=to_json(dict(data or {}), what="data of the batch"),
        by=by,
        paused=paused,
    )
