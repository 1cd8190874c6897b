"""Answers what handlers ask of the store about batches."""

from typing import Any

from pitboss.client.batch_store import batches_of
from pitboss.model.batch import BatchAct, BatchStatus, NewBatch
from pitboss.model.task import NewTask

ARGUMENTS: dict[str, Any] = {
    "create_batch": tuple[NewBatch, list[NewTask]],
    "act_on_batch": tuple[str, BatchAct, int],
    "batches": tuple[list[str] | None, list[BatchStatus], int],
    "lanes": tuple[()],
    "change_lane": tuple[str, int],
}


async def done(store: object, verb: str, arguments: Any) -> Any:
    """What the store says; `Unsupported` if it has no batches."""
    batches = batches_of(store)
    match verb:
        case "create_batch":
            return await batches.create_batch(*arguments)
        case "act_on_batch":
            batch, act, limit = arguments
            return await batches.act_on_batch(batch, act, limit=limit)
        case "batches":
            ids, statuses, limit = arguments
            return await batches.batches(ids, statuses=statuses, limit=limit)
        case "change_lane":
            return await batches.change_lane(*arguments)
        case _:
            return await batches.lanes()
