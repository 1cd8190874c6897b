"""Pausing and resuming batches: no item starts, running items may end, and none is lost or repeated."""

import pytest

from pitboss.model.batch import BatchStatus, Cancel, Pause, Resume, Start
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotFound
from pitboss.model.outcome import Completed, Failed, Released, Retry, Snooze
from pitboss.model.session import Slot
from pitboss.model.states import State
from pitboss.testing.conformance.batching import items, of
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.conformance.lanes import line, lined_up, status
from pitboss.testing.conformance.outcomes import WAITING_AGAIN, transition_for
from pitboss.testing.conformance.waiting import SOON, silence


class PausingBatches:
    async def test_a_batch_of_which_nothing_runs_is_paused_at_once(self, bench: Bench) -> None:
        batch = await of(bench, 3)
        changed = await bench.act(batch, Pause())
        assert changed.batch is not None
        assert (changed.batch.status, changed.batch.position) == (BatchStatus.PAUSED, None)
        assert await bench.claim(5) == []
        assert (await bench.batch(batch)).counts == {State.HELD: 3}

    async def test_a_batch_of_which_something_runs_is_pausing(self, bench: Bench) -> None:
        batch = await of(bench, 3)
        claim = await bench.take()
        await bench.act(batch, Pause())
        shown = await bench.batch(batch)
        assert (shown.status, shown.position) == (BatchStatus.PAUSING, 0)
        assert await bench.claim(5) == []
        await bench.report(claim, Completed('"kept"'))
        assert (await status(bench, batch), (await bench.task(claim.id)).result) == ([BatchStatus.PAUSED], '"kept"')

    async def test_its_reason_lasts_as_long_as_the_pause(self, bench: Bench) -> None:
        batch = await of(bench, 3)
        claim = await bench.take()
        await bench.act(batch, Pause("the site is down"))
        assert (await bench.batch(batch)).reason == "the site is down"
        await bench.report(claim, Completed())
        shown = await bench.batch(batch)
        assert (shown.status, shown.reason) == (BatchStatus.PAUSED, "the site is down")
        await bench.act(batch, Resume())
        assert (await bench.batch(batch)).reason is None

    async def test_its_reason_is_not_that_of_a_cancellation(self, bench: Bench) -> None:
        first, second = await of(bench, 2), await of(bench, 2)
        await bench.act(first, Pause("down"))
        await bench.act(second, Pause("down"))
        await bench.act(first, Cancel("wrong items"))
        await bench.act(second, Cancel())
        assert [(await bench.batch(one)).reason for one in (first, second)] == ["wrong items", None]

    async def test_items_that_were_drawn_are_held_again(self, bench: Bench) -> None:
        batch = await bench.create(bench.new(), bench.new(delay=9 * SECOND))
        await bench.ask(Slot(free=2), handlers=["unknown"])
        assert (await bench.batch(batch)).counts == {State.PENDING: 1, State.SCHEDULED: 1}
        await bench.act(batch, Pause())
        assert [(task.state, task.reason) for task in await bench.every_task()] == [(State.HELD, "batch")] * 2

    async def test_a_paused_batch_frees_its_slot(self, bench: Bench) -> None:
        batches = await lined_up(bench, "ab")
        await bench.act(batches["a"], Pause())
        assert await status(bench, *batches.values()) == [BatchStatus.PAUSED, BatchStatus.RUNNING]

    async def test_a_pausing_batch_keeps_its_slot_until_its_last_item_has_ended(self, bench: Bench) -> None:
        first, second = await of(bench, 3), await of(bench, 1)
        claims = await bench.claim(2)
        await bench.act(first, Pause())
        await bench.complete(claims[0])
        assert await status(bench, first, second) == [BatchStatus.PAUSING, BatchStatus.QUEUED]
        await bench.complete(claims[1])
        assert await status(bench, first, second) == [BatchStatus.PAUSED, BatchStatus.RUNNING]

    @pytest.mark.parametrize("name", WAITING_AGAIN)
    async def test_an_item_that_would_wait_again_is_held(self, bench: Bench, name: str) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.act(batch, Pause())
        await bench.write(claim, transition_for(name, claim, bench.now))
        task = await bench.task(claim.id)
        assert (task.state, task.reason) == (State.HELD, "batch")
        assert await status(bench, batch) == [BatchStatus.PAUSED]

    async def test_a_held_item_keeps_when_it_is_due(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.act(batch, Pause())
        await bench.report(claim, Snooze(10 * SECOND))
        due = bench.now + 10 * SECOND
        assert (await bench.task(claim.id)).run_at == due
        await bench.act(batch, Resume())
        claimed = await bench.ask(Slot(free=1))
        assert (claimed.claims, claimed.next_due) == ([], due)
        bench.clock.advance(10)
        assert (await bench.take()).id == claim.id

    async def test_an_item_that_fails_while_pausing_keeps_its_attempts(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.act(batch, Pause())
        await bench.report(claim, Failed(BROKEN))
        task = await bench.task(claim.id)
        assert (task.state, task.attempts, task.error) == (State.HELD, 1, BROKEN)
        assert len(await bench.history(claim)) == 1

    async def test_a_lost_item_of_a_pausing_batch_is_held_and_the_batch_paused(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.act(batch, Pause())
        await bench.end(bench.me)
        await bench.reclaim()
        task = await bench.task(claim.id)
        assert (task.state, task.reason, task.losses) == (State.HELD, "batch", 1)
        assert await status(bench, batch) == [BatchStatus.PAUSED]

    async def test_the_last_item_of_a_pausing_batch_ends_it(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.act(batch, Pause())
        await bench.complete(claim)
        assert await status(bench, batch) == [BatchStatus.DONE]

    async def test_a_queued_batch_is_paused_and_keeps_its_place(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abcd")
        await bench.act(batches["b"], Pause())
        assert await line(bench) == "cd"
        await bench.act(batches["b"], Resume())
        assert await line(bench) == "bcd"

    async def test_pausing_again_changes_nothing(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        claim = await bench.take()
        for _ in range(2):
            await bench.act(batch, Pause())
            assert await status(bench, batch) == [BatchStatus.PAUSING]
        await bench.report(claim, Released())
        await bench.act(batch, Pause())
        assert await status(bench, batch) == [BatchStatus.PAUSED]

    async def test_an_item_whose_handler_is_known_again_waits_for_its_batch(self, bench: Bench) -> None:
        batch = await bench.create(bench.new(handler="stranger"))
        await bench.ask(Slot(free=1), handlers=["job"])
        await bench.act(batch, Pause())
        await bench.register("stranger")
        await bench.session("stranger")
        await bench.reclaim()
        (task,) = await bench.every_task()
        assert (task.state, task.reason) == (State.HELD, "batch")
        await bench.act(batch, Resume())
        assert (await bench.take()).id == task.id

    async def test_there_is_no_act_on_a_batch_that_there_is_not(self, bench: Bench) -> None:
        for act in (Pause(), Resume(), Start()):
            with pytest.raises(NotFound):
                await bench.store.act_on_batch("unknown", act)

    async def test_items_cannot_be_slipped_past_a_pause(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        claim = await bench.take()
        await bench.report(claim, Failed(BROKEN))
        await bench.act(batch, Pause())
        await bench.cancel(claim.id)
        await bench.retry(claim.id)
        assert (await bench.task(claim.id)).reason == "batch"
        assert await bench.claim(5) == []


class ResumingBatches:
    async def test_a_batch_goes_on_with_what_is_left(self, bench: Bench) -> None:
        batch = await of(bench, 3)
        done = await bench.take()
        await bench.complete(done)
        await bench.act(batch, Pause())
        await bench.act(batch, Resume())
        assert done.id not in [claim.id for claim in await bench.claim(5)]
        assert (await bench.batch(batch)).counts == {State.COMPLETED: 1, State.RUNNING: 2}

    @pytest.mark.parametrize(("at", "wanted"), [("place", "bcde"), ("top", "cbde"), ("bottom", "bdec")])
    async def test_a_batch_goes_back_in_line(self, bench: Bench, at: str, wanted: str) -> None:
        batches = await lined_up(bench, "abcde")
        await bench.act(batches["c"], Pause())
        await bench.act(batches["c"], _resume(at))
        assert await line(bench) == wanted

    async def test_a_batch_that_ran_goes_before_those_that_came_after_it(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        await bench.act(batches["a"], Pause())
        await bench.act(batches["a"], Resume())
        assert (await line(bench), await status(bench, batches["b"])) == ("ac", [BatchStatus.RUNNING])

    async def test_a_resumed_batch_runs_at_once_if_there_is_a_slot(self, bench: Bench) -> None:
        batch = await of(bench, 1, paused=True)
        changed = await bench.act(batch, Resume())
        assert changed.batch is not None
        assert changed.batch.status is BatchStatus.RUNNING
        assert (await bench.take()).batch == batch.id

    async def test_a_pausing_batch_runs_on(self, bench: Bench) -> None:
        first, second = await of(bench, 3), await of(bench, 1)
        await bench.take()
        await bench.act(first, Pause())
        await bench.act(first, Resume())
        assert await status(bench, first, second) == [BatchStatus.RUNNING, BatchStatus.QUEUED]
        assert [claim.batch for claim in await bench.claim(5)] == [first.id] * 2

    async def test_resuming_what_was_not_paused_changes_nothing(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        for name in "ac":
            before = await bench.batch(batches[name])
            await bench.act(batches[name], Resume())
            assert await bench.batch(batches[name]) == before

    async def test_a_resumed_batch_is_heard(self, bench: Bench) -> None:
        batch = await bench.create(*items(bench, 1, queue="q"), paused=True)
        await silence(bench.store)
        await bench.act(batch, Resume())
        assert await bench.store.wait(["q"], SOON)

    async def test_pauses_lose_and_repeat_nothing(self, bench: Bench) -> None:
        batch = await of(bench, 6)
        seen = []
        for number in range(12):
            claims = await bench.claim(1)
            await bench.act(batch, Pause())
            for claim in claims:
                await bench.report(claim, Completed() if number % 2 else Retry(after=0))
                seen += [claim.id] if number % 2 else []
            if await status(bench, batch) == [BatchStatus.DONE]:
                break
            await bench.act(batch, Resume())
        assert sorted(seen) == [task.id for task in await bench.every_task()]
        assert await status(bench, batch) == [BatchStatus.DONE]


def _resume(at: str) -> Resume:
    return {"place": Resume(), "top": Resume("top"), "bottom": Resume("bottom")}[at]
