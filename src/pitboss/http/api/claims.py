"""Claiming tasks over HTTP, and reporting on them."""

import asyncio
import re
from contextlib import suppress
from hashlib import sha256
from typing import Any

from pitboss.dispatch.remote_claims import RemoteWish
from pitboss.dispatch.remote_reports import Report, Reported
from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError
from pitboss.http.context import Call
from pitboss.model.canonical import Json, printable, to_json
from pitboss.model.duration import SECOND, Span
from pitboss.model.fingerprint import fingerprint
from pitboss.model.outcome import Cancelled, Completed, Failed, Outcome, Released
from pitboss.model.outcome import Retry as RetryLater
from pitboss.model.session import Order
from pitboss.model.states import State
from pitboss.model.task import Claim, TaskError
from pitboss.operate.documents import utc
from pitboss.operate.remote_documents import STATUSES, claim_document
from pitboss.operate.task_types import TaskType

REFUSALS = {
    "missing": (404, "Task not found", "no task has this id, or it was deleted"),
    "other": (403, "Task is claimed by another worker", "its claim ran out, or another worker_id claimed it"),
    "idle": (400, "Task is not in claimed state", "it was never claimed, or it has ended, or its claim ran out"),
    "over": (409, "The claim is over", "its time limit passed before a sign of life; the task goes to another worker"),
}
# Errors that say by their type whether another attempt can help.
_NOT_RETRYABLE = {"validation"}


async def claim_tasks(call: Call, body: bodies.ClaimTasks) -> Answer:
    """Claim one task, or up to `limit`. With `wait`, the answer may take that many seconds."""
    wish = await _wish(call, body)
    if wish is None:
        claims = []
    elif body.wait and call.watched:
        claims = await _while_connected(call, wish, body.wait)
    else:
        claims = await call.server.claims.claim(wish, body.wait)
    if not claims:
        raise ApiError(404, "No available tasks")
    call.server.reports.note(body.worker_id, claims)
    call.server.workers.count(body.worker_id, call.now, claimed=len(claims))
    lasts = 0.0 if wish is None else wish.lasts / SECOND
    if body.limit is None:
        return Answer(data=_document(call, claims[0], lasts), message="Task claimed")
    found = [_document(call, claim, lasts) for claim in claims]
    return Answer(data={"tasks": found, "items": found, "count": len(found)}, message="Tasks claimed")


async def progress(call: Call, body: bodies.Progress) -> Answer:
    """Say how far a task is. Extends the claim."""
    note = None if body.message is None else printable(body.message)
    said = Report(call.path, body.worker_id, body.claim_token, percent=body.progress, note=note)
    done = await call.server.reports.report(said)
    return Answer(data={**_sign(call.path, done), "progress": body.progress}, message="Progress updated")


async def heartbeat(call: Call, body: bodies.Report) -> Answer:
    """Extend the claim."""
    done = await call.server.reports.report(Report(call.path, body.worker_id, body.claim_token))
    return Answer(data=_sign(call.path, done), message="Claim extended")


async def complete(call: Call, body: bodies.Complete) -> Answer:
    """The task has ended: with `success` and its result, or without and its error."""
    outcome = _outcome(body)
    done = await call.server.reports.report(Report(call.path, body.worker_id, body.claim_token, outcome))
    return Answer(data=_ended(call, body.worker_id, call.path, done, outcome), message="Task updated")


async def fail(call: Call, body: bodies.Fail) -> Answer:
    """The task has failed. Whether it is tried again is decided by `retryable`, its attempts and its type."""
    ended = bodies.Ended(success=False, **body.model_dump(exclude={"worker_id", "claim_token"}))
    outcome = _outcome(ended)
    done = await call.server.reports.report(Report(call.path, body.worker_id, body.claim_token, outcome))
    return Answer(data=_ended(call, body.worker_id, call.path, done, outcome), message="Task updated")


async def release(call: Call, body: bodies.Release) -> Answer:
    """Give the task back unfinished. Costs no attempt."""
    outcome = Released(started=True, delay=_span(body.delay), reason=printable(body.reason))
    done = await call.server.reports.report(Report(call.path, body.worker_id, body.claim_token, outcome))
    return Answer(data=_ended(call, body.worker_id, call.path, done, outcome), message="Task released")


async def complete_many(call: Call, body: bodies.CompleteMany) -> Answer:
    """Report on several tasks at once. Each is accepted or refused by itself."""
    outcomes = [_outcome(one) for one in body.outcomes]
    reports = [
        Report(one.id, body.worker_id, one.claim_token, outcome)
        for one, outcome in zip(body.outcomes, outcomes, strict=True)
    ]
    done = await call.server.reports.report_many(reports)
    found = [
        _ended_or_error(call, body.worker_id, one.id, result, outcome)
        for one, result, outcome in zip(body.outcomes, done, outcomes, strict=True)
    ]
    return Answer(data={"tasks": found, "items": found, "count": len(found)}, message="Tasks updated")


async def _while_connected(call: Call, wish: RemoteWish, wait: float) -> list[Claim]:
    """Stop waiting when the client hangs up: its tasks go to others at once."""
    claiming = asyncio.create_task(call.server.claims.claim(wish, wait))
    gone = asyncio.ensure_future(call.gone())
    try:
        await asyncio.wait({claiming, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not claiming.done():
            raise ApiError(400, "The client hung up")
        claims = claiming.result()
        if gone.done():
            call.server.claims.give_back(claims)
            raise ApiError(400, "The client hung up")
        return claims
    finally:
        gone.cancel()
        if not claiming.done():
            claiming.cancel()
            with suppress(asyncio.CancelledError):
                await claiming


async def _wish(call: Call, body: bodies.ClaimTasks) -> RemoteWish | None:
    """None if there is no type that the worker could claim from."""
    types = _wanted(await call.server.types.all(), body)
    if types is None:
        await call.server.types.read()
        types = _wanted(await call.server.types.all(), body)
    if types is None:
        raise ApiError(
            404,
            "Task type not found",
            why="no type has one of these ids or names",
            fix="GET /api/task-types lists them",
        )
    if not types:
        return None
    lasts = _span(body.claim_timeout) if body.claim_timeout else max(one.claim_lasts for one in types)
    return RemoteWish(
        worker=body.worker_id,
        handlers=tuple(sorted(one.info.name for one in types)),
        queues=tuple(sorted({queue for one in types for queue in one.queues})),
        lasts=lasts,
        most=body.limit or 1,
        order=_order(body),
        repeat=None if call.idempotency is None else _repeat_key(call, body),
    )


def _wanted(known: dict[str, TaskType], body: bodies.ClaimTasks) -> list[TaskType] | None:
    """The remote types that are asked for; None if one that is named is not known."""
    numbers = {*(body.task_type_ids or ()), *(() if body.task_type_id is None else (body.task_type_id,))}
    names = set(body.types or ())
    remote = [one for one in known.values() if one.info.remote]
    if not numbers and not names and body.type_pattern is None:
        return remote
    if len(numbers) > sum(one.info.number in numbers for one in known.values()) or not names <= known.keys():
        return None
    pattern = None if body.type_pattern is None else like(body.type_pattern)
    local = [one for one in known.values() if not one.info.remote]
    if any(one.info.number in numbers or one.info.name in names for one in local):
        raise ApiError(
            400,
            "This type is not for remote workers",
            why="it is a handler of a Python app, and the workers of Pitboss run it",
            fix="leave it out",
        )
    chosen = [one for one in remote if not (numbers or names) or one.info.number in numbers or one.info.name in names]
    return [one for one in chosen if pattern is None or pattern.match(one.info.name)]


def like(pattern: str) -> re.Pattern[str]:
    """A pattern of SQL's LIKE: % stands for any characters, _ for one.

    Every piece between two % is taken where it is found first. Nothing is tried twice, so that no pattern is slow.
    """
    first, *rest = ("".join("." if c == "_" else re.escape(c) for c in piece) for piece in pattern.split("%"))
    if not rest:
        return re.compile(rf"{first}\Z", re.DOTALL)
    *middle, last = rest
    found = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(rf"{first}{found}.*{last}\Z", re.DOTALL)


def _order(body: bodies.ClaimTasks) -> Order | None:
    descending = body.sort_order.upper() == "DESC"
    if body.sort_by is None or (body.sort_by == "priority" and not descending):
        return None
    return Order(body.sort_by, descending)


def _repeat_key(call: Call, body: bodies.ClaimTasks) -> str:
    """The same key with another body is refused as far as this server remembers it."""
    digest = sha256(body.model_dump_json().encode()).hexdigest()[:32]
    key = sha256(f"{call.caller.name}\0{call.idempotency}".encode()).hexdigest()[:40]
    if call.server.claim_keys.setdefault(key, digest) != digest:
        raise ApiError(
            422,
            "This Idempotency-Key was used with another request",
            why="a key stands for one request, so that repeating it is safe",
            fix="make a new key for each new claim",
        )
    return f"{key}{digest}"


def _outcome(body: bodies.Ended) -> Outcome:
    if body.success:
        return Completed(_result(body.result))
    error = _error(body)
    if body.retry_after is not None and error.retryable:
        return RetryLater(_span(body.retry_after), error)
    return Failed(error)


def _result(value: Any) -> Json | None:
    return None if value is None else to_json(value, what="result")


def _error(body: bodies.Ended) -> TaskError:
    """Without `retryable`, every error may be tried again but a wrong parameter."""
    category = printable(body.error_type or "error", 100)
    message = printable(body.error or "Task failed")
    traceback = printable(body.traceback or "")
    retryable = category not in _NOT_RETRYABLE if body.retryable is None else body.retryable
    return TaskError(
        category=category,
        message=message,
        type=category,
        traceback=traceback,
        fingerprint=fingerprint("", category, message, traceback),
        retryable=retryable,
    )


def _document(call: Call, claim: Claim, lasts: float) -> dict[str, Any]:
    return claim_document(claim, lasts, call.server.types.policy(claim.handler))


def _sign(task: str, done: Reported) -> dict[str, Any]:
    if done.refused is not None:
        raise _refused(done)
    return {
        "id": task,
        "claim_expires_at": utc(done.claim_expires_at),
        "cancel_requested": done.cancel_asked,
    }


def _ended(call: Call, worker: str, task: str, done: Reported, outcome: Outcome) -> dict[str, Any]:
    if done.refused is not None:
        raise _refused(done)
    match outcome:
        case Completed():
            call.server.workers.count(worker, call.now, completed=1)
        case Released() | Cancelled():
            pass
        case _:
            call.server.workers.count(worker, call.now, failed=1)
    return {
        "id": task,
        "status": _status(done.state, outcome),
        "state": None if done.state is None else done.state.value,
    }


def _ended_or_error(call: Call, worker: str, task: str, done: Reported, outcome: Outcome) -> dict[str, Any]:
    try:
        return _ended(call, worker, task, done, outcome)
    except ApiError as error:
        return {"id": task, "error": error.error, "code": error.code}


def _status(state: State | None, outcome: Outcome) -> str:
    word = "pending" if state is None else STATUSES[state]
    return "pending (retry)" if word == "pending" and not isinstance(outcome, Released) else word


def _refused(done: Reported) -> ApiError:
    code, error, why = REFUSALS[done.refused or "over"]
    return ApiError(code, error, why=why, **({} if done.state is None else {"state": done.state.value}))


def _span(seconds: float) -> Span:
    return round(seconds * SECOND)
