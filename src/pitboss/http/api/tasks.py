"""Creating tasks, reading them, and what operators do to them."""

import re
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

from pitboss.client.client import Client
from pitboss.client.options import task_change
from pitboss.engines.protocol import MOST_READ, Page
from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError, Stream, of_pitboss
from pitboss.http.api.claims import like
from pitboss.http.context import Call
from pitboss.model.errors import InvalidInput, NotFound, Refused
from pitboss.model.filter import Filter, Term, by, parsed
from pitboss.model.ids import TaskId, moment_of
from pitboss.model.limits import rate
from pitboss.model.operation import NewOperation, Operation, Verb
from pitboss.model.states import WAITING, State
from pitboss.model.task import Task
from pitboss.model.text import counted
from pitboss.operate.audit import record
from pitboss.operate.documents import attempt_document, stack_document, utc, why_document
from pitboss.operate.export import LINES, export_tasks
from pitboss.operate.operations import act_on_tasks, done_text, operation_document
from pitboss.operate.remote_documents import STATUSES, remote_task_document
from pitboss.operate.remote_tasks import CreatedTask, KeyReused, WantedTask, create_tasks, remembered_ids
from pitboss.operate.stacks import read_stack
from pitboss.operate.tasks import CANCELLABLE, change_tasks, read_task, select_tasks, states_of

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_VERBS = {"cancel": Verb.CANCEL, "retry": Verb.RETRY, "delete": Verb.DISCARD}
# What a request without a body means.
_CANCEL, _RETRY = bodies.Cancel(), bodies.Retry()
_MOST_CHANGED = 10_000
_OPTIONS = ("priority", "delay", "run_at", "max_attempts", "timeout", "expires_in", "tags")


async def create_task(call: Call, body: bodies.CreateTask) -> Answer:
    """Create a task, or meet the one that it duplicates."""
    (created,) = await _created(call, [body])
    data = await _created_document(call, created)
    if created.placed.created:
        if call.by_hand:
            # Producers put thousands, which say themselves where they come from; what a person puts is an act.
            await record(call.audited("tasks create", created.placed.id, {"type": body.type}))
        return Answer(data=data, message="Task created successfully", code=201)
    return Answer(data=data, message="Task already exists (deduplicated)")


async def create_many(call: Call, body: bodies.CreateTasks) -> Answer:
    """Create all of these tasks, or none if one of them is wrong."""
    created = await _created(call, body.tasks)
    found = [await _created_document(call, one) for one in created]
    new = sum(one.placed.created for one in created)
    data = {"tasks": found, "items": found, "count": len(found), "created": new}
    return Answer(data=data, message=f"{counted(new, 'task')} created", code=201)


async def list_tasks(
    call: Call, *, status: str | None, kind: str | None, wanted: str | None, limit: int, offset: int, cursor: str | None
) -> Answer:
    chosen = _filter(status, kind, wanted)
    page = await _page(call, chosen, kind, limit, offset, cursor)
    found = [_document(call, task) for task in page.tasks]
    data = {
        "tasks": found,
        "items": found,
        "count": len(found),
        "limit": limit,
        "offset": offset,
        "next_cursor": page.next,
        "covered": utc(page.covered),
    }
    return Answer(data=data)


async def export(call: Call, wanted: str | None) -> Stream:
    """The newest 100,000 tasks that match, as lines of JSON."""
    lines = export_tasks(call.store, parsed(wanted or ""))
    # Read before the answer begins, so that a store that is away is told with a code.
    first = await anext(lines, b"")

    async def every() -> AsyncIterator[bytes]:
        yield first
        async for part in lines:
            yield part

    return Stream(every(), LINES)


async def get_task(call: Call, task_id: str) -> Answer:
    """One task with its runs."""
    task = await find(call, task_id)
    history = [attempt_document(one) for one in await call.store.attempts(task.id)]
    return Answer(data={**_document(call, task), "history": history})


async def stack(call: Call, task_id: str) -> Answer:
    """Where a running task is; its manager is asked, which takes a second or two."""
    task = await find(call, task_id)
    try:
        return Answer(data=stack_document(await read_stack(call.store, task.id, call.server.make_id, by=call.by)))
    except Refused as error:
        raise ApiError(409, "Task does not run", why=error.what, fix=error.fix) from error


async def why(call: Call, task_id: str) -> Answer:
    """Why a task waits, until when, and what helps."""
    task = await find(call, task_id)
    page = await read_task(call.store, task.id, call.now)
    return Answer(data={"id": task.id, "state": task.state.value, **why_document(page.why)})


async def cancel_one(call: Call, task_id: str, body: bodies.Cancel = _CANCEL) -> Answer:
    """Cancel a waiting task, or ask a running one to stop."""
    task = await find(call, task_id)
    store = call.audited("tasks cancel", task.id, {"reason": body.reason})
    if task.state in CANCELLABLE:
        await store.cancel(by(id=task.id), reason=body.reason or f"cancelled by {call.caller.name}")
    after = await find(call, task.id)
    if after.state is not State.CANCELLED and not after.cancel_asked:
        raise ApiError(409, "Task has ended", why=f"it is {after.state}", fix="there is nothing left to cancel")
    return Answer(data=_short(after), message="Task cancelled" if after.state is State.CANCELLED else "Stop requested")


async def change_one(call: Call, task_id: str, body: bodies.ChangeTask) -> Answer:
    """Change the priority and the tags of a waiting task."""
    task, change = await find(call, task_id), task_change(body.priority, tuple(body.tag), tuple(body.untag))
    store = call.audited("tasks change", task.id, body.model_dump(exclude_defaults=True))
    try:
        after = await Client(store, call.server.clock).change(task.id, change)
    except Refused as error:
        raise ApiError(409, "Task does not wait", why=error.what, fix=error.fix) from error
    return Answer(data=_document(call, after), message="Task changed")


async def retry_one(call: Call, task_id: str, body: bodies.Retry = _RETRY) -> Answer:
    """Run a failed or cancelled task again."""
    task = await find(call, task_id)
    if task.state not in (State.FAILED, State.CANCELLED):
        raise ApiError(
            409, "Task has not failed", why=f"it is {task.state}", fix="only failed and cancelled tasks run again"
        )
    store = call.audited("tasks retry", task.id, {"keep_attempts": body.keep_attempts})
    done = await store.retry(by(id=task.id), keep_attempts=body.keep_attempts)
    if done.refused:
        raise ApiError(
            409, "Another task has its unique key", why="a task like it was created since", fix="look at that one"
        )
    return Answer(data=_short(await find(call, task.id)), message="Task runs again")


async def delete_one(call: Call, task_id: str) -> Answer:
    """Delete a finished task."""
    task = await find(call, task_id)
    done = await call.audited("tasks delete", task.id).prune(by(id=task.id))
    if not done.changed:
        why = (
            "it has not ended" if not task.state.finished else "its unique key is still taken, or it belongs to a batch"
        )
        raise ApiError(409, "Task cannot be deleted", why=why, fix="cancel it first, or wait")
    return Answer(data={"id": task.id}, message="Task deleted")


async def act_on_many(call: Call, act: str, body: bodies.Selected | bodies.RetryMany) -> Answer:
    """Cancel, retry or delete all tasks that a filter selects: a few at once, many as an operation."""
    wanted, verb = parsed(body.filter), _VERBS[act]
    paced = body if isinstance(body, bodies.RetryMany) else bodies.RetryMany(filter=body.filter)
    if paced.stop_on_failures is not None and paced.rate is None:
        raise ApiError(
            400,
            "stop_on_failures needs a rate",
            why="without one, most tasks are retried before the first can fail again",
            fix='send {"rate": "10/s"} too',
        )
    details = body.model_dump(include={"rate", "stop_on_failures"}, exclude_none=True)
    chosen = await select_tasks(call.store, wanted, states_of(verb, wanted, paced=paced.rate is not None))
    new = NewOperation(
        id=call.server.make_id(),
        verb=verb,
        wanted=chosen.wanted,
        by=call.by,
        reason=body.reason,
        keep_attempts=body.keep_attempts,
        matched=chosen.matched,
        more=chosen.more,
        rate=() if paced.rate is None else rate(paced.rate),
        stop_on_failures=paced.stop_on_failures,
    )
    done = await act_on_tasks(call.store, new, lambda about: call.audited(f"tasks {act}", body.filter, details | about))
    if isinstance(done, Operation):
        data = {"matched": chosen.matched, "operation": operation_document(done)}
        return Answer(data=data, message="Operation begun", code=202)
    data = {"matched": chosen.matched, "changed": done.changed, "asked": done.asked, "refused": list(done.refused)}
    return Answer(data=data | {"operation": None}, message=done_text(verb, done))


async def change_many(call: Call, body: bodies.ChangeMany) -> Answer:
    """Change the priority and the tags of all waiting tasks that a filter selects, 10,000 at a time."""
    change = task_change(body.priority, tuple(body.tag), tuple(body.untag))
    details = body.model_dump(exclude_defaults=True, exclude={"filter"})
    store = call.audited("tasks change", body.filter, details)
    chosen = await select_tasks(store, parsed(body.filter), tuple(WAITING))
    done = await change_tasks(store, chosen, change, most=_MOST_CHANGED)
    data = {"matched": chosen.matched, "changed": done.changed, "more": done.more}
    rest = "; more match: repeat it" if done.more else ""
    return Answer(data=data, message=f"{counted(done.changed, 'task')} changed{rest}")


async def find(call: Call, task_id: str) -> Task:
    """The task with exactly this id."""
    text = task_id.strip().lower()
    task = (await call.store.get([text]))[0] if _ID.match(text) else None
    if task is None:
        raise ApiError(404, "Task not found", why="no task has this id, or it was deleted", fix="check the id")
    return task


async def _created(call: Call, tasks: list[bodies.CreateTask]) -> list[CreatedTask]:
    try:
        wanted = [await _wanted(call, one) for one in tasks]
        ids = await _ids(call, tasks)
        return await create_tasks(call.store, wanted, call.server.make_id, ids)
    except KeyReused as error:
        raise ApiError(422, error.what, why=error.why, fix=error.fix) from error
    except InvalidInput as error:
        raise of_pitboss(error) from error


async def _ids(call: Call, tasks: list[bodies.CreateTask]) -> tuple[TaskId, ...] | None:
    if call.idempotency is None:
        return None
    key = sha256(f"{call.caller.name}\0{call.idempotency}".encode()).hexdigest()
    fresh = [call.server.make_id() for _ in tasks]
    return await remembered_ids(call.store, key, [one.model_dump(mode="json") for one in tasks], fresh)


async def _wanted(call: Call, body: bodies.CreateTask) -> WantedTask:
    try:
        kind = await call.server.types.find(body.type)
    except NotFound as error:
        raise ApiError(404, error.what, why=error.why, fix=error.fix) from error
    options = {name: value for name in _OPTIONS if (value := getattr(body, name)) not in (None, [])}
    return WantedTask(
        type=kind,
        params=body.params,
        queue=body.queue,
        dedupe=body.dedupe,
        dedupe_key=body.dedupe_key,
        options=options,
    )


async def _created_document(call: Call, created: CreatedTask) -> dict[str, Any]:
    task, placed, key = created
    data: dict[str, Any] = {
        "id": placed.id,
        "type": task.handler,
        "status": STATUSES[placed.state],
        "state": placed.state.value,
        "priority": task.priority,
        "dedupe_key": key,
    }
    if not placed.created:
        met = (await call.store.get([placed.id]))[0]
        data |= {"priority": met.priority if met else task.priority, "deduplicated": placed.id != task.id}
    return data


def _document(call: Call, task: Task) -> dict[str, Any]:
    return remote_task_document(task, call.server.types.policy(task.handler))


def _short(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "status": STATUSES[task.state],
        "state": task.state.value,
        "cancel_requested": task.cancel_asked,
    }


def _filter(status: str | None, kind: str | None, wanted: str | None) -> Filter:
    """What the store can select by, which may be more than the pattern: that is matched afterwards."""
    chosen = parsed(wanted) if wanted else Filter()
    if status is not None:
        chosen = chosen.also(state=[state.value for state, word in STATUSES.items() if status in (word, state.value)])
    if kind is not None:
        chosen = Filter((*chosen.terms, Term(field="task", values=(re.sub(r"[%_]+", "*", kind),))))
    return chosen


async def _page(call: Call, wanted: Filter, kind: str | None, limit: int, offset: int, cursor: str | None) -> Page:
    """A page by cursor, or the tasks after the first `offset`. It ends early as the store's pages do."""
    pattern = None if kind is None else like(kind)
    found: list[Task] = []
    after, skipped, read = cursor, 0, 0
    while len(found) < limit:
        page = await call.store.find(wanted, limit=min(1000, offset - skipped + limit - len(found)), after=after)
        for task in page.tasks:
            if pattern is not None and not pattern.match(task.handler):
                continue
            if skipped < offset:
                skipped += 1
            else:
                found.append(task)
        after, read = page.next, read + len(page.tasks)
        if after is None or page.covered is not None:
            return Page(found, after, page.covered)
        if read >= MOST_READ:
            return Page(found, after, moment_of(after))
    return Page(found, after)
