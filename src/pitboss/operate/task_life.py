"""The life of one task, step by step, and the tasks around it."""

from collections.abc import Mapping, Sequence

import msgspec

from pitboss.engines.protocol import Ledger
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.filter import Filter, Term, by
from pitboss.model.fleet import manager_view
from pitboss.model.ids import moment_of
from pitboss.model.session import Session
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Attempt, Task
from pitboss.model.text import one_line
from pitboss.model.waiting import Why
from pitboss.operate.origin import origin_lines

# Ids are made by the clocks of many hosts.
_CLOCKS_APART: Span = 60 * SECOND
_CHILDREN, _LOOKED_AT = 20, 2000
_PUT = "put"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a task, and when. `kind` is a state, "put", or the outcome of a run that did not end the task.
    `waited` is how long it waited before, `ran` how long the run took."""

    at: Moment
    kind: str
    text: str = ""
    resource: str | None = None
    waited: Span | None = None
    ran: Span | None = None


class Relatives(msgspec.Struct, frozen=True, kw_only=True):
    """The task that put this one, and the first tasks that it put; `more`: there may be others."""

    parent: Task | None = None
    children: Sequence[Task] = ()
    more: bool = False


async def read_relatives(store: Ledger, task: Task, now: Moment) -> Relatives:
    """Children are looked for among the tasks that were put after this one, of which a bounded number is read."""
    parent = (await store.get([task.parent]))[0] if task.parent is not None else None
    younger = Term(field="age", op="<=", number=max(0, now - moment_of(task.id)) + _CLOCKS_APART)
    wanted = Filter((*by(parent=task.id).terms, younger))
    page = await store.find(wanted, limit=_CHILDREN, oldest_first=True, most=_LOOKED_AT)
    return Relatives(parent=parent, children=page.tasks, more=page.next is not None)


def worker_of(task: Task, sessions: Sequence[Session]) -> str | None:
    """The worker that runs it, or ran it last. Of a running task its manager's snapshot knows that."""
    session = next((one for one in sessions if one.number == task.session), None)
    if task.state is not State.RUNNING or session is None:
        return task.worker
    workers = manager_view(session).snapshot.workers
    return next((one.name for one in workers if any(task.id == each.id for each in one.tasks)), task.worker)


def life(task: Task, attempts: Sequence[Attempt], why: Why, hosts: Mapping[int, str], now: Moment) -> list[Step]:
    """From the put to the state that it is in. `hosts` are those of sessions that are still known."""
    origin = "; ".join(origin_lines(task)) or ("put by another task" if task.parent else "put by a caller")
    steps = [Step(at=task.created_at, kind=_PUT, text=origin)]
    since = task.created_at
    for one in attempts:
        steps.append(_started(one.attempt, one.worker, one.session, one.started_at, since, hosts))
        steps.append(
            Step(at=one.ended_at, kind=one.outcome, text=_error(one), ran=max(0, one.ended_at - one.started_at))
        )
        since = one.ended_at
    return [*steps, *_now(task, steps[-1], why, hosts, since, now)]


def _now(task: Task, last: Step, why: Why, hosts: Mapping[int, str], since: Moment, now: Moment) -> Sequence[Step]:
    """The state that the steps so far do not show."""
    if task.state is State.RUNNING:
        at = task.started_at or since
        begun = _started(task.attempts + 1, task.worker, task.session, at, since, hosts)
        return [msgspec.structs.replace(begun, resource=task.resource, ran=max(0, now - at))]
    if task.state in FINISHED:
        if last.kind == task.state.value and last.at == task.finished_at:
            return []
        return [Step(at=task.finished_at or since, kind=task.state.value, text=task.reason or "")]
    due = task.run_at if task.run_at is not None and task.run_at > since else since
    return [Step(at=due, kind=task.state.value, text=why.sentence, waited=now - due if due <= now else None)]


def _started(
    attempt: int, worker: str | None, session: int | None, at: Moment, since: Moment, hosts: Mapping[int, str]
) -> Step:
    where = f" in {worker}" if worker else ""
    host = hosts.get(session or 0)
    where += f" on {host}" if host else ""
    return Step(at=at, kind=State.RUNNING.value, text=f"attempt {attempt}{where}", waited=max(0, at - since))


def _error(one: Attempt) -> str:
    if one.error is None:
        return ""
    message = one_line(one.error.message)
    kind = one.error.type or one.error.category
    return f"{kind}: {message}" if kind and message else kind or message
