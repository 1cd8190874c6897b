"""Upkeep in virtual time: every manager reclaims, only the leader prunes, and a replaced leader does not."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from random import Random

from pitboss.client.batch_handle import act_in_portions
from pitboss.engines.memory import MemoryEngine
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.batch import Cancel, NewBatch
from pitboss.model.duration import SECOND, Moment
from pitboss.model.filter import EVERYTHING, Filter, by
from pitboss.model.ids import IdMaker
from pitboss.model.queue import Changed, HandlerInfo
from pitboss.model.retention import Retention
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.all_duties import all_duties
from pitboss.upkeep.duties import run_duties
from pitboss.upkeep.prune import PRUNE_SECONDS
from pitboss.upkeep.sweep import RECLAIM_SECONDS

# One state only, so that a round of pruning is one call.
SHORT = Retention(completed=None, cancelled=SECOND, failed=None)
LONG = 36_000 * SECOND


class Plan:
    retention = SHORT
    max_store_size: int | None = None
    min_free_disk: int | None = None
    alerts: AlertsSpec | None = None


class Store(MemoryEngine):
    """Records the terms under which it was asked to prune."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.terms: list[int | None] = []
        self._ids = IdMaker(clock.now, Random(1).getrandbits)

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        self.terms.append(term)
        return await super().prune(wanted, before=before, limit=limit, term=term)

    def new_id(self) -> str:
        return self._ids()

    async def add(self) -> str:
        await self.register([HandlerInfo(name="job")])
        (placed,) = await self.put([NewTask(id=self._ids(), handler="job")])
        return placed.id

    async def add_finished(self) -> None:
        await self.cancel(by(id=await self.add()))

    async def left(self) -> int:
        return (await self.count(EVERYTHING)).number

    async def session(self) -> int:
        return (await self.open_session(SessionInfo(host="here", handlers=("job",), ttl=LONG))).number


def play(scene: Callable[[Store], Awaitable[None]], *terms: Callable[[], int | None]) -> None:
    """One manager for each of the terms, on one store."""

    def upkeep(store: Store, term: Callable[[], int | None]) -> Coroutine[None, None, None]:
        said: list[str] = []
        return run_duties(all_duties(store, Plan, clock=clock, warn=said.append), term=term, warn=said.append)

    async def main() -> None:
        store = Store(clock)
        sweepers = [asyncio.create_task(upkeep(store, term)) for term in terms]
        try:
            await scene(store)
            assert not any(sweeper.done() for sweeper in sweepers)
        finally:
            for sweeper in sweepers:
                sweeper.cancel()
                with suppress(asyncio.CancelledError):
                    await sweeper

    clock = FakeClock()
    run_virtual(main(), clock=clock, limit="1h")


def test_only_the_leader_prunes_and_under_its_term() -> None:
    async def scene(store: Store) -> None:
        await store.add_finished()
        await store.campaign(await store.session())
        await asyncio.sleep(2.5 * PRUNE_SECONDS)
        assert store.terms == [1, 1]
        assert await store.left() == 0

    play(scene, lambda: 1, lambda: None)


def test_a_new_leader_prunes_at_once_if_it_is_time() -> None:
    terms: list[int | None] = [None]

    async def scene(store: Store) -> None:
        await store.add_finished()
        await asyncio.sleep(2 * PRUNE_SECONDS)
        assert store.terms == []
        terms[0] = (await store.campaign(await store.session())).term
        await asyncio.sleep(2 * RECLAIM_SECONDS)
        assert store.terms == [1]

    play(scene, lambda: terms[0])


def test_a_leader_of_an_old_term_deletes_nothing_and_sweeps_on() -> None:
    terms = [1]

    async def scene(store: Store) -> None:
        await store.add_finished()
        session = await store.session()
        await store.campaign(session)
        await store.resign(session)
        await store.campaign(session)
        await asyncio.sleep(1.5 * PRUNE_SECONDS)
        assert store.terms == [1]
        assert await store.left() == 1
        terms[0] = 2
        await asyncio.sleep(PRUNE_SECONDS)
        assert store.terms == [1, 2]
        assert await store.left() == 0

    play(scene, lambda: terms[0])


def test_every_manager_reclaims() -> None:
    async def scene(store: Store) -> None:
        task = await store.add()
        session = await store.session()
        (claim,) = (await store.claim(ClaimRequest(session=session, slots=(Slot(free=1),)))).claims
        assert claim.id == task
        await store.end_session(session)
        await asyncio.sleep(2 * RECLAIM_SECONDS)
        (found,) = await store.get([task])
        assert found is not None
        assert found.state is State.PENDING

    play(scene, lambda: None)


def test_batches_are_deleted_with_their_items_when_their_time_is_over() -> None:
    """Whatever their size; batches that have not ended, or ended just now, stay."""

    async def scene(store: Store) -> None:
        await store.register([HandlerInfo(name="job")])
        for name, size in (("old", 2500), ("later", 3), ("unfinished", 3)):
            await store.create_batch(
                NewBatch(id=name, lane=name), [NewTask(id=store.new_id(), handler="job") for _ in range(size)]
            )
        await store.campaign(await store.session())
        await act_in_portions(store, "old", Cancel("test"))
        await asyncio.sleep(PRUNE_SECONDS - 1)
        await act_in_portions(store, "later", Cancel("test"))
        await asyncio.sleep(1.5)
        assert [batch.id for batch in await store.batches()] == ["unfinished", "later"]
        await asyncio.sleep(PRUNE_SECONDS + 1)
        assert [batch.id for batch in await store.batches()] == ["unfinished"]
        assert await store.left() == 3

    play(scene, lambda: 1)
