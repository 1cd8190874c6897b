"""Batches: created with their items in one act; claims draw the items as they need them."""

import pytest

from pitboss.model.batch import RECENT, Batch, BatchStatus, NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.errors import QueueFull
from pitboss.model.outcome import Failed
from pitboss.model.resource import NewResource, Want
from pitboss.model.session import Slot
from pitboss.model.states import State
from pitboss.model.task import NewTask, Unique
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.conformance.scarcity import FETCH, QUEUE, asked, pool
from pitboss.testing.conformance.waiting import SOON, silence

MANY = 100_000


def items(bench: Bench, count: int, **options: object) -> list[NewTask]:
    return [bench.new(**options) for _ in range(count)]


async def of(bench: Bench, count: int, **options: object) -> Batch:
    """A batch with that many plain items."""
    return await bench.create(*items(bench, count), **options)


class CreatingBatches:
    async def test_a_batch_is_stored_with_its_items(self, bench: Bench) -> None:
        notice = bench.new(params='{"to":"ann"}')
        two = [bench.new(queue="b", params='{"n":1}', priority=3), bench.new(queue="a")]
        batch = await bench.create(*two, name="nightly", data='{"é":1}', by="ann", on_complete=notice)
        assert (batch.name, batch.lane, batch.data, batch.by) == ("nightly", "default", '{"é":1}', "ann")
        assert (batch.on_complete, batch.queues, batch.created_at) == (notice, ("a", "b"), bench.now)
        assert (batch.counts, batch.total, batch.left, batch.recent) == ({State.HELD: 2}, 2, 2, 0)
        assert await bench.batch(batch) == batch
        found = await bench.task(two[0].id)
        assert (found.state, found.reason, found.batch) == (State.HELD, "batch", batch.id)
        assert (found.queue, found.params, found.priority) == ("b", '{"n":1}', 3)

    async def test_the_first_batch_of_a_lane_runs_at_once(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        assert (batch.status, batch.position, batch.started_at) == (BatchStatus.RUNNING, 0, bench.now)

    async def test_the_next_batch_waits_in_line(self, bench: Bench) -> None:
        await of(bench, 1)
        waits = [await of(bench, 1) for _ in range(2)]
        assert [(one.status, one.position, one.started_at) for one in waits] == [
            (BatchStatus.QUEUED, 1, None),
            (BatchStatus.QUEUED, 2, None),
        ]

    async def test_a_batch_may_be_created_paused(self, bench: Bench) -> None:
        batch = await of(bench, 1, paused=True)
        assert (batch.status, batch.position, batch.started_at) == (BatchStatus.PAUSED, None, None)
        assert await bench.claim(5) == []
        assert (await of(bench, 1)).status is BatchStatus.RUNNING

    async def test_the_same_batch_again_changes_nothing(self, bench: Bench) -> None:
        tasks = items(bench, 2)
        batch = await bench.create(*tasks, id="b1", name="one")
        await bench.take()
        before = await bench.every_task()
        again = await bench.create(*tasks, bench.new(), id="b1", name="two", lane="other")
        assert again == await bench.batch(batch)
        assert (again.name, again.total) == ("one", 2)
        assert await bench.every_task() == before

    async def test_items_that_meet_existing_tasks_stay_out(self, bench: Bench) -> None:
        known = await bench.add(unique=Unique("k"))
        again = bench.new(id=known.id)
        batch = await bench.create(bench.new(unique=Unique("k")), again, bench.new())
        assert batch.total == 1
        assert (await bench.task(known.id)).batch is None

    async def test_items_that_meet_each_other_are_one(self, bench: Bench) -> None:
        batch = await bench.create(*items(bench, 3, unique=Unique("k")))
        assert batch.total == 1

    async def test_an_item_has_its_key_while_it_is_held(self, bench: Bench) -> None:
        first = await bench.create(bench.new(unique=Unique("k")), paused=True)
        (placed,) = await bench.put(bench.new(unique=Unique("k")))
        assert (placed.created, placed.state) == (False, State.HELD)
        assert first.total == 1

    async def test_a_batch_without_items_is_over_at_once(self, bench: Bench) -> None:
        notice = bench.new()
        batch = await bench.create(on_complete=notice)
        assert (batch.status, batch.finished_at, batch.position) == (BatchStatus.DONE, bench.now, None)
        assert (await bench.task(notice.id)).state is State.PENDING

    async def test_an_empty_batch_takes_no_slot(self, bench: Bench) -> None:
        await bench.create()
        assert (await of(bench, 1)).status is BatchStatus.RUNNING

    async def test_items_that_do_not_fit_are_refused_with_their_batch(self, bench: Bench) -> None:
        await bench.change("default", capacity=2)
        with pytest.raises(QueueFull):
            await of(bench, 3)
        assert (await bench.store.batches(), await bench.every_task()) == ([], [])
        await of(bench, 2)
        with pytest.raises(QueueFull):
            await bench.put(bench.new())

    async def test_a_batch_that_may_run_is_heard(self, bench: Bench) -> None:
        await silence(bench.store)
        await bench.store.create_batch(NewBatch(id="b1"), [bench.new(queue="q")])
        assert await bench.store.wait(["q"], SOON)

    async def test_unknown_batches_are_left_out(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        assert [one.id for one in await bench.store.batches(["unknown", batch.id])] == [batch.id]
        assert await bench.store.batches([]) == []


class DrawingItems:
    async def test_a_claim_draws_what_it_gives(self, bench: Bench) -> None:
        batch = await of(bench, 5)
        claims = await bench.claim(2)
        assert [claim.batch for claim in claims] == [batch.id] * 2
        assert (await bench.batch(batch)).counts == {State.RUNNING: 2, State.HELD: 3}

    async def test_items_are_drawn_by_priority_then_age(self, bench: Bench) -> None:
        tasks = [bench.new(priority=number % 2) for number in range(6)]
        await bench.create(*tasks)
        wanted = [task.id for task in sorted(tasks, key=lambda task: (task.priority, task.id))]
        assert [claim.id for _ in range(3) for claim in await bench.claim(2)] == wanted

    async def test_items_are_drawn_for_all_slots_together(self, bench: Bench) -> None:
        await of(bench, 9)
        claims = (await bench.ask(Slot(free=2), Slot(free=1, ahead=2))).claims
        assert len(claims) == 5

    async def test_items_of_queues_that_were_not_requested_stay_held(self, bench: Bench) -> None:
        batch = await bench.create(*items(bench, 2, queue="a"), *items(bench, 2, queue="b"))
        assert [claim.queue for claim in await bench.claim(9, "b")] == ["b", "b"]
        assert (await bench.batch(batch)).counts == {State.RUNNING: 2, State.HELD: 2}

    async def test_items_that_wait_in_another_queue_do_not_stop_the_drawing(self, bench: Bench) -> None:
        await bench.create(*items(bench, 2, queue="a"), *items(bench, 2, queue="b"))
        await bench.ask(Slot(free=1, queues=("a",)), handlers=["unknown"])
        assert [claim.queue for claim in await bench.claim(1, "b")] == ["b"]

    async def test_items_of_a_paused_queue_stay_held(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        await bench.change("default", paused=True)
        assert await bench.claim(5) == []
        assert (await bench.batch(batch)).counts == {State.HELD: 2}

    async def test_items_and_other_tasks_share_a_queue(self, bench: Bench) -> None:
        await bench.create(*items(bench, 2, priority=1))
        urgent, late = await bench.add(), await bench.add(priority=2)
        claims = await bench.claim(4)
        assert [claim.batch is None for claim in claims] == [True, False, False, True]
        assert (claims[0].id, claims[-1].id) == (urgent.id, late.id)

    async def test_several_batches_that_run_are_all_drawn_from(self, bench: Bench) -> None:
        await bench.widen("default", 2)
        one, other = await of(bench, 1), await of(bench, 1)
        assert [claim.batch for claim in await bench.claim(5)] == [one.id, other.id]

    async def test_items_that_no_member_fits_do_not_stop_the_drawing(self, bench: Bench) -> None:
        await pool(bench, "a", NewResource(name="b", labels=("eu",)))
        stuck = items(bench, 3, handler=FETCH, queue=QUEUE, want=Want(labels=("us",)))
        fit = items(bench, 2, handler=FETCH, queue=QUEUE, want=Want(labels=("eu",)))
        batch = await bench.create(*stuck, *fit)
        assert [claim.id for claim in (await asked(bench)).claims] == [fit[0].id]
        assert (await bench.batch(batch)).counts == {State.RUNNING: 1, State.PENDING: 4}

    async def test_nothing_is_drawn_from_a_batch_that_waits(self, bench: Bench) -> None:
        one, other = await of(bench, 1), await of(bench, 1)
        assert [claim.batch for claim in await bench.claim(5)] == [one.id]
        assert (await bench.batch(other)).counts == {State.HELD: 1}

    async def test_an_item_that_is_due_later_waits_for_its_time(self, bench: Bench) -> None:
        batch = await bench.create(bench.new(delay=5 * SECOND))
        claimed = await bench.ask(Slot(free=1))
        assert (claimed.claims, claimed.next_due) == ([], bench.now + 5 * SECOND)
        assert (await bench.batch(batch)).counts == {State.SCHEDULED: 1}
        bench.clock.advance(5)
        assert (await bench.take()).batch == batch.id

    async def test_a_claim_that_drew_only_items_due_later_is_repeated_at_once(self, bench: Bench) -> None:
        tasks = [*items(bench, 2, delay=60 * SECOND), bench.new(priority=1)]
        await bench.create(*tasks)
        begin = bench.now
        seen = []
        for _ in range(3):
            claimed = await bench.ask(Slot(free=1))
            seen.append(len(claimed.claims))
            if not claimed.claims:
                assert claimed.next_due == begin
        assert seen == [0, 0, 1]

    async def test_an_expired_item_is_cancelled_when_it_is_drawn(self, bench: Bench) -> None:
        batch = await bench.create(bench.new(expires_in=1), bench.new(priority=1))
        bench.clock.advance(1)
        await bench.claim(2)
        assert (await bench.batch(batch)).counts == {State.CANCELLED: 1, State.RUNNING: 1}

    async def test_what_a_claim_took_before_it_met_an_expired_item_is_told(self, bench: Bench) -> None:
        lost, other = await bench.add(priority=1), await bench.session("noop")
        await bench.take(session=other)
        await bench.end(other)
        await bench.reclaim()
        await bench.create(bench.new(priority=2, expires_in=SECOND))
        await bench.ask(Slot(free=0, ahead=0))
        first = await bench.add(priority=0)
        bench.clock.advance(2)
        claims = (await bench.ask(Slot(free=1, ahead=1))).claims
        assert [claim.id for claim in claims] == [first.id]
        assert [task.id for task in await bench.every_task() if task.state is State.RUNNING] == [first.id]
        assert (await bench.task(lost.id)).state is State.PENDING

    async def test_a_claim_of_an_item_is_a_claim_like_others(self, bench: Bench) -> None:
        new = bench.new(params='{"n":1}', max_attempts=2, timeout=9, tags=("t",))
        await bench.create(new)
        claim = await bench.take()
        assert (claim.id, claim.params, claim.max_attempts, claim.timeout, claim.tags) == (
            new.id,
            '{"n":1}',
            2,
            9,
            ("t",),
        )
        await bench.report(claim, Failed(BROKEN))
        assert (await bench.task(new.id)).state is State.SCHEDULED

    async def test_an_item_of_an_unknown_handler_is_held_for_it(self, bench: Bench) -> None:
        stranger = bench.new(handler="stranger")
        batch = await bench.create(stranger, bench.new())
        claims = (await bench.ask(Slot(free=2), handlers=["job"])).claims
        assert [claim.handler for claim in claims] == ["job"]
        held = await bench.task(stranger.id)
        assert (held.state, held.reason) == (State.HELD, "handler")
        assert (await bench.batch(batch)).status is BatchStatus.RUNNING

    async def test_an_item_whose_handler_becomes_known_runs(self, bench: Bench) -> None:
        await bench.create(bench.new(handler="stranger"))
        assert (await bench.ask(Slot(free=1), handlers=["job"])).claims == []
        await bench.register("stranger")
        await bench.session("stranger")
        assert (await bench.take()).handler == "stranger"


class BatchFigures:
    async def test_what_ended_lately_is_counted(self, bench: Bench) -> None:
        batch = await of(bench, 4)
        for claim in await bench.claim(2):
            await bench.complete(claim)
        assert ((await bench.batch(batch)).recent, (await bench.batch(batch)).finished) == (2, 2)
        bench.clock.advance_to(bench.now + RECENT + 1)
        await bench.complete(await bench.take())
        assert ((await bench.batch(batch)).recent, (await bench.batch(batch)).finished) == (1, 3)

    async def test_batches_are_shown_as_they_stand_in_line(self, bench: Bench) -> None:
        ended = [await of(bench, 0) for _ in range(2)]
        running, first, second = await of(bench, 1), await of(bench, 1), await of(bench, 1)
        paused = await of(bench, 1, paused=True)
        shown = [batch.id for batch in await bench.store.batches()]
        assert shown[:4] == [running.id, first.id, second.id, paused.id]
        assert set(shown[4:]) == {batch.id for batch in ended}
        assert [batch.id for batch in await bench.store.batches(limit=2)] == [running.id, first.id]

    async def test_the_newest_of_the_ended_comes_first(self, bench: Bench) -> None:
        ended = []
        for _ in range(3):
            ended.append((await of(bench, 0)).id)
            bench.clock.advance(1)
        assert [batch.id for batch in await bench.store.batches()] == ended[::-1]

    async def test_batches_are_picked_by_status(self, bench: Bench) -> None:
        running, queued = await of(bench, 1), await of(bench, 1)
        await of(bench, 1, paused=True)
        some = await bench.store.batches(statuses=[BatchStatus.QUEUED, BatchStatus.RUNNING])
        assert [batch.id for batch in some] == [running.id, queued.id]
        assert await bench.store.batches(statuses=[BatchStatus.CANCELLED]) == []


class LargeBatches:
    # One large batch for all of it: storing one is slow.
    @pytest.mark.timeout(300)
    @pytest.mark.fresh_loop(limit=240)
    async def test_a_hundred_thousand_items_are_one_batch(self, bench: Bench) -> None:
        bench.watching = False
        batch = await bench.store.create_batch(NewBatch(id="large"), items(bench, MANY))
        assert (batch.status, batch.counts) == (BatchStatus.RUNNING, {State.HELD: MANY})
        claims = await bench.claim(50)
        assert len(claims) == 50
        assert (await bench.batch(batch)).counts == {State.RUNNING: 50, State.HELD: MANY - 50}
        for claim in claims[:3]:
            await bench.complete(claim)
        shown = await bench.batch(batch)
        assert (shown.finished, shown.left) == (3, MANY - 3)
