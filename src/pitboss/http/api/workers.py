"""Remote workers, and what they say of themselves."""

import asyncio
from typing import Any

from pitboss.dispatch.remote_reports import Report
from pitboss.http import bodies
from pitboss.http.answers import Answer
from pitboss.http.api.claims import REFUSALS
from pitboss.http.context import Call
from pitboss.model.canonical import to_json
from pitboss.operate.documents import utc
from pitboss.operate.remote_documents import remote_worker_document
from pitboss.operate.remote_workers import WorkerCard, stats

# What a request without a body means.
_ALIVE = bodies.Heartbeat()
_MOST_METADATA = 10_000


async def register(call: Call, body: bodies.RegisterWorker) -> Answer:
    """Say that this worker exists. Not needed to claim; it is then shown with its name and what it runs."""
    to_json(body.metadata, what="metadata", max_bytes=_MOST_METADATA)
    card = WorkerCard(
        name=body.name or "", status=body.status, metadata=body.metadata, types=tuple(dict.fromkeys(body.types))
    )
    new = await call.server.workers.register(body.worker_id, card)
    data = {"worker_id": body.worker_id, "status": body.status}
    if new:
        return Answer(data=data, message="Worker registered", code=201)
    return Answer(data=data, message="Worker updated")


async def heartbeat(call: Call, worker_id: str, body: bodies.Heartbeat = _ALIVE) -> Answer:
    """A sign of life, which also extends the claims that are named."""
    reports = [Report(one.id, worker_id, one.claim_token) for one in body.tasks]
    done = await asyncio.gather(*map(call.server.reports.report, reports))
    await call.server.workers.heartbeat(worker_id, body.status)
    tasks: list[dict[str, Any]] = []
    for report, one in zip(reports, done, strict=True):
        if one.refused is not None:
            code, error, _ = REFUSALS[one.refused]
            tasks.append({"id": report.task, "error": error, "code": code})
        else:
            until, asked = utc(one.claim_expires_at), one.cancel_asked
            tasks.append({"id": report.task, "claim_expires_at": until, "cancel_requested": asked})
    return Answer(data={"worker_id": worker_id, "tasks": tasks}, message="Heartbeat received")


async def set_status(call: Call, worker_id: str, body: bodies.SetStatus) -> Answer:
    """Say that a worker is active, idle or offline."""
    await call.server.workers.heartbeat(worker_id, body.status)
    return Answer(data={"worker_id": worker_id, "status": body.status}, message="Status updated")


async def list_workers(call: Call) -> Answer:
    """All remote workers."""
    found = [remote_worker_document(one) for one in await call.server.workers.all(call.now)]
    return Answer(data={"workers": found, "items": found, "count": len(found)})


async def get_worker(call: Call, worker_id: str) -> Answer:
    """One remote worker, and the tasks that it has."""
    return Answer(data=remote_worker_document(await call.server.workers.find(worker_id, call.now)))


async def get_stats(call: Call, worker_id: str) -> Answer:
    """What a remote worker has done."""
    return Answer(data=stats(await call.server.workers.find(worker_id, call.now)))
