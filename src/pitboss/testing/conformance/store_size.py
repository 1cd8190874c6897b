"""A store that has reached its limit: it refuses what is new, and all that runs goes on."""

from random import Random

import pytest

from pitboss.model.batch import NewBatch
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader, StoreFull
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.schedule import ScheduleSpec, firing
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench

REASON = "the store has 2.0 GB, and max_store_size is 1.9 GB"
SIGNUP = Declared(app="a", subscriptions=(Subscription(handler="job", pattern="user.signup"),))


class StoreLimits:
    async def test_a_new_store_refuses_nothing(self, bench: Bench) -> None:
        usage = await bench.store.usage()
        assert usage.refusing is None
        assert usage.size >= 0
        assert usage.free is None or usage.free > 0

    async def test_what_is_stored_counts(self, bench: Bench) -> None:
        before = await bench.store.usage()
        # Text that cannot be compressed.
        texts = [Random(number).randbytes(5000).hex() for number in range(200)]
        await bench.put(*(bench.new(params=f'{{"text":"{text}"}}') for text in texts))
        assert (await bench.store.usage()).size > before.size + 1_000_000

    async def test_a_put_is_refused_as_a_whole(self, bench: Bench) -> None:
        await _refuse(bench)
        assert (await bench.store.usage()).refusing == REASON
        with pytest.raises(StoreFull) as refused:
            await bench.put(bench.new(), bench.new(queue="other"))
        assert refused.value.reason == REASON
        assert await bench.every_task() == []

    async def test_another_process_refuses_too_and_at_once(self, bench: Bench) -> None:
        other = await bench.open_engine()
        await other.put([bench.new()])
        await _refuse(bench)
        with pytest.raises(StoreFull):
            await other.put([bench.new()])
        await _refuse(bench, None)
        await other.put([bench.new()])

    async def test_a_new_batch_is_refused(self, bench: Bench) -> None:
        batch = await bench.create(bench.new())
        await _refuse(bench)
        with pytest.raises(StoreFull):
            await bench.create(bench.new())
        again = await bench.store.create_batch(NewBatch(id=batch.id), [])
        assert again.id == batch.id
        assert len(await bench.store.batches()) == 1

    async def test_publishing_is_refused(self, bench: Bench) -> None:
        await bench.store.declare(SIGNUP, session=bench.me.number)
        await _refuse(bench)
        with pytest.raises(StoreFull):
            await bench.store.publish([NewEvent(id=bench.ids(), name="user.signup")])
        assert await bench.store.events() == []
        assert await bench.every_task() == []

    async def test_what_runs_goes_on_with_its_follow_ups(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.add()
        await _refuse(bench)
        follow_up = bench.new()
        await bench.complete(claim, None, follow_up)
        assert await bench.states(follow_up) == [State.PENDING]
        assert len(await bench.claim(5)) == 2

    async def test_schedules_go_on(self, bench: Bench) -> None:
        await bench.store.put_schedule(ScheduleSpec(name="a", handler="job", every=60 * SECOND))
        await _refuse(bench)
        bench.clock.advance(60)
        (due,) = (await bench.store.due_schedules()).schedules
        made = firing(due, None, bench.clock.wall(), {})
        assert made is not None
        assert await bench.store.fire([made], term=await _term(bench)) == [True]
        assert len(await bench.every_task()) == 1

    async def test_it_ends_when_the_reason_is_withdrawn(self, bench: Bench) -> None:
        await _refuse(bench)
        await _refuse(bench, None)
        assert (await bench.store.usage()).refusing is None
        await bench.add()

    async def test_only_the_leader_decides(self, bench: Bench) -> None:
        term = await _term(bench)
        with pytest.raises(NotLeader):
            await bench.store.refuse_new(REASON, term=term + 1)
        await bench.store.resign(bench.me.number)
        with pytest.raises(NotLeader):
            await bench.store.refuse_new(REASON, term=term)
        await bench.add()


async def _term(bench: Bench) -> int:
    return (await bench.store.campaign(bench.me.number)).term


async def _refuse(bench: Bench, reason: str | None = REASON) -> None:
    await bench.store.refuse_new(reason, term=await _term(bench))


__all__ = ["StoreLimits"]
