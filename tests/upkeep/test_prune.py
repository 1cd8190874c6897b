"""Which finished tasks and events are kept how long."""

from random import Random

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.model.access import AuditEntry
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.happening import Kind, happening
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.retention import Retention
from pitboss.model.session import SessionInfo
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock
from pitboss.upkeep.prune import prune
from pitboss.upkeep.prune_logs import prune_events, prune_happenings

KEPT = Retention(completed=None, cancelled=100 * SECOND, failed=None)
QUEUES = {
    "short": QueueSettings(retention={State.CANCELLED: 10 * SECOND}),
    "brief": QueueSettings(retention={State.CANCELLED: 10 * SECOND}),
    "long": QueueSettings(retention={State.CANCELLED: 1000 * SECOND}),
    "other": QueueSettings(retention={State.FAILED: SECOND}),
}


class Store(MemoryEngine):
    def __init__(self) -> None:
        self.time = FakeClock()
        super().__init__(clock=self.time)
        self.new_id = IdMaker(self.time.now, Random(1).getrandbits)

    async def cancelled_in(self, *queues: str) -> None:
        await self.register([HandlerInfo(name="job")])
        await self.put([NewTask(id=self.new_id(), handler="job", queue=queue) for queue in queues])
        await self.cancel(EVERYTHING)

    async def left(self) -> set[str]:
        return {task.queue for task in (await self.find(EVERYTHING)).tasks}


@pytest.fixture
def store() -> Store:
    return Store()


async def test_a_queue_may_keep_its_tasks_for_another_time(store: Store) -> None:
    await store.declare(Declared(app="a", queues=QUEUES), session=1)
    await store.cancelled_in("default", "other", *QUEUES)
    for seconds, gone in ((11, {"short", "brief"}), (90, {"default", "other"}), (900, {"long"})):
        store.time.advance(seconds)
        there = await store.left()
        await prune(store, KEPT, store.time)
        assert there - await store.left() == gone


async def test_a_queue_may_prune_what_others_keep_for_ever(store: Store) -> None:
    await store.declare(Declared(app="a", queues=QUEUES), session=1)
    await store.cancelled_in("default", "short")
    store.time.advance(10_000)
    await prune(store, Retention(completed=None, cancelled=None, failed=None), store.time)
    assert await store.left() == {"default"}


async def test_without_declarations_there_is_one_call_per_state(store: Store) -> None:
    await store.cancelled_in("default", "other")
    store.time.advance(101)
    assert await prune(store, KEPT, store.time) == 2
    assert (await store.count(by(state="cancelled"))).number == 0


async def test_old_events_are_forgotten(store: Store) -> None:
    for age in (2500, 10):
        await store.publish([NewEvent(id=store.new_id(), name="a") for _ in range(age)])
        store.time.advance(60)
    assert await prune_events(store, Retention(events=90 * SECOND), store.time) == 2500
    assert len(await store.events(limit=10_000)) == 10
    store.time.advance(10**6)
    assert await prune_events(store, Retention(events=None), store.time) == 0


async def test_the_logs_are_kept_as_long_as_the_settings_say(store: Store) -> None:
    session = await store.open_session(SessionInfo(host="here", ttl=1000 * SECOND))
    term = (await store.campaign(session.number)).term
    for age in (0, 50, 50):
        store.time.advance(age)
        made = happening(store.new_id(), store.time.now(), Kind.ALERT, "queue a", "late")
        await store.record_happenings([made])
        await store.audited(AuditEntry(id=store.new_id(), who="ann", act=f"{age}")).wish("a", "1")
    kept = Retention(happenings=60 * SECOND, audit=None)
    assert await prune_happenings(store, kept, store.time, term=term) == 1
    assert (len(await store.happenings()), len(await store.audit_log())) == (2, 3)
    assert await prune_happenings(store, Retention(happenings=None, audit=60 * SECOND), store.time, term=term) == 1
    assert (len(await store.happenings()), len(await store.audit_log())) == (2, 2)
