"""Several engines, one clock, the same acts: every answer and the whole ledger must be equal after each act."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.errors import PitbossError
from pitboss.model.failure import FailureCount
from pitboss.model.figures import RAW
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import TaskId
from pitboss.model.queue import Queue
from pitboss.model.resource import ResourcePool
from pitboss.model.session import Renewal
from pitboss.model.task import Task
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance.inspection import (
    assert_batches_sound,
    assert_members_sound,
    assert_partitions_sound,
)
from pitboss.testing.conformance.soundness import assert_sound
from tests.conformance.contestants import Open

Act = Callable[[FullStore], Awaitable[Any]]


class Arena:
    """Runs acts on all engines, compares the answers, and returns the first engine's."""

    def __init__(self, engines: dict[str, Open]) -> None:
        self.clock = FakeClock()
        self._names = list(engines)
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(prefix="pitboss-arena-")
        self._tasks: dict[TaskId, Task] = {}
        self._stores: list[FullStore] = []
        self._runner.run(self._open(engines))

    def close(self) -> None:
        self._runner.run(self._close())
        self._runner.close()
        self._folder.cleanup()

    def act(self, what: Act, *, revived: bool = False) -> Any:
        return self._runner.run(self._act(what, revived))

    def compare_the_rest(self) -> None:
        """Compare what changes too seldom to compare after each act."""
        self._runner.run(self._compare_the_rest())

    async def _open(self, engines: dict[str, Open]) -> None:
        for number, opening in enumerate(engines.values()):
            folder = Path(self._folder.name) / str(number)
            await asyncio.to_thread(folder.mkdir)
            self._stores.append(await opening(self.clock, folder))

    async def _close(self) -> None:
        for store in self._stores:
            await store.close()

    async def _act(self, what: Act, revived: bool) -> Any:
        answer = await self._same("answers", lambda store: _answer(what, store))
        tasks: list[Task] = await self._same("ledgers", _ledger)
        changed = [task for task in tasks if self._tasks.get(task.id) != task]
        for task in changed:
            if task.id in self._tasks:
                assert_sound(task, self._tasks[task.id], revived=revived)
        self._tasks = {task.id: task for task in tasks}
        await self._same("histories", lambda store: _histories(store, changed))
        queues: list[Queue] = await self._same("queues", lambda store: store.queues())
        await self._same("failures", _failures)
        await self._same("partitions", lambda store: _partitions(store, queues))
        await self._same("slots", lambda store: store.slots())
        await self._same("flows", lambda store: store.flows(0, 2**62, span=RAW, by_handler=True))
        pools: list[ResourcePool] = await self._same("pools", lambda store: store.resource_pools())
        await self._same("members", lambda store: _members(store, pools))
        await self._same("batches", lambda store: store.batches(limit=1000))
        await self._same("lanes", lambda store: store.lanes())
        await self._same("declarations", lambda store: store.declarations())
        await self._same("schedules", lambda store: store.schedules())
        await self._same("operations", lambda store: store.operations())
        await self._same("events", lambda store: store.events(limit=20))
        await self._same("alerts", lambda store: store.alert_board())
        await assert_members_sound(self._stores[0], self.clock.now(), tasks)
        await assert_batches_sound(self._stores[0], tasks, forced=True)
        await assert_partitions_sound(self._stores[0], tasks)
        return answer

    async def _compare_the_rest(self) -> None:
        await self._same("sessions", lambda store: store.sessions())
        await self._same("handlers", lambda store: store.handlers())
        await self._same("wishes", lambda store: store.wishes())
        await self._same("leaders", lambda store: store.leader())
        await self._same("keys", lambda store: store.api_keys())
        await self._same("audit logs", lambda store: store.audit_log(limit=1000))
        await self._same("happenings", lambda store: store.happenings(limit=1000))

    async def _same(self, what: str, ask: Act) -> Any:
        answers = [await ask(store) for store in self._stores]
        for name, other in zip(self._names[1:], answers[1:], strict=True):
            assert other == answers[0], f"{what} of {name} differ:\n{_difference(answers[0], other)}"
        return answers[0]


async def _failures(store: FullStore) -> list[FailureCount]:
    return sorted(await store.failures(), key=lambda one: (one.fingerprint or "", one.handler))


def _difference(expected: Any, found: Any) -> str:
    """The first difference between two answers, as short as possible."""
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for mine, other in zip(expected, found, strict=True):
            if mine != other:
                return _difference(mine, other)
    if isinstance(expected, msgspec.Struct) and type(expected) is type(found):
        pairs = {field: (getattr(expected, field), getattr(found, field)) for field in expected.__struct_fields__}
        told = [f"  {field}: {one!r} became {two!r}" for field, (one, two) in pairs.items() if one != two]
        return f"{expected}\n" + "\n".join(told)
    return f"  expected {expected!r}\n  found    {found!r}"


async def _answer(what: Act, store: FullStore) -> Any:
    try:
        answer = await what(store)
    except PitbossError as error:
        return type(error), str(error)
    if isinstance(answer, Renewal):
        return msgspec.structs.replace(answer, cancels=tuple(sorted(answer.cancels)))
    return answer


async def _ledger(store: FullStore) -> list[Task]:
    tasks: list[Task] = []
    after = None
    while True:
        page = await store.find(EVERYTHING, limit=500, after=after, oldest_first=True)
        tasks += page.tasks
        after = page.next
        if after is None:
            return tasks


async def _members(store: FullStore, pools: list[ResourcePool]) -> list[Any]:
    return [await store.resources(pool.name) for pool in pools]


async def _partitions(store: FullStore, queues: list[Queue]) -> list[Any]:
    return [await store.partitions(queue.name) for queue in queues if queue.partitions is not None]


async def _histories(store: FullStore, tasks: list[Task]) -> list[Any]:
    return [await store.attempts(task.id) for task in tasks]
