"""Old figures are added up into longer buckets, and nothing is lost or counted twice."""

from collections.abc import Sequence

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.model.errors import NotLeader
from pitboss.model.figures import HOUR, MINUTE, RAW, SPANS, HandlerFigures, Sample, SampleKey, bucket
from pitboss.model.retention import Retention
from pitboss.model.session import SessionInfo
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock
from pitboss.upkeep.roll_up import join_managers, roll_up

KEPT = Retention(figures_10s=2 * MINUTE, figures_1m=3 * HOUR, figures_1h=10 * HOUR)
FOREVER = 2**62


class Store(MemoryEngine):
    def __init__(self) -> None:
        self.time = FakeClock()
        super().__init__(clock=self.time)
        self.numbers = iter(range(10**6))

    async def lead(self) -> int:
        session = await self.open_session(SessionInfo(host="h", ttl=1000 * HOUR))
        return (await self.campaign(session.number)).term

    async def live(self, seconds: int, *, managers: int = 2) -> None:
        """Every ten seconds a task, and a sample of each manager."""
        for _ in range(seconds // 10):
            await self.put([NewTask(id=f"t{next(self.numbers)}", handler="h")])
            self.time.advance(10)
            at = bucket(self.time.now() - RAW // 2, RAW)
            measured = [HandlerFigures("default", "h", 1)]
            await self.add_samples(
                [Sample(at=at, session=one, covered=10, handlers=measured) for one in range(1, managers + 1)]
            )

    async def sums(self) -> tuple[int, int, int]:
        """Tasks, starts and seconds."""
        flows = await self.flows(0, FOREVER, span=RAW)
        samples = [one for span in SPANS for one in await self.samples(0, FOREVER, span=span)]
        seconds = {(one.span, one.at): one.covered for one in samples}
        started = sum(figures.started for one in samples for figures in one.handlers)
        return sum(one.put for one in flows), started, sum(seconds.values())


async def test_nothing_is_lost() -> None:
    store = Store()
    term = await store.lead()
    await store.live(3 * 3600)
    before = await store.sums()
    assert before == (1080, 2160, 10800)
    for _ in range(3):
        await roll_up(store, KEPT, store.time, term=term)
        assert await store.sums() == before
    lengths = {span: len(await store.samples(0, FOREVER, span=span)) for span in SPANS}
    assert lengths == {RAW: 2 * 12, MINUTE: 178, HOUR: 0}
    store.time.advance(4 * 3600)
    await roll_up(store, KEPT, store.time, term=term)
    assert await store.sums() == before
    assert [one.at % HOUR for one in await store.samples(0, FOREVER, span=HOUR)] == [0, 0, 0]


async def test_a_bucket_that_still_grows_stays() -> None:
    store = Store()
    term = await store.lead()
    await store.live(150)
    await roll_up(store, KEPT, store.time, term=term)
    assert await store.samples(0, FOREVER, span=MINUTE) == []


async def test_what_was_written_late_is_added() -> None:
    store = Store()
    term = await store.lead()
    await store.live(600)
    await roll_up(store, KEPT, store.time, term=term)
    tasks, started, seconds = await store.sums()
    first = (await store.samples(0, FOREVER, span=MINUTE))[0].at
    await store.add_samples([Sample(at=first, session=9, covered=10, handlers=[HandlerFigures("default", "h", 5)])])
    await roll_up(store, KEPT, store.time, term=term)
    # That minute was covered already.
    assert await store.sums() == (tasks, started + 5, seconds)


async def test_figures_that_are_too_old_are_deleted() -> None:
    store = Store()
    term = await store.lead()
    await store.live(3600)
    store.time.advance(20 * 3600)
    await roll_up(store, KEPT, store.time, term=term)
    assert await store.sums() == (0, 0, 0)


async def test_figures_may_be_kept_for_ever() -> None:
    store = Store()
    term = await store.lead()
    await store.live(600)
    store.time.advance(1000 * 3600 - 700)
    kept = Retention(figures_10s=None, figures_1m=None, figures_1h=None)
    before = await store.sums()
    await roll_up(store, kept, store.time, term=term)
    assert len(await store.samples(0, FOREVER, span=RAW)) == 120
    assert await store.sums() == before


async def test_a_leader_of_yesterday_changes_nothing() -> None:
    store = Store()
    term = await store.lead()
    await store.live(600)
    before = await store.sums()
    with pytest.raises(NotLeader):
        await roll_up(store, KEPT, store.time, term=term + 1)
    assert await store.sums() == before
    assert await store.samples(0, FOREVER, span=MINUTE) == []


async def test_another_leader_that_was_faster_makes_this_one_read_again() -> None:
    class Overtaken(Store):
        """Between the read and the write of this leader, another one rolls up the same samples."""

        tries = 0

        async def replace_samples(self, gone: Sequence[SampleKey], made: Sequence[Sample], *, term: int) -> bool:
            self.tries += 1
            if self.tries == 1:
                await super().replace_samples(gone, made, term=term)
            return await super().replace_samples(gone, made, term=term)

    store = Overtaken()
    term = await store.lead()
    await store.live(600)
    before = await store.sums()
    for _ in range(2):
        await roll_up(store, KEPT, store.time, term=term)
    assert await store.sums() == before


async def test_managers_are_added_up_when_their_samples_are_settled() -> None:
    store = Store()
    term = await store.lead()
    await store.live(1800, managers=40)
    before = await store.sums()
    at = await join_managers(store, 0, store.time.now(), term=term)
    assert at == bucket(store.time.now() - 20 * MINUTE, RAW)
    assert await store.sums() == before
    samples = await store.samples(0, FOREVER, span=RAW)
    assert [one.session for one in samples if one.at < at] == [0] * 60
    assert len([one for one in samples if one.at >= at]) == 120 * 40
    # It goes on where it was, and the sums stay.
    store.time.advance(60)
    assert await join_managers(store, at, store.time.now(), term=term) == at + MINUTE
    assert await store.sums() == before
    await roll_up(store, KEPT, store.time, term=term)
    assert await store.sums() == before


async def test_more_managers_than_are_read_at_once_are_added_up_too() -> None:
    store = Store()
    term = await store.lead()
    await store.live(30, managers=1100)
    store.time.advance(1800)
    before = await store.sums()
    await join_managers(store, 0, store.time.now(), term=term)
    assert await store.sums() == before
    assert [one.session for one in await store.samples(0, FOREVER, span=RAW)] == [0, 0, 0]


async def test_another_leader_that_was_faster_stops_the_adding_up() -> None:
    class Overtaken(Store):
        async def replace_samples(self, gone: Sequence[SampleKey], made: Sequence[Sample], *, term: int) -> bool:
            await super().replace_samples(gone, made, term=term)
            return await super().replace_samples(gone, made, term=term)

    store = Overtaken()
    term = await store.lead()
    await store.live(60)
    store.time.advance(1800)
    before = await store.sums()
    assert await join_managers(store, 0, store.time.now(), term=term) == 0
    assert await store.sums() == before
