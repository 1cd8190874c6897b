"""Tasks and queues: one task with the reason why it waits, which tasks a bulk act is about, changes to queues."""

from collections.abc import Callable, Sequence

import msgspec

from pitboss.engines.protocol import Queues, Store
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.filter import Count, Filter
from pitboss.model.operation import Verb
from pitboss.model.queue import Changed, Queue, QueueChange
from pitboss.model.source import DEDUPE, dedupe_periods, key_source
from pitboss.model.states import State
from pitboss.model.task import Attempt, Task, TaskChange, not_waiting
from pitboss.model.waiting import Why
from pitboss.operate.lookup import find_task
from pitboss.operate.why import explain_one

_PAGE = 1000
CANCELLABLE = (State.HELD, State.SCHEDULED, State.PENDING, State.RUNNING)


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """One task with its runs. `why` says what it waits for, what it does, or how it ended."""

    task: Task
    why: Why
    attempts: tuple[Attempt, ...]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that a bulk act is about: at least `matched`, if there may be `more`. `named`: it is a single task,
    selected by its id."""

    wanted: Filter
    states: tuple[State, ...]
    matched: int
    more: bool = False
    named: bool


async def read_task(store: Store, text: str, now: Moment, *, pages: int | None = None) -> TaskPage:
    """The task that an id or a piece of one names. `pages`: how far the end of an id is searched, as in `find_task`."""
    task = await find_task(store, text) if pages is None else await find_task(store, text, pages=pages)
    why = await explain_one(store, task, now)
    return TaskPage(task=task, why=why, attempts=tuple(await store.attempts(task.id)))


async def select_tasks(store: Store, wanted: Filter, states: tuple[State, ...]) -> Selection:
    """The tasks of the filter that are in one of these states."""
    said = any(one.field == "state" and not one.negated and {*one.values} <= {*states} for one in wanted.terms)
    narrowed = wanted if said else wanted.also(state=states)
    matched = await store.count(narrowed)
    if matched == (0, True):
        matched = Count(int(await _any_matches(store, narrowed)), more=True)
    named = matched == (1, False) and any(term.field == "id" for term in wanted.terms)
    return Selection(wanted=narrowed, states=states, matched=matched.number, more=matched.more, named=named)


async def _any_matches(store: Store, wanted: Filter) -> bool:
    """Look through all tasks for the first one that matches."""
    after = None
    while True:
        page = await store.find(wanted, limit=1, after=after)
        after = page.next
        if page.tasks or after is None:
            return bool(page.tasks)


def retryable(wanted: Filter) -> tuple[State, ...]:
    """A filter means failed tasks; cancelled ones only if it names them by id or state."""
    named = any(term.field in ("state", "id") for term in wanted.terms)
    return (State.FAILED, State.CANCELLED) if named else (State.FAILED,)


def states_of(verb: Verb, wanted: Filter, *, paced: bool = False) -> tuple[State, ...]:
    """The states of the tasks that a bulk act is about. `paced`: at a rate, which is for failed tasks only."""
    if verb is Verb.RETRY:
        return (State.FAILED,) if paced else retryable(wanted)
    return CANCELLABLE if verb is Verb.CANCEL else (State.COMPLETED, State.FAILED, State.CANCELLED)


async def change_tasks(
    store: Store,
    selection: Selection,
    change: TaskChange,
    told: Callable[[int], None] = lambda _: None,
    most: int | None = None,
) -> Changed:
    """Give waiting tasks another priority or other tags, in portions, until `most` were changed."""
    changed = 0
    while True:
        step = await store.change_tasks(selection.wanted, change, limit=_PAGE)
        changed += step.changed
        told(changed)
        if not step.more or (most is not None and changed >= most):
            return Changed(changed=changed, more=step.more)


async def refuse_unchangeable(store: Store, wanted: Filter) -> None:
    """Say why, if none of the tasks that are named by their ids waits."""
    named = [term for term in wanted.terms if term.field == "id"]
    found = (await store.find(wanted, limit=1)).tasks if named else []
    if found:
        raise not_waiting(found[0])


class Staying(msgspec.Struct, frozen=True, kw_only=True):
    """Finished tasks that cannot be deleted: `remembered` are those whose message ids are remembered, the last of them
    `until` then; `others` belong to a batch."""

    remembered: int = 0
    until: Moment = 0
    others: int = 0


async def staying_tasks(store: Store, selection: Selection) -> Staying:
    """Those of the selection that cannot be deleted. A unique key that an app gave a period is not counted: it is
    only known to the store."""
    periods, now = dedupe_periods(await store.handlers()), store.clock.now()
    untils, others, after = list[Moment](), 0, None
    while True:
        page = await store.find(selection.wanted, limit=_PAGE, after=after)
        for task in page.tasks:
            source = key_source(task.unique_key)
            until = task.created_at + periods.get(source, DEDUPE) if source is not None else 0
            if task.batch is not None:
                others += 1
            elif until > now:
                untils.append(until)
        after = page.next
        if after is None:
            return Staying(remembered=len(untils), until=max(untils, default=0), others=others)


async def change_queues(store: Queues, names: Sequence[str], change: QueueChange) -> list[Queue]:
    """Change queues that exist. `change_queue` of an engine would create an unknown one: a misspelt name would go
    unnoticed."""
    known = {queue.name: queue for queue in await store.queues()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(
            f"there is no queue {', '.join(unknown)}",
            why=f"the queues are {', '.join(known)}" if known else "the first task of a queue creates it",
            fix="check the name; nothing was changed",
        )
    changed = [await store.change_queue(name, change) for name in names]
    return [msgspec.structs.replace(queue, counts=known[queue.name].counts) for queue in changed]
