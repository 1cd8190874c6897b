"""Checks a recorded history: did the store keep its promises, whatever went wrong meanwhile?

    history = History()
    engine = recorded(store, history, clock=clock)
    ...  # put, claim, settle, kill, heal, drain
    assert not check(history, await final(store))

The checker reports only what the history proves. A call without an answer may have happened at any time after it began;
calls that overlap may have happened in either order. Every client of the store must be recorded.
"""

from itertools import chain

from pitboss.engines.batch_protocol import Batches
from pitboss.engines.capabilities import ResourceStore
from pitboss.engines.protocol import Store
from pitboss.model.batch import Batch
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import TaskId
from pitboss.model.resource import Resource
from pitboss.model.task import Attempt, Task
from pitboss.testing.checker.batches import check_batches
from pitboss.testing.checker.claims import check_claims
from pitboss.testing.checker.creations import check_creations
from pitboss.testing.checker.endings import check_endings
from pitboss.testing.checker.evidence import Evidence, Final
from pitboss.testing.checker.keys import check_keys
from pitboss.testing.checker.leading import check_leading
from pitboss.testing.checker.members import check_members
from pitboss.testing.checker.owners import check_owners
from pitboss.testing.checker.queues import check_queues
from pitboss.testing.checker.violation import Violation
from pitboss.testing.history import History

_PAGE = 1000
_ALL = 100_000


def check(history: History, final: Final) -> list[Violation]:
    """Every broken promise that the history and the final state of the store prove."""
    seen = Evidence(history, final)
    checks = (
        check_creations,
        check_claims,
        check_endings,
        check_keys,
        check_queues,
        check_owners,
        check_leading,
        check_members,
        check_batches,
    )
    return list(chain.from_iterable(one(seen) for one in checks))


async def final(store: Store) -> Final:
    """The whole store as it is now. No other call should be running."""
    tasks = await _all_tasks(store)
    attempts: dict[TaskId, tuple[Attempt, ...]] = {task.id: tuple(await store.attempts(task.id)) for task in tasks}
    return Final(
        tasks=tuple(tasks),
        attempts=attempts,
        queues=tuple(await store.queues()),
        resources=tuple(await _all_members(store)),
        batches=tuple(await _all_batches(store)),
    )


async def _all_members(store: object) -> list[Resource]:
    """An engine without pools has no members. A recorder has every verb, so ask the engine behind it."""
    if not isinstance(getattr(store, "engine", store), ResourceStore) or not isinstance(store, ResourceStore):
        return []
    return [member for pool in await store.resource_pools() for member in await store.resources(pool.name)]


async def _all_batches(store: object) -> list[Batch]:
    if not isinstance(getattr(store, "engine", store), Batches) or not isinstance(store, Batches):
        return []
    return await store.batches(limit=_ALL)


async def _all_tasks(store: Store) -> list[Task]:
    tasks: list[Task] = []
    after: str | None = None
    while True:
        page = await store.find(EVERYTHING, limit=_PAGE, after=after, oldest_first=True)
        tasks += page.tasks
        after = page.next
        if after is None:
            return tasks


__all__ = ["Final", "Violation", "check", "final"]
