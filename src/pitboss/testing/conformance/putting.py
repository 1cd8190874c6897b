"""Putting tasks: what is stored, which task a new one meets, and when a queue is full."""

import pytest

from pitboss.model.errors import QueueFull
from pitboss.model.states import State
from pitboss.model.task import Placed, Task, Unique
from pitboss.testing.conformance.bench import Bench


class Putting:
    async def test_a_plain_task_is_pending(self, bench: Bench) -> None:
        new = bench.new()
        assert await bench.put(new) == [Placed(new.id, True, State.PENDING)]
        assert await bench.task(new.id) == Task(
            id=new.id, handler="job", queue="default", state=State.PENDING, params="{}", created_at=bench.now
        )
        assert (await bench.queue()).counts == {State.PENDING: 1}

    async def test_every_field_is_kept(self, bench: Bench) -> None:
        parent = bench.ids()
        new = bench.new(
            queue="q:1.x-y_z",
            params='{"a":[1,2.5,"x"],"b":null}',
            priority=-7,
            run_at=bench.now + 5,
            unique=Unique("key one"),
            max_attempts=9,
            timeout=1_500_000,
            expires_at=bench.now + 10,
            tags=("eu", "big"),
            parent=parent,
        )
        assert await bench.put(new) == [Placed(new.id, True, State.SCHEDULED)]
        assert await bench.task(new.id) == Task(
            id=new.id,
            handler="job",
            queue="q:1.x-y_z",
            state=State.SCHEDULED,
            params='{"a":[1,2.5,"x"],"b":null}',
            priority=-7,
            created_at=bench.now,
            run_at=bench.now + 5,
            max_attempts=9,
            timeout=1_500_000,
            expires_at=bench.now + 10,
            unique_key="key one",
            tags=("eu", "big"),
            parent=parent,
        )

    async def test_nothing_put_nothing_placed(self, bench: Bench) -> None:
        assert await bench.put() == []
        assert await bench.every_task() == []

    async def test_answers_come_in_the_order_asked(self, bench: Bench) -> None:
        tasks = [bench.new(queue=name) for name in ("b", "a", "c", "a")]
        placed = await bench.put(*reversed(tasks))
        assert [one.id for one in placed] == [task.id for task in reversed(tasks)]

    async def test_a_delay_counts_from_the_store_s_clock(self, bench: Bench) -> None:
        task = await bench.add(delay=1_000)
        assert (task.state, task.run_at) == (State.SCHEDULED, bench.now + 1_000)

    @pytest.mark.parametrize("late", [{"run_at": 0}, {"delay": 0}])
    async def test_a_time_that_is_over_is_no_schedule(self, bench: Bench, late: dict[str, int]) -> None:
        task = await bench.add(**late)
        assert (task.state, task.run_at) == (State.PENDING, None)

    async def test_due_exactly_now_is_pending_and_a_microsecond_later_is_not(self, bench: Bench) -> None:
        assert (await bench.add(run_at=bench.now)).state is State.PENDING
        assert (await bench.add(run_at=bench.now + 1)).state is State.SCHEDULED

    async def test_expiry_counts_from_the_store_s_clock(self, bench: Bench) -> None:
        assert (await bench.add(expires_in=2_000)).expires_at == bench.now + 2_000

    async def test_an_unregistered_handler_holds_the_task(self, bench: Bench) -> None:
        new = bench.new(handler="stranger")
        assert await bench.put(new) == [Placed(new.id, True, State.HELD, "handler")]
        assert await bench.claim() == []

    async def test_held_comes_before_scheduled(self, bench: Bench) -> None:
        task = await bench.add(handler="stranger", delay=5_000)
        assert (task.state, task.reason, task.run_at) == (State.HELD, "handler", bench.now + 5_000)

    async def test_repeating_a_put_writes_nothing(self, bench: Bench) -> None:
        new = bench.new(params='{"n":1}')
        await bench.put(new)
        before = await bench.task(new.id)
        bench.clock.advance(5)
        assert await bench.put(new) == [Placed(new.id, False, State.PENDING)]
        await bench.became(before)

    async def test_repeating_a_put_after_the_task_finished_meets_the_finished_task(self, bench: Bench) -> None:
        new = bench.new()
        await bench.put(new)
        await bench.complete(await bench.take(), '"done"')
        before = await bench.task(new.id)
        assert await bench.put(new) == [Placed(new.id, False, State.COMPLETED)]
        await bench.became(before)
        assert await bench.claim() == []

    async def test_the_same_id_meets_whatever_else_differs(self, bench: Bench) -> None:
        first = await bench.add(queue="a")
        other = bench.new(id=first.id, queue="b", params='{"other":1}', unique=Unique("k"))
        assert await bench.put(other) == [Placed(first.id, False, State.PENDING)]
        await bench.became(first)
        assert [queue.name for queue in await bench.store.queues()] == ["a"]
        assert (await bench.add(unique=Unique("k"))).unique_key == "k"

    async def test_one_id_twice_in_one_call_is_one_task(self, bench: Bench) -> None:
        new = bench.new()
        assert await bench.put(new, new) == [
            Placed(new.id, True, State.PENDING),
            Placed(new.id, False, State.PENDING),
        ]
        assert len(await bench.every_task()) == 1

    async def test_a_placed_answer_tells_the_reason_of_the_task_that_was_met(self, bench: Bench) -> None:
        task = await bench.add(handler="stranger")
        again = bench.new(id=task.id)
        assert await bench.put(again) == [Placed(task.id, False, State.HELD, "handler")]

    async def test_a_full_queue_refuses_the_whole_call(self, bench: Bench) -> None:
        await bench.change("small", capacity=2)
        await bench.add(queue="small")
        with pytest.raises(QueueFull) as refused:
            await bench.put(bench.new(queue="fresh"), bench.new(queue="small"), bench.new(queue="small"))
        error = refused.value
        assert (error.queue, error.capacity, error.waiting, error.asked) == ("small", 2, 1, 2)
        assert len(await bench.every_task()) == 1
        assert [queue.name for queue in await bench.store.queues()] == ["small"]

    async def test_capacity_is_filled_to_the_last_place(self, bench: Bench) -> None:
        await bench.change("small", capacity=2)
        await bench.put(bench.new(queue="small"), bench.new(queue="small"))
        with pytest.raises(QueueFull):
            await bench.put(bench.new(queue="small"))

    async def test_held_and_scheduled_tasks_take_places_but_running_and_finished_do_not(self, bench: Bench) -> None:
        await bench.change("small", capacity=3)
        await bench.put(bench.new(queue="small"), bench.new(queue="small"))
        await bench.complete(await bench.take("small"))
        await bench.take("small")
        await bench.put(
            bench.new(queue="small", delay=1_000),
            bench.new(queue="small", handler="stranger"),
            bench.new(queue="small"),
        )
        with pytest.raises(QueueFull) as refused:
            await bench.put(bench.new(queue="small"))
        assert refused.value.waiting == 3

    async def test_tasks_that_meet_others_need_no_place(self, bench: Bench) -> None:
        await bench.change("small", capacity=2)
        known = bench.new(queue="small", unique=Unique("k"))
        await bench.put(known)
        twin = bench.new(queue="small", unique=Unique("n"))
        placed = await bench.put(
            known,
            bench.new(queue="small", unique=Unique("k")),
            twin,
            twin,
            bench.new(queue="small", unique=Unique("n")),
        )
        assert [one.created for one in placed] == [False, False, True, False, False]
        assert [one.id for one in placed] == [known.id, known.id, twin.id, twin.id, twin.id]

    async def test_a_repeat_of_a_put_is_answered_even_when_the_queue_is_full(self, bench: Bench) -> None:
        await bench.change("small", capacity=1)
        new = bench.new(queue="small")
        await bench.put(new)
        assert await bench.put(new) == [Placed(new.id, False, State.PENDING)]

    async def test_a_lowered_capacity_removes_nothing(self, bench: Bench) -> None:
        await bench.put(bench.new(), bench.new())
        await bench.change("default", capacity=1)
        with pytest.raises(QueueFull) as refused:
            await bench.put(bench.new())
        assert (refused.value.waiting, refused.value.capacity) == (2, 1)
        assert len(await bench.claim(5)) == 2

    async def test_a_capacity_of_none_is_no_limit(self, bench: Bench) -> None:
        await bench.change("default", capacity=1)
        await bench.put(bench.new())
        await bench.change("default", capacity=None)
        await bench.put(bench.new(), bench.new())
        assert (await bench.queue()).counts == {State.PENDING: 3}
