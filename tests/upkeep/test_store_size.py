"""A store that grows too large, or whose disk fills: new tasks are refused, and taken again with some distance."""

from pathlib import Path
from random import Random

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.sqlite import SqliteEngine
from pitboss.http.answers import failure, of_pitboss
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader, StoreFull
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import IdMaker
from pitboss.model.session import SessionInfo
from pitboss.model.task import NewTask
from pitboss.model.usage import StoreUsage, refusal
from pitboss.testing.clock import FakeClock
from pitboss.upkeep.store_size import watch_size

MB = 1_000_000


class Store(MemoryEngine):
    """Its size and the space of its disk are what the test says."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.size, self.free = 0, 1000 * MB
        self.writes = 0
        self.said: list[str] = []

    async def usage(self) -> StoreUsage:
        return StoreUsage(size=self.size, free=self.free, refusing=self.tables.refusing)

    async def refuse_new(self, reason: str | None, *, term: int) -> None:
        self.writes += 1
        await super().refuse_new(reason, term=term)

    async def watched(self, ahead: int = 0, max_size: int | None = 100 * MB, min_free: int | None = 100 * MB) -> bool:
        """Whether it refuses after the leader has looked, under a term that is this far ahead."""
        if not self.tables.sessions:
            await self.open_session(SessionInfo(host="here", ttl=1000 * SECOND))
        term = (await self.campaign(1)).term + ahead
        await watch_size(self, max_size=max_size, min_free=min_free, term=term, warn=self.said.append)
        return self.tables.refusing is not None


@pytest.fixture
def store() -> Store:
    return Store()


async def test_it_refuses_above_the_limit_and_takes_again_below_95_percent(store: Store) -> None:
    seen = []
    for size in (100, 101, 100, 96, 95, 96, 100, 101):
        store.size = size * MB
        seen.append(await store.watched())
    assert seen == [False, True, True, True, False, False, False, True]
    assert store.writes == 3
    assert "max_store_size is" in store.said[0]
    assert store.said[1] == "the store takes new tasks again"


async def test_it_refuses_while_its_disk_is_nearly_full(store: Store) -> None:
    seen = []
    for free in (100, 99, 100, 105, 106, 100):
        store.free = free * MB
        seen.append(await store.watched())
    assert seen == [False, True, True, True, False, False]
    assert "min_free_disk is" in store.said[0]


async def test_without_limits_nothing_is_refused(store: Store) -> None:
    store.size, store.free = 10**15, 0
    assert await store.watched()
    assert not await store.watched(max_size=None, min_free=None)
    assert not await store.watched(max_size=None, min_free=0)


async def test_an_unknown_disk_is_not_judged() -> None:
    assert refusal(StoreUsage(size=0, free=None), max_size=None, min_free=100) is None


async def test_a_leader_of_another_term_changes_nothing(store: Store) -> None:
    store.size = 200 * MB
    with pytest.raises(NotLeader):
        await store.watched(ahead=1)
    assert (await store.usage()).refusing is None
    assert store.said == []


async def test_a_file_counts_without_what_was_deleted(tmp_path: Path) -> None:
    """It does not shrink, but its pages are used again."""
    clock = FakeClock()
    new_id = IdMaker(clock.now, Random(1).getrandbits)
    store = SqliteEngine(tmp_path / "store.db", clock=clock)
    await store.open()
    empty = await store.usage()
    await store.put([NewTask(id=new_id(), handler="job", params=f'"{"x" * 10_000}"') for _ in range(500)])
    full = await store.usage()
    assert full.size > empty.size + 4 * MB
    await store.cancel(EVERYTHING)
    await store.prune(EVERYTHING)
    pruned = await store.usage()
    assert pruned.size < empty.size + MB
    await store.close()


def test_the_api_asks_clients_to_come_back() -> None:
    reply = failure(of_pitboss(StoreFull("its disk has 1 MB left")), 0)
    assert reply.code == 503
    assert (b"retry-after", b"1") in reply.headers
    assert b"1 MB left" in reply.body
