"""How batches end (once, in the act that ends their last item), and how they are cancelled, requeued and deleted."""

import pytest

from pitboss.model.batch import Batch, BatchStatus, Cancel, Delete, Move, Pause, Requeue, Resume
from pitboss.model.canonical import from_json
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.outcome import Cancelled, Completed, Failed, Retry
from pitboss.model.queue import Changed
from pitboss.model.session import Slot
from pitboss.model.states import State
from pitboss.model.task import TaskError, Unique
from pitboss.testing.conformance.batching import items, of
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.lanes import line, lined_up, status
from pitboss.testing.conformance.waiting import SOON, silence

NEVER = TaskError(category="bad", message="no", type="ValueError", fingerprint="feedbeef", retryable=False)
LOST = TaskError(category="net", message="gone", type="OSError", fingerprint="00c0ffee", retryable=False)


async def _failed(bench: Bench, *errors: TaskError | None, **options: object) -> Batch:
    """An ended batch with an item for each error; None stands for an item that completed."""
    batch = await of(bench, len(errors), **options)
    for claim, error in zip(await bench.claim(len(errors)), errors, strict=True):
        await bench.report(claim, Completed('"r"') if error is None else Failed(error))
    return await bench.batch(batch)


class EndingBatches:
    async def test_a_batch_is_done_when_its_last_item_is(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        one, other = await bench.claim(2)
        await bench.complete(one)
        assert (await bench.batch(batch)).status is BatchStatus.RUNNING
        bench.clock.advance(1)
        await bench.complete(other)
        shown = await bench.batch(batch)
        assert (shown.status, shown.finished_at, shown.position) == (BatchStatus.DONE, bench.now, None)
        assert (shown.counts, shown.left) == ({State.COMPLETED: 2}, 0)

    async def test_failures_are_told(self, bench: Bench) -> None:
        assert (await _failed(bench, None, NEVER)).status is BatchStatus.DONE_WITH_ERRORS

    async def test_cancelled_items_are_no_errors(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        one, other = await bench.claim(2)
        await bench.report(one, Cancelled("no story"))
        await bench.complete(other)
        assert await status(bench, batch) == [BatchStatus.DONE]

    async def test_an_item_that_waits_again_ends_nothing(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.report(claim, Retry(after=0))
        assert ((await bench.batch(batch)).status, (await bench.batch(batch)).counts) == (
            BatchStatus.RUNNING,
            {State.PENDING: 1},
        )

    async def test_an_operator_s_cancel_may_end_it(self, bench: Bench) -> None:
        first, second = await of(bench, 2), await of(bench, 1)
        await bench.cancel(by(batch=first.id))
        assert await status(bench, first, second) == [BatchStatus.DONE, BatchStatus.RUNNING]

    async def test_an_operator_s_cancel_may_end_one_that_is_paused(self, bench: Bench) -> None:
        batch = await of(bench, 2, paused=True)
        await bench.cancel(EVERYTHING)
        assert await status(bench, batch) == [BatchStatus.DONE]

    async def test_a_lost_item_that_was_asked_to_cancel_may_end_it(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.cancel(claim.id)
        await bench.end(bench.me)
        await bench.reclaim()
        assert await status(bench, batch) == [BatchStatus.DONE]

    async def test_an_item_that_expires_may_end_it(self, bench: Bench) -> None:
        first, second = await bench.create(bench.new(expires_in=1)), await of(bench, 1)
        bench.clock.advance(1)
        await bench.claim(1)
        assert await status(bench, first, second) == [BatchStatus.DONE, BatchStatus.RUNNING]

    async def test_all_items_may_end_in_one_call(self, bench: Bench) -> None:
        notice = bench.new(queue="notices")
        batch = await bench.create(*items(bench, 5), on_complete=notice)
        await bench.cancel(by(batch=batch.id))
        assert await status(bench, batch) == [BatchStatus.DONE]
        assert len(await bench.claim(9, "notices")) == 1


class Notices:
    async def test_the_notice_is_put_in_the_act_that_ends_the_batch(self, bench: Bench) -> None:
        notice = bench.new(queue="notices", params='{"to":"ann"}', priority=2)
        batch = await bench.create(bench.new(), on_complete=notice)
        claim = await bench.take()
        assert await bench.store.get([notice.id]) == [None]
        await bench.complete(claim)
        task = await bench.task(notice.id)
        assert (task.state, task.queue, task.priority, task.batch) == (State.PENDING, "notices", 2, None)
        assert from_json(task.params) == {"to": "ann", "batch": batch.id, "status": "done"}

    @pytest.mark.parametrize("end", ["done_with_errors", "cancelled"])
    async def test_the_notice_says_how_it_ended(self, bench: Bench, end: str) -> None:
        notice = bench.new(queue="notices")
        batch = await bench.create(bench.new(), on_complete=notice)
        if end == "cancelled":
            await bench.act(batch, Cancel())
        else:
            await bench.report(await bench.take(), Failed(NEVER))
        assert from_json((await bench.task(notice.id)).params) == {"batch": batch.id, "status": end}

    async def test_each_run_of_a_batch_puts_a_notice_of_its_own(self, bench: Bench) -> None:
        notice = bench.new(queue="notices", params='{"run":1}')
        batch = await bench.create(bench.new(), on_complete=notice)
        assert batch.run == 1
        await bench.report(await bench.take(), Failed(NEVER))
        told = []
        for again in (Requeue(), Requeue()):
            told.append(await bench.take("notices"))
            await bench.complete(told[-1])
            await bench.act(batch, again)
            await bench.report(await bench.take(), Failed(NEVER))
        told.append(await bench.take("notices"))
        assert len({claim.id for claim in told}) == 3
        assert told[0].id == notice.id
        expected = [{"batch": batch.id, "status": "done_with_errors", "run": run} for run in (1, 2, 3)]
        assert [from_json(claim.params) for claim in told] == expected
        assert (await bench.batch(batch)).run == 3

    async def test_a_retried_item_of_an_ended_batch_begins_another_run(self, bench: Bench) -> None:
        notice = bench.new(queue="notices")
        batch = await bench.create(bench.new(), on_complete=notice)
        await bench.report(await bench.take(), Failed(NEVER))
        await bench.retry(by(batch=batch.id))
        await bench.complete(await bench.take("default"))
        assert (await bench.batch(batch)).run == 2
        params = [from_json(claim.params) for claim in await bench.claim(3, "notices")]
        assert [one["status"] for one in params] == ["done_with_errors", "done"]
        assert not any("run" in one for one in params)

    async def test_items_that_wait_again_before_the_end_begin_no_run(self, bench: Bench) -> None:
        batch = await bench.create(bench.new(), bench.new(), on_complete=bench.new(queue="notices"))
        await bench.report(await bench.take(), Failed(NEVER))
        await bench.act(batch, Requeue())
        for claim in await bench.claim(2, "default"):
            await bench.complete(claim)
        assert (await bench.batch(batch)).run == 1
        assert (await bench.store.count(by(queue="notices"))).number == 1

    async def test_a_repeated_settlement_puts_no_second_notice(self, bench: Bench) -> None:
        notice = bench.new(queue="notices")
        await bench.create(bench.new(), on_complete=notice)
        claim = await bench.take()
        for _ in range(2):
            assert (await bench.complete(claim)).applied
        assert (await bench.store.count(by(queue="notices"))).number == 1

    async def test_a_notice_may_overfill_its_queue(self, bench: Bench) -> None:
        await bench.change("notices", capacity=1)
        await bench.add(queue="notices")
        notice = bench.new(queue="notices")
        await bench.create(bench.new(), on_complete=notice)
        assert (await bench.complete(await bench.take("default"))).applied
        assert (await bench.task(notice.id)).state is State.PENDING

    async def test_a_notice_is_heard(self, bench: Bench) -> None:
        await bench.create(bench.new(), on_complete=bench.new(queue="notices"))
        claim = await bench.take()
        await silence(bench.store)
        await bench.complete(claim)
        assert await bench.store.wait(["notices"], SOON)


class CancellingBatches:
    async def test_what_waits_is_cancelled(self, bench: Bench) -> None:
        batch = await of(bench, 3)
        await bench.complete(await bench.take())
        changed = await bench.act(batch, Cancel("enough"))
        assert (changed.changed, changed.more) == (2, False)
        shown = await bench.batch(batch)
        assert (shown.status, shown.reason, shown.finished_at) == (BatchStatus.CANCELLED, "enough", bench.now)
        assert shown.counts == {State.COMPLETED: 1, State.CANCELLED: 2}
        assert {task.reason for task in await bench.every_task() if task.state is State.CANCELLED} == {"enough"}

    async def test_what_runs_is_asked_to_stop(self, bench: Bench) -> None:
        first, second = await of(bench, 2), await of(bench, 1)
        claim = await bench.take()
        await bench.act(first, Cancel("enough"))
        assert await status(bench, first, second) == [BatchStatus.CANCELLING, BatchStatus.QUEUED]
        assert (await bench.renew(bench.me)).cancels == ((claim.id, claim.token),)
        await bench.report(claim, Cancelled("asked"))
        assert await status(bench, first, second) == [BatchStatus.CANCELLED, BatchStatus.RUNNING]

    async def test_what_runs_may_still_end_well(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        claim = await bench.take()
        await bench.act(batch, Cancel())
        await bench.complete(claim, '"kept"')
        assert await status(bench, batch) == [BatchStatus.CANCELLED]
        assert (await bench.task(claim.id)).result == '"kept"'

    async def test_many_items_are_cancelled_in_portions(self, bench: Bench) -> None:
        batch = await of(bench, 5)
        seen = []
        for _ in range(3):
            changed = await bench.act(batch, Cancel(), limit=2)
            seen.append((changed.changed, changed.more, await status(bench, batch)))
        assert seen == [
            (2, True, [BatchStatus.CANCELLING]),
            (2, True, [BatchStatus.CANCELLING]),
            (1, False, [BatchStatus.CANCELLED]),
        ]

    async def test_nothing_of_it_starts_between_two_portions(self, bench: Bench) -> None:
        batch = await of(bench, 5)
        await bench.ask(Slot(free=3), handlers=["unknown"])
        await bench.act(batch, Cancel(), limit=1)
        assert await bench.claim(5) == []

    async def test_a_sweep_goes_on_where_the_caller_stopped(self, bench: Bench) -> None:
        first, second = await of(bench, 5), await of(bench, 1)
        await bench.act(first, Cancel("enough"), limit=2)
        while (await bench.reclaim()).more:
            pass
        assert await status(bench, first, second) == [BatchStatus.CANCELLED, BatchStatus.RUNNING]
        assert {task.reason for task in await bench.every_task() if task.batch == first.id} == {"enough"}

    async def test_cancelling_again_changes_nothing(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        await bench.act(batch, Cancel("one"))
        before = (await bench.batch(batch), await bench.every_task())
        assert (await bench.act(batch, Cancel("two"))).changed == 0
        assert (await bench.batch(batch), await bench.every_task()) == before

    @pytest.mark.parametrize("where", ["queued", "paused"])
    async def test_a_batch_that_does_not_run_is_cancelled_too(self, bench: Bench, where: str) -> None:
        await of(bench, 1)
        batch = await of(bench, 2, paused=where == "paused")
        await bench.act(batch, Cancel())
        assert await status(bench, batch) == [BatchStatus.CANCELLED]

    async def test_a_batch_that_is_done_is_not_cancelled(self, bench: Bench) -> None:
        batch = await _failed(bench, None)
        with pytest.raises(InvalidInput):
            await bench.act(batch, Cancel())

    async def test_a_batch_that_is_being_cancelled_does_nothing_else(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        await bench.take()
        await bench.act(batch, Cancel())
        for act in (Pause(), Resume(), Move("top"), Requeue(), Delete(force=True)):
            with pytest.raises(InvalidInput):
                await bench.act(batch, act)


class Requeueing:
    async def test_what_failed_waits_again(self, bench: Bench) -> None:
        batch = await _failed(bench, None, NEVER, LOST)
        changed = await bench.act(batch, Requeue())
        assert (changed.changed, changed.refused, changed.more) == (2, (), False)
        shown = await bench.batch(batch)
        assert (shown.status, shown.finished_at) == (BatchStatus.RUNNING, None)
        claims = await bench.claim(5)
        assert [(claim.attempt, claim.batch) for claim in claims] == [(1, batch.id)] * 2
        for claim in claims:
            await bench.complete(claim)
        assert await status(bench, batch) == [BatchStatus.DONE]

    async def test_a_requeued_batch_goes_to_the_end_of_the_line(self, bench: Bench) -> None:
        batch = await _failed(bench, NEVER, name="z")
        await lined_up(bench, "abc")
        await bench.act(batch, Requeue())
        assert await line(bench) == "bcz"

    @pytest.mark.parametrize("error", ["net", "OSError", "00c0ffee"])
    async def test_only_failures_of_one_kind(self, bench: Bench, error: str) -> None:
        batch = await _failed(bench, NEVER, LOST)
        assert (await bench.act(batch, Requeue(error=error))).changed == 1
        (claim,) = await bench.claim(5)
        assert (await bench.task(claim.id)).error == LOST
        await bench.complete(claim)
        assert await status(bench, batch) == [BatchStatus.DONE_WITH_ERRORS]

    async def test_nothing_to_requeue_leaves_the_batch_as_it_is(self, bench: Bench) -> None:
        batch = await _failed(bench, NEVER, None)
        assert (await bench.act(batch, Requeue(error="nothing"))).changed == 0
        assert await bench.batch(batch) == batch

    async def test_what_was_cancelled_waits_again_if_told_so(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        await bench.act(batch, Cancel("enough"))
        assert (await bench.act(batch, Requeue())).changed == 0
        assert (await bench.act(batch, Requeue(cancelled=True))).changed == 2
        shown = await bench.batch(batch)
        assert (shown.status, shown.reason) == (BatchStatus.RUNNING, None)

    async def test_attempts_of_items_are_kept_if_told_so(self, bench: Bench) -> None:
        batch = await _failed(bench, NEVER)
        await bench.act(batch, Requeue(keep_attempts=True))
        assert (await bench.take()).attempt == 2

    async def test_items_are_requeued_in_portions(self, bench: Bench) -> None:
        batch = await _failed(bench, *[NEVER] * 3)
        first = await bench.act(batch, Requeue(), limit=2)
        second = await bench.act(batch, Requeue(), limit=2)
        assert [(one.changed, one.more) for one in (first, second)] == [(2, True), (1, False)]
        assert len(await bench.claim(5)) == 3

    async def test_an_item_whose_key_another_task_has_is_refused(self, bench: Bench) -> None:
        keyed = bench.new(unique=Unique("k"))
        batch = await bench.create(keyed, bench.new())
        for claim in await bench.claim(2):
            await bench.report(claim, Failed(NEVER))
        await bench.add(unique=Unique("k"))
        changed = await bench.act(batch, Requeue())
        assert (changed.changed, changed.refused) == (1, (keyed.id,))

    async def test_items_of_a_batch_that_runs_wait_again_at_once(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        await bench.report(await bench.take(), Failed(NEVER))
        await bench.act(batch, Requeue())
        assert len(await bench.claim(5)) == 2

    async def test_an_item_that_is_retried_takes_its_batch_back_in_line(self, bench: Bench) -> None:
        batch = await _failed(bench, NEVER, None, name="z")
        await lined_up(bench, "ab")
        assert await bench.retry(by(batch=batch.id)) == Changed(changed=1)
        assert await line(bench) == "bz"
        assert (await bench.batch(batch)).counts == {State.COMPLETED: 1, State.HELD: 1}
        assert (await bench.batch(batch)).finished_at is None

    async def test_an_item_that_is_retried_runs_if_there_is_a_slot(self, bench: Bench) -> None:
        batch = await _failed(bench, NEVER)
        await silence(bench.store)
        await bench.retry(EVERYTHING)
        assert await status(bench, batch) == [BatchStatus.RUNNING]
        assert await bench.store.wait(["default"], SOON)
        await bench.complete(await bench.take())
        assert await status(bench, batch) == [BatchStatus.DONE]


class DeletingBatches:
    async def test_an_ended_batch_goes_with_its_items(self, bench: Bench) -> None:
        batch = await _failed(bench, None, NEVER)
        other = await bench.add()
        changed = await bench.act(batch, Delete())
        assert (changed.batch, changed.changed, changed.more) == (None, 2, False)
        assert (await bench.store.batches(), await bench.every_task()) == ([], [other])
        with pytest.raises(NotFound):
            await bench.store.act_on_batch(batch.id, Delete())

    async def test_a_batch_that_has_not_ended_needs_force(self, bench: Bench) -> None:
        first, second = await of(bench, 2), await of(bench, 1)
        with pytest.raises(InvalidInput):
            await bench.act(first, Delete())
        assert (await bench.act(first, Delete(force=True))).batch is None
        assert await status(bench, second) == [BatchStatus.RUNNING]

    async def test_a_batch_of_which_something_runs_is_not_deleted(self, bench: Bench) -> None:
        batch = await of(bench, 2)
        await bench.take()
        with pytest.raises(InvalidInput):
            await bench.act(batch, Delete(force=True))
        assert (await bench.batch(batch)).counts == {State.RUNNING: 1, State.HELD: 1}

    async def test_many_items_are_deleted_in_portions(self, bench: Bench) -> None:
        batch = await _failed(bench, *[NEVER] * 3)
        first = await bench.act(batch, Delete(), limit=2)
        assert (first.changed, first.more) == (2, True)
        second = await bench.act(batch, Delete(), limit=2)
        assert (second.changed, second.more, second.batch) == (1, False, None)
        assert await bench.every_task() == []

    async def test_a_deleted_batch_may_be_created_again(self, bench: Bench) -> None:
        tasks = items(bench, 1, unique=Unique("k"))
        batch = await bench.create(*tasks, id="b1")
        await bench.act(batch, Delete(force=True))
        assert (await bench.create(*tasks, id="b1")).total == 1

    async def test_prune_leaves_items_alone(self, bench: Bench) -> None:
        await _failed(bench, None, NEVER)
        claim = await bench.started()
        await bench.complete(claim)
        assert await bench.prune() == Changed(changed=1)
        assert (await bench.store.count(EVERYTHING)).number == 2
