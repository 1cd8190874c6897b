"""The asking side of one store: put tasks, read one, wait for its end, cancel it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Self, TypeVar

from pitboss.client.resource_client import ResourceClient
from pitboss.client.waiting import explain_task
from pitboss.engines.access_protocol import Audited
from pitboss.engines.capabilities import check_needs
from pitboss.engines.protocol import Clock, Store
from pitboss.model.access import AuditEntry
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.errors import NotFound, PitbossError, QueueFull, StoreFull, StoreUnavailable, TimedOutWaiting
from pitboss.model.filter import by
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import KeyValue
from pitboss.model.source import is_outbox
from pitboss.model.states import WAITING, State
from pitboss.model.task import NewTask, Placed, Task, TaskChange, not_waiting
from pitboss.model.waiting import Why

T = TypeVar("T")
_PATIENCE: Span = 5 * SECOND
# How old the list of sources may be that messages are published by.
_FRESH: Span = 5 * SECOND
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.25


class Client:
    """The async core, on the loop that the store was opened in. `clock` only measures waiting; the store's own decides.

    Inside a worker the store has only the verbs that are open to workers. `keys` answers with the keys of a resource
    pool of the app. `known` are the handlers that the store surely knows.
    """

    def __init__(self, store: Store, clock: Clock, keys: Callable[[str], Mapping[str, KeyValue]] | None = None) -> None:
        self.store, self.clock, self._keys = store, clock, keys
        self.known: set[str] = set()
        self._introduced: set[str] = set()
        self._outboxes: tuple[Moment, list[str]] | None = None

    @cached_property
    def resources(self) -> ResourceClient:
        """Pools and leases; `Unsupported` if the store has none."""
        return ResourceClient(self.store, self.clock, self._introduced)

    def audited(self, entry: AuditEntry) -> Self:
        """The same client, whose acts also store this entry of the audit log, if the store has one."""
        if not isinstance(self.store, Audited):
            return self
        found = copy(self)
        found.__dict__.pop("resources", None)
        found.store = self.store.audited(entry)
        return found

    async def lookup(self, name: str) -> HandlerInfo | None:
        """A handler as the store's registry has it."""
        return next((handler for handler in await self.store.handlers() if handler.name == name), None)

    async def outboxes(self, *, anew: bool = False) -> list[str]:
        """The outboxes of the store's sources; read again after some seconds, since every message asks for them."""
        now = self.clock.now()
        if anew or self._outboxes is None or now - self._outboxes[0] > _FRESH:
            known = sorted(one.name for one in await self.store.handlers() if is_outbox(one.name))
            self._outboxes = now, known
        return self._outboxes[1]

    async def introduce(self, handlers: Iterable[HandlerInfo]) -> None:
        """Register handlers and their pools, so that their tasks are not held. Never replaces what a manager wrote."""
        wanted = {handler.name: handler for handler in handlers if handler.name not in self.known}
        if not wanted:
            return
        check_needs(self.store, wanted.values())
        there = {handler.name for handler in await self.store.handlers()}
        missing = [handler for name, handler in wanted.items() if name not in there]
        if self._keys is not None:
            for pool in sorted({handler.resources for handler in missing if handler.resources}):
                await self.resources.introduce(pool, self._keys(pool))
        if missing:
            await self.store.register(missing)
        self.known.update(wanted)

    async def put(self, tasks: Sequence[NewTask], *, wait: Span | None = None) -> list[Placed]:
        """Store tasks. `wait` is how long to wait for room in a full queue or store; None refuses at once."""
        return await self.patiently(lambda: self.store.put(tasks), wait=wait)

    async def patiently(self, work: Callable[[], Awaitable[T]], *, wait: Span | None = None) -> T:
        """The work's result. Repeats it while the store is out of reach for a moment: ids make that harmless."""
        started = self.clock.now()
        pause = _FIRST_PAUSE
        while True:
            try:
                return await work()
            except (QueueFull, StoreFull) as error:
                self._still_time(started, wait or 0, error)
            except StoreUnavailable as error:
                self._still_time(started, _PATIENCE, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def get(self, task: TaskId) -> Task:
        found = (await self.store.get([task]))[0]
        if found is None:
            raise NotFound(
                f"task {task} is not in the store",
                why="it was never put there, or it finished long ago and was pruned",
                fix="check the id and the store's URL; the retention settings say how long finished tasks stay",
            )
        return found

    async def finished(self, task: TaskId, *, timeout: Span | None) -> Task:
        """The task once it has ended. Polls, less and less often."""
        started = self.clock.now()
        pause = _FIRST_PAUSE
        while True:
            found = await self.get(task)
            if found.state.finished:
                return found
            left = None if timeout is None else started + timeout - self.clock.now()
            if left is not None and left <= 0:
                raise await self._too_late(found, timeout or 0)
            await asyncio.sleep(pause if left is None else min(pause, left / SECOND))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def cancel(self, task: TaskId, *, reason: str = "") -> State:
        """Cancel a waiting task, or ask a running one to stop; its state afterwards."""
        await self.store.cancel(by(id=task), reason=reason)
        return (await self.get(task)).state

    async def change(self, task: TaskId, change: TaskChange) -> Task:
        """Change a waiting task; the task afterwards. `Refused` if it does not wait."""
        await self.store.change_tasks(by(id=task), change)
        found = await self.get(task)
        if found.state not in WAITING:
            raise not_waiting(found)
        return found

    async def _too_late(self, task: Task, timeout: Span) -> TimedOutWaiting:
        try:
            why = await explain_task(self.store, task, self.store.clock.now())
        except PitbossError:  # the store is away: its last answer is all that is known
            why = Why(sentence=f"it is {task.state}", cause=task.state.value)
        return TimedOutWaiting(
            f"task {task.id} ({task.handler}) did not end within {spoken(timeout)}",
            why=f"{why.sentence}; it goes on by itself" if not why.stuck else why.sentence,
            fix="; ".join(why.helps) if why.stuck else f"wait longer; pitboss why {task.id} says more",
        )

    def _still_time(self, started: int, patience: Span, error: Exception) -> None:
        if self.clock.now() - started >= patience:
            raise error
