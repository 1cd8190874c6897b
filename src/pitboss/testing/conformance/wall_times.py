"""Times that people gave follow the wall clock; everything else follows the steady one."""

from pitboss.model.duration import SECOND
from pitboss.model.outcome import Transition
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench

_SIX_MINUTES = 360 * SECOND


class WallTimes:
    async def test_a_task_at_a_time_falls_due_when_the_wall_clock_shows_it(self, bench: Bench) -> None:
        """The clock is set ahead past the time of one task, and not past that of another."""
        soon = await bench.add(run_at=bench.now + _SIX_MINUTES, queue="a")
        later = await bench.add(run_at=bench.now + 3 * _SIX_MINUTES, queue="b")
        bench.clock.set_wall("12m")
        assert (await bench.take()).id == soon.id
        assert await bench.claim() == []
        assert (await bench.task(later.id)).run_at == bench.now + _SIX_MINUTES
        bench.clock.advance("6m")
        assert (await bench.take()).id == later.id

    async def test_a_clock_set_back_makes_them_wait_longer(self, bench: Bench) -> None:
        task = await bench.add(run_at=bench.now + 60 * SECOND)
        bench.clock.set_wall("10m", back=True)
        bench.clock.advance("9m")
        assert await bench.claim() == []
        bench.clock.advance("2m")
        assert (await bench.take()).id == task.id

    async def test_delays_do_not_notice_that_the_clock_was_set(self, bench: Bench) -> None:
        await bench.add(delay=60 * SECOND)
        again = await bench.started(run_at=bench.now, queue="again")
        snoozed = Transition(state=State.SCHEDULED, outcome="snoozed", delay=60 * SECOND)
        assert (await bench.write(again, snoozed)).applied
        bench.clock.set_wall("1h")
        assert await bench.claim(2) == []
        bench.clock.set_wall("2h", back=True)
        bench.clock.advance("61s")
        assert len(await bench.claim(2)) == 2

    async def test_after_a_step_new_times_are_by_the_new_clock(self, bench: Bench) -> None:
        bench.clock.set_wall("1h")
        await bench.store.reclaim()
        task = await bench.add(run_at=bench.clock.wall() + 60 * SECOND)
        assert task.run_at == bench.now + 60 * SECOND
        other = await bench.open_engine()
        bench.clock.advance("61s")
        bench.store = other
        assert (await bench.take()).id == task.id

    async def test_an_expiry_at_a_time_follows_the_wall_clock(self, bench: Bench) -> None:
        task = await bench.add(expires_at=bench.now + _SIX_MINUTES)
        relative = await bench.add(expires_in=_SIX_MINUTES)
        bench.clock.set_wall("2h")
        assert (await bench.take()).id == relative.id
        assert await bench.claim() == []
        assert (await bench.task(task.id)).state is State.CANCELLED

    async def test_a_small_correction_of_the_wall_clock_changes_nothing(self, bench: Bench) -> None:
        task = await bench.add(run_at=bench.now + _SIX_MINUTES)
        bench.clock.set_wall("900ms")
        await bench.store.reclaim()
        assert (await bench.task(task.id)).run_at == task.run_at
