"""Where a running task is, asked of the manager that runs it."""

import asyncio
from collections.abc import Callable

import msgspec

from pitboss.engines.protocol import Store
from pitboss.model import snapshot
from pitboss.model.errors import Refused, TimedOutWaiting
from pitboss.model.session import Session
from pitboss.model.stack import StackWish, TaskStack, stack_key
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.operate.lookup import find_task

SECONDS = 5.0
_LOOK_SECONDS = 0.1
_AGAIN = 10


class StackReading(msgspec.Struct, frozen=True, kw_only=True):
    """The task, the host and the process of its manager, and the answer."""

    task: Task
    host: str
    stack: TaskStack


async def read_stack(store: Store, text: str, make_id: Callable[[], str], *, by: str) -> StackReading:
    """The stack of the running task that an id or a piece of one names; an answer takes a second or two."""
    task = await find_task(store, text)
    if task.state is not State.RUNNING or task.session is None:
        raise Refused(
            f"task {task.id} ({task.handler}) is {task.state}",
            why="only a running task has a stack",
            fix=f"pitboss tasks show {task.id} says what it waits for, or how it ended",
        )
    number = task.session
    session = next((one for one in await store.sessions() if one.number == number), None)
    if task.claim_expires_at is not None or session is None or session.info.kind != "manager":
        raise Refused(
            f"task {task.id} ({task.handler}) runs in the remote worker {task.worker or 'of a client'}",
            why="it reaches Pitboss over HTTP only, and no manager can look into it",
            fix="look on its host, for example with py-spy",
        )
    wish, key = StackWish(task=task.id, ask=make_id()), stack_key(number)
    try:
        found = await _answered(store, key, wish, by)
    finally:
        await store.wish(key, None, by=by)
    if found is None:
        raise await _too_late(store, task, session)
    return StackReading(task=task, host=session.info.host, stack=found)


async def _answered(store: Store, key: str, wish: StackWish, by: str) -> TaskStack | None:
    for look in range(round(SECONDS / _LOOK_SECONDS)):
        if look % _AGAIN == 0:
            # Again, because another operator who asks the same manager has replaced it.
            await store.wish(key, msgspec.json.encode(wish).decode(), by=by)
        await asyncio.sleep(_LOOK_SECONDS)
        for session in await store.sessions():
            seen = snapshot.read(session.snapshot)
            for stack in seen.stacks if seen is not None else ():
                if stack.ask == wish.ask:
                    return stack
    return None


async def _too_late(store: Store, task: Task, session: Session) -> Refused | TimedOutWaiting:
    (after,) = await store.get([task.id])
    if after is None or after.state is not State.RUNNING:
        return Refused(
            f"task {task.id} ({task.handler}) ended meanwhile",
            why="only a running task has a stack",
            fix=f"look at it: pitboss tasks show {task.id}",
        )
    return TimedOutWaiting(
        f"the manager of task {task.id} did not answer within {SECONDS:g} s",
        why=f"it runs on {session.info.host} (pid {session.info.pid}); it may be gone, halted, or of an older release",
        fix="pitboss ps shows the managers; repeat the command",
    )
