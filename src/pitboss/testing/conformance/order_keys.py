"""Order keys: tasks with one key run one at a time, in the order in which they were put."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.outcome import Cancelled, Crashed, Failed, Outcome, Released, Snooze, TimedOut
from pitboss.model.policy import Policy
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.testing.conformance.bench import BROKEN, Bench

ONCE = Policy(max_attempts=1)
LAST: dict[str, Outcome] = {
    "failed": Failed(BROKEN),
    "timed out": TimedOut(BROKEN),
    "cancelled": Cancelled("enough"),
}
AGAIN: dict[str, Outcome] = {
    "failed": Failed(BROKEN),
    "snoozed": Snooze(5 * SECOND),
    "released": Released(),
    "crashed": Crashed(alone=True),
}


class OrderKeys:
    async def test_the_first_waits_and_the_others_are_held(self, bench: Bench) -> None:
        first, second, third = await _line(bench)
        assert (first.state, first.order_key) == (State.PENDING, "k")
        assert (second.state, second.reason, third.state) == (State.HELD, "order", State.HELD)
        assert [claim.id for claim in await bench.claim(5)] == [first.id]

    async def test_tasks_of_one_call_stand_in_line(self, bench: Bench) -> None:
        placed = await bench.put(*(bench.new(order_key="k") for _ in range(3)), bench.new(order_key="l"))
        assert [one.state for one in placed] == [State.PENDING, State.HELD, State.HELD, State.PENDING]
        assert [one.reason for one in placed] == [None, "order", "order", None]

    async def test_they_run_one_after_the_other(self, bench: Bench) -> None:
        line = await _line(bench)
        for task in line:
            (claim,) = await bench.claim(5)
            assert claim.id == task.id
            await bench.complete(claim)
        assert await bench.claim(5) == []
        assert (await bench.add(order_key="k")).state is State.PENDING

    @pytest.mark.parametrize("end", LAST)
    async def test_any_end_lets_the_next_one_wait(self, bench: Bench, end: str) -> None:
        first, second, _ = await _line(bench)
        await bench.report(await bench.take(), LAST[end], ONCE)
        assert (await bench.task(first.id)).state.finished
        assert (await bench.take()).id == second.id

    @pytest.mark.parametrize("end", AGAIN)
    async def test_a_task_that_runs_again_keeps_its_place(self, bench: Bench, end: str) -> None:
        first, second, _ = await _line(bench)
        await bench.report(await bench.take(), AGAIN[end])
        assert (await bench.task(second.id)).state is State.HELD
        bench.clock.advance(60)
        assert (await bench.take()).id == first.id

    async def test_a_lost_task_keeps_its_place(self, bench: Bench) -> None:
        first, second, _ = await _line(bench)
        other = await bench.session("job")
        assert [one.id for one in await bench.claim(5, session=other)] == [first.id]
        await bench.end(other)
        await bench.reclaim()
        assert [one.id for one in await bench.claim(5)] == [first.id]
        assert (await bench.task(second.id)).state is State.HELD

    async def test_a_lost_task_that_was_to_be_cancelled_makes_way(self, bench: Bench) -> None:
        first, second, _ = await _line(bench)
        other = await bench.session("job")
        await bench.claim(5, session=other)
        await bench.cancel(first.id)
        await bench.end(other)
        await bench.reclaim()
        assert (await bench.take()).id == second.id

    async def test_cancelling_the_first_lets_the_next_one_wait(self, bench: Bench) -> None:
        first, second, third = await _line(bench)
        await bench.cancel(first.id)
        assert await bench.states(first, second, third) == [State.CANCELLED, State.PENDING, State.HELD]

    async def test_cancelling_one_behind_changes_nothing_else(self, bench: Bench) -> None:
        first, second, third = await _line(bench)
        await bench.cancel(second.id)
        assert await bench.states(first, second, third) == [State.PENDING, State.CANCELLED, State.HELD]
        await bench.complete(await bench.take())
        assert (await bench.take()).id == third.id

    async def test_cancelling_the_whole_line_leaves_no_trace(self, bench: Bench) -> None:
        line = await _line(bench)
        assert (await bench.cancel(by(task="job"))).changed == 3
        assert await bench.states(*line) == [State.CANCELLED] * 3
        assert (await bench.add(order_key="k")).state is State.PENDING

    async def test_an_expired_one_makes_way(self, bench: Bench) -> None:
        await bench.put(first := bench.new(order_key="k", expires_in=SECOND), second := bench.new(order_key="k"))
        bench.clock.advance(2)
        await bench.claim()
        assert (await bench.task(first.id)).state is State.CANCELLED
        if (await bench.task(second.id)).state is not State.RUNNING:
            assert (await bench.take()).id == second.id

    async def test_one_that_is_due_later_waits_for_its_time_when_it_is_first(self, bench: Bench) -> None:
        await bench.put(bench.new(order_key="k"), later := bench.new(order_key="k", delay=60 * SECOND))
        await bench.complete(await bench.take())
        assert (await bench.task(later.id)).state is State.SCHEDULED
        bench.clock.advance(60)
        assert (await bench.take()).id == later.id

    async def test_a_first_one_without_a_handler_holds_up_the_line(self, bench: Bench) -> None:
        await bench.put(first := bench.new(handler="stranger", order_key="k"), second := bench.new(order_key="k"))
        assert await bench.states(first, second) == [State.HELD] * 2
        assert await bench.claim(5) == []
        await bench.register("stranger")
        assert await bench.states(first, second) == [State.PENDING, State.HELD]

    async def test_one_behind_whose_handler_is_unknown_is_held_for_it_when_it_is_first(self, bench: Bench) -> None:
        await bench.put(bench.new(order_key="k"), second := bench.new(handler="stranger", order_key="k"))
        assert (await bench.task(second.id)).reason == "order"
        await bench.register("stranger")
        assert (await bench.task(second.id)).reason == "order"
        await bench.store.forget(["stranger"])
        await bench.complete(await bench.take())
        assert (await bench.task(second.id)).reason == "handler"

    async def test_a_retried_task_stands_behind_the_first_one_and_before_younger_ones(self, bench: Bench) -> None:
        first, second, third = await _line(bench)
        await bench.report(await bench.take(), Failed(BROKEN), ONCE)
        running = await bench.take()
        await bench.retry(first.id)
        assert await bench.states(first, second, third) == [State.HELD, State.RUNNING, State.HELD]
        await bench.complete(running)
        assert (await bench.take()).id == first.id

    async def test_a_retried_task_whose_line_is_empty_waits(self, bench: Bench) -> None:
        task = await bench.add(order_key="k")
        await bench.report(await bench.take(), Failed(BROKEN), ONCE)
        await bench.retry(task.id)
        assert (await bench.add(order_key="k")).state is State.HELD
        assert (await bench.take()).id == task.id

    async def test_the_order_is_that_of_the_store_s_clock_whatever_the_ids_say(self, bench: Bench) -> None:
        early, middle, late = (bench.new(order_key="k") for _ in range(3))
        order = [middle, late, early]
        for task in order:
            await bench.put(task)
            bench.clock.advance(1)
        for task in order:
            claim = await bench.take()
            assert claim.id == task.id
            await bench.complete(claim)

    async def test_several_lines_end_in_one_call(self, bench: Bench) -> None:
        keys = ("a", "b", "c")
        await bench.put(*(bench.new(order_key=key) for key in keys), *(bench.new(order_key=key) for key in keys))
        for _ in range(2):
            claims = await bench.claim(10)
            assert len(claims) == 3
            for claim in claims:
                await bench.complete(claim)
        assert await bench.claim(10) == []

    async def test_a_follow_up_stands_in_line_too(self, bench: Bench) -> None:
        claim = await bench.started(order_key="k")
        follow_up = bench.new(order_key="k")
        await bench.complete(claim, None, follow_up)
        assert (await bench.take()).id == follow_up.id

    async def test_held_ones_fill_a_queue(self, bench: Bench) -> None:
        await bench.change("default", capacity=3)
        line = await _line(bench)
        assert len(line) == 3
        queue = await bench.queue()
        assert queue.waiting == 3


async def _line(bench: Bench) -> list[Task]:
    return [await bench.add(order_key="k") for _ in range(3)]


__all__ = ["OrderKeys"]
