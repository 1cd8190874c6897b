"""Queues: they are created, paused and limited, and count their tasks."""

from pitboss.model.limits import Window, rate
from pitboss.model.queue import Queue
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench


class QueueSettings:
    async def test_a_pause_has_its_reason_until_it_ends(self, bench: Bench) -> None:
        paused = await bench.change("q", paused=True, by="ann", reason="the site's down: «500»")
        assert (paused.paused_by, paused.paused_reason) == ("ann", "the site's down: «500»")
        assert (await bench.change("q", capacity=5)).paused_reason == "the site's down: «500»"
        assert (await bench.change("q", paused=True)).paused_reason is None
        await bench.change("q", paused=True, reason="again")
        assert (await bench.change("q", paused=False, reason="no")).paused_reason is None

    async def test_a_queue_comes_into_being_with_its_first_task(self, bench: Bench) -> None:
        assert await bench.store.queues() == []
        await bench.add(queue="b")
        await bench.add(queue="a")
        assert await bench.store.queues() == [
            Queue(name="a", counts={State.PENDING: 1}),
            Queue(name="b", counts={State.PENDING: 1}),
        ]

    async def test_a_follow_up_brings_its_queue_into_being(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.complete(claim, None, bench.new(queue="next"))
        assert [queue.name for queue in await bench.store.queues()] == ["default", "next"]

    async def test_a_change_brings_a_queue_into_being(self, bench: Bench) -> None:
        limited = Queue(name="new", capacity=5, limited=("capacity",))
        assert await bench.change("new", capacity=5) == limited
        assert await bench.store.queues() == [limited]

    async def test_what_is_not_named_stays(self, bench: Bench) -> None:
        await bench.change("q", capacity=5, rate=rate("2/s, 100/m"))
        queue = await bench.change("q", paused=True, by="ann")
        windows = (Window(2, 1_000_000), Window(100, 60_000_000))
        assert queue == Queue(
            name="q",
            paused=True,
            paused_by="ann",
            paused_at=bench.now,
            capacity=5,
            rate=windows,
            limited=("capacity", "rate"),
        )
        assert await bench.change("q") == queue
        assert await bench.change("q", capacity=None, rate=()) == Queue(
            name="q", paused=True, paused_by="ann", paused_at=bench.now, limited=("capacity", "rate")
        )

    async def test_resuming_forgets_who_paused(self, bench: Bench) -> None:
        await bench.change("q", paused=True, by="ann")
        assert await bench.change("q", paused=False, by="bob") == Queue(name="q")

    async def test_pausing_again_is_by_the_last_one(self, bench: Bench) -> None:
        await bench.change("q", paused=True, by="ann")
        bench.clock.advance(1)
        queue = await bench.change("q", paused=True, by="bob")
        assert (queue.paused_by, queue.paused_at) == ("bob", bench.now)

    async def test_counts_follow_every_state(self, bench: Bench) -> None:
        await bench.put(bench.new(), bench.new(), bench.new(), bench.new(delay=5), bench.new(handler="stranger"))
        done, stopped = await bench.claim(2)
        await bench.complete(done)
        await bench.cancel(stopped.id)
        counts = {
            State.PENDING: 1,
            State.RUNNING: 1,
            State.COMPLETED: 1,
            State.SCHEDULED: 1,
            State.HELD: 1,
        }
        queue = await bench.change("default")
        assert (queue.counts, queue.waiting) == (counts, 3)
        assert await bench.queue() == queue

    async def test_zeros_are_left_out(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.complete(claim)
        await bench.prune()
        assert await bench.queue() == Queue(name="default", counts={})

    async def test_a_paused_queue_takes_tasks_and_settles_those_that_run(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.change("default", paused=True)
        await bench.add()
        assert (await bench.complete(claim)).applied
        assert (await bench.queue()).counts == {State.PENDING: 1, State.COMPLETED: 1}

    async def test_a_pause_stops_a_queue_for_every_session(self, bench: Bench) -> None:
        await bench.add()
        await bench.change("default", paused=True)
        assert await bench.claim(5, session=await bench.session("job")) == []
        assert await bench.claim(5, "default") == []

    async def test_a_queue_may_be_paused_before_it_has_tasks(self, bench: Bench) -> None:
        await bench.change("later", paused=True)
        await bench.add(queue="later")
        assert await bench.claim() == []
