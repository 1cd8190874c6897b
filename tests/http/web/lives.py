"""Tasks in every state with hostile texts, failures of two causes, and operations: what pages of tasks show."""

from typing import Any

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.operation import NewOperation, Verb
from pitboss.model.outcome import Completed, Failed, Outcome, Retry, decide, progressed
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import NewTask, TaskError, Unique

WAITING, RUNNING, FAILED, RETRIED, DONE, CHILD, ALIKE = (
    f"0199a000-0000-7000-8000-00000000000{number}" for number in range(1, 8)
)
OPERATION = "0199a000-0000-7000-8000-0000000000a1"
CAUSE = "abcd1234"
PAGES = [
    "/tasks?q=state:failed&all=1",
    "/failures",
    "/failures?q=queue:lives",
    "/operations",
    "/operations?status=running",
]
DETAILS = [
    *(f"/tasks/{task}" for task in (WAITING, RUNNING, FAILED, RETRIED, DONE, CHILD)),
    f"/tasks/{RUNNING}?stack=1",
    "/failures/-",
    f"/failures/{CAUSE}",
    f"/operations/{OPERATION}",
]


async def furnish_lives(store: FullStore, hostile: str) -> None:
    await store.register([HandlerInfo(name="fetch", queue="lives"), HandlerInfo(name="send", queue="mail")])
    session = await store.open_session(SessionInfo(host="box1", pid=2, ttl=3600 * SECOND, handlers=("fetch", "send")))
    error = TaskError(
        category="error",
        type="KeyError",
        message=hostile,
        traceback=f'Traceback (most recent call last):\n  File "{hostile}"\nKeyError: {hostile}',
        fingerprint=CAUSE,
        retryable=False,
    )
    bare = msgspec.structs.replace(error, type="", traceback="", fingerprint="")
    ends: list[tuple[str, Outcome | None]] = [
        (FAILED, Failed(error)),
        (ALIKE, Failed(bare)),
        (DONE, Completed(msgspec.json.encode({"to": hostile}).decode())),
        (RETRIED, Retry(after=3600 * SECOND, error=msgspec.structs.replace(error, retryable=True))),
        (RUNNING, None),
    ]
    for task, outcome in ends:
        await store.put([_task(task, hostile)])
        await _run(store, session.number, outcome, hostile)
    await store.put([_task(CHILD, hostile, parent=DONE), _task(WAITING, hostile)])
    await store.begin_operation(
        NewOperation(id=OPERATION, verb=Verb.RETRY, wanted=by(tag=hostile), by=hostile, reason=hostile, matched=2000)
    )


def _task(task: str, hostile: str, **more: Any) -> NewTask:
    params = msgspec.json.encode({"to": hostile, "size": 5}).decode()
    unique = Unique(f"{task} {hostile}")
    return NewTask(
        id=task, handler="fetch", queue="lives", params=params, tags=(hostile,), unique=unique, order_key=task, **more
    )


async def _run(store: FullStore, session: int, outcome: Outcome | None, hostile: str) -> None:
    request = ClaimRequest(session=session, slots=(Slot(free=1, queues=("lives",)),))
    (claim,) = (await store.claim(request)).claims
    transition = (
        progressed(40, hostile) if outcome is None else decide(claim, outcome, Policy(), store.clock.now(), 0.5)
    )
    await store.settle([Settlement(id=claim.id, token=claim.token, transition=transition, worker=hostile)])
