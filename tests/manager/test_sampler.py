"""The samples that a manager writes: when, of what, and what becomes of them while the store is away."""

from collections.abc import Sequence
from typing import Any

from pitboss.engines.memory import MemoryEngine
from pitboss.manager.sampler import Sampler
from pitboss.model.duration import SECOND
from pitboss.model.errors import StoreUnavailable
from pitboss.model.facts import WorkerCrashed, WorkerStarted
from pitboss.model.figures import RAW, Sample, bucket
from pitboss.model.pool import PoolSpec
from pitboss.model.resource import NewResource, PoolRules, ResourceChange
from pitboss.testing.clock import FakeClock

TEN = RAW // SECOND


class Pool:
    """A worker pool without workers: its one slot waits for its restart."""

    spec = PoolSpec(name="default", min_workers=1, max_workers=1)

    class Slot:
        workers: tuple[Any, ...] = ()
        state = "restarting"

    def __init__(self) -> None:
        self.slot = self.Slot()

    def every_slot(self) -> list[Slot]:
        return [self.slot]


class Store(MemoryEngine):
    """`away`: it takes no samples."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.away = False

    async def add_samples(self, samples: Sequence[Sample]) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")
        await super().add_samples(samples)

    async def stored(self) -> list[Sample]:
        return await self.samples(0, 2**62, span=RAW)


class Scene:
    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.store = Store(self.clock)
        self.session: int | None = 1
        self.term: int | None = None
        pool: Any = Pool()
        self.slot = pool.slot
        router: Any = self
        self.sampler = Sampler(self.store, self.clock, lambda: [pool], router, lambda: self.term)

    async def pass_on(self, seconds: float = TEN) -> None:
        """Time passes until just behind the end of a bucket, as when `Sampler.run` wakes up."""
        self.clock.advance(seconds)
        await self.sampler.sample(self.clock.now() - RAW // 2)


async def test_a_sample_stands_for_the_ten_seconds_before_it() -> None:
    scene = Scene()
    begun = bucket(scene.clock.now(), RAW)
    await scene.pass_on()
    await scene.pass_on()
    assert [(one.at, one.session, one.covered) for one in await scene.store.stored()] == [
        (begun, 1, TEN),
        (begun + RAW, 1, TEN),
    ]


async def test_a_late_look_takes_no_second_sample_of_one_bucket() -> None:
    scene = Scene()
    await scene.pass_on(TEN + 6)
    await scene.pass_on(4)
    assert len(await scene.store.stored()) == 1


async def test_the_last_sample_covers_a_part() -> None:
    scene = Scene()
    await scene.pass_on()
    scene.clock.advance(3)
    await scene.sampler.finish(hurry=False)
    assert [one.covered for one in await scene.store.stored()] == [TEN, 3]


async def test_a_manager_that_starts_in_the_middle_says_which_part_it_covers() -> None:
    clock = FakeClock()
    clock.advance(-clock.now() % RAW / SECOND + 4)
    scene = Scene(clock)
    await scene.pass_on(6)
    await scene.pass_on()
    assert [(one.covered, one.seen) for one in await scene.store.stored()] == [(6, [(4, TEN)]), (TEN, [])]


async def test_workers_are_told_by_state_with_what_happened_to_them() -> None:
    scene = Scene()
    for worker in ("default-1", "default-2", "default-1"):
        scene.sampler.note(WorkerStarted(worker=worker))
    scene.sampler.note(WorkerCrashed(worker="default-1"))
    await scene.pass_on()
    await scene.pass_on()
    first, second = [one.pools["default"] for one in await scene.store.stored()]
    assert first.workers == {"restarting": TEN}
    assert (first.restarts, first.crashes) == (1, 1)
    assert (second.restarts, second.crashes) == (0, 0)


async def test_only_the_leader_tells_of_members() -> None:
    scene = Scene()
    await scene.store.declare_pool("proxies", PoolRules())
    await scene.store.add_resources("proxies", [NewResource(name=name) for name in ("a", "b", "c")])
    await scene.store.change_resources("proxies", ["a"], ResourceChange(enabled=False))
    await scene.pass_on()
    scene.term = 1
    await scene.pass_on()
    first, second = await scene.store.stored()
    assert (first.led, first.resources) == (0, {})
    assert second.led == TEN
    assert second.resources["proxies"].members == {"ready": 2 * TEN, "disabled": TEN}
    assert second.resources["proxies"].usable == 2 * TEN


async def test_samples_wait_while_the_store_is_away_but_not_without_end() -> None:
    scene = Scene()
    scene.store.away = True
    for _ in range(100):
        await scene.pass_on()
    # The session is lost meanwhile: its number stays that of the samples.
    scene.session = None
    await scene.pass_on()
    assert await scene.store.stored() == []
    scene.store.away = False
    await scene.pass_on()
    written = await scene.store.stored()
    assert len(written) == 90
    assert written[-1].at == bucket(scene.clock.now(), RAW) - RAW


async def test_without_a_session_there_is_no_sample() -> None:
    scene = Scene()
    scene.session = None
    await scene.pass_on()
    assert await scene.store.stored() == []


class Worker:
    """A process that has done that much."""

    name, pid, state, memory = "default-1", 7, "processing", 50_000_000

    def __init__(self) -> None:
        self.succeeded = self.failed = self.busy = 0


async def test_a_sample_has_what_each_worker_did_since_the_last_one() -> None:
    scene, worker = Scene(), Worker()
    scene.slot.workers = (worker,)
    worker.succeeded, worker.failed, worker.busy = 5, 1, 12 * SECOND
    await scene.pass_on()
    worker.succeeded, worker.busy = 8, 18 * SECOND
    await scene.pass_on()
    await scene.pass_on()
    told = [one.workers[0] for one in await scene.store.stored()]
    assert [(one.succeeded, one.failed, one.busy // SECOND) for one in told] == [(5, 1, 12), (3, 0, 6), (0, 0, 0)]
    assert {(one.name, one.pool, one.alive, one.memory) for one in told} == {("default-1", "default", TEN, 500)}
    assert told[1].last > told[0].last > told[2].last == 0


async def test_a_successor_is_counted_from_its_beginning() -> None:
    scene, worker, successor = Scene(), Worker(), Worker()
    scene.slot.workers = (worker,)
    worker.succeeded = 5
    await scene.pass_on()
    successor.pid, successor.succeeded = 8, 2
    scene.slot.workers = (successor,)
    await scene.pass_on()
    assert [one.workers[0].succeeded for one in await scene.store.stored()] == [5, 2]
