"""Operations: each task once, only what matched when it began, and one act per portion."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from pitboss.model.access import AuditEntry
from pitboss.model.errors import InvalidInput, NotFound, NotLeader
from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.limits import rate
from pitboss.model.operation import (
    READ_PER_TASK,
    NewOperation,
    Operation,
    OperationChange,
    OperationStatus,
    Verb,
)
from pitboss.model.outcome import Failed
from pitboss.model.states import State
from pitboss.model.task import Task, Unique
from pitboss.testing.conformance.bench import BROKEN, Bench

DONE, RUNNING = OperationStatus.DONE, OperationStatus.RUNNING
FOR_GOOD = Failed(replace(BROKEN, retryable=False))


async def failed(bench: Bench, number: int, **options: Any) -> list[Task]:
    """New tasks that have failed, before the present moment."""
    await bench.put(*(bench.new(**options) for _ in range(number)))
    claims = await bench.claim(number)
    for claim in claims:
        await bench.report(claim, FOR_GOOD)
    bench.clock.advance(1)
    return [await bench.task(claim.id) for claim in claims]


async def begin(bench: Bench, verb: Verb, wanted: str = "", **options: Any) -> Operation:
    new = NewOperation(id=bench.ids(), verb=verb, wanted=parsed(wanted), **options)
    return await bench.store.begin_operation(new)


async def portion(bench: Bench, operation: Operation, limit: int = 100) -> Operation:
    """One portion, and a look at the whole store."""
    after = await bench.store.advance_operation(operation.id, operation.cursor, limit=limit)
    await bench.look(revived=True, pruned=operation.verb is Verb.DISCARD)
    assert after is not None
    return after


async def perform(bench: Bench, operation: Operation, limit: int = 100) -> Operation:
    """All portions."""
    while operation.status is RUNNING:
        operation = await portion(bench, operation, limit)
    return operation


class Operating:
    async def test_a_new_operation_runs_and_has_done_nothing(self, bench: Bench) -> None:
        (task,) = await failed(bench, 1)
        new = NewOperation(id=bench.ids(), verb=Verb.RETRY, wanted=parsed("queue:default"), by="ann", matched=1)
        begun = await bench.store.begin_operation(new)
        assert (begun.began, begun.status, begun.done, begun.by) == (bench.now, RUNNING, 0, "ann")
        assert await bench.task(task.id) == task
        bench.clock.advance(1)
        assert await bench.store.begin_operation(replace(new, by="bob")) == begun
        assert await bench.store.operations() == [begun]

    async def test_lists(self, bench: Bench) -> None:
        one, two, three = [await begin(bench, Verb.CANCEL) for _ in range(3)]
        over = await portion(bench, two)
        assert over.status is DONE
        store = bench.store
        assert await store.operations() == [three, over, one]
        assert await store.operations(limit=2) == [three, over]
        assert await store.operations(statuses=[RUNNING]) == [three, one]
        assert await store.operations(statuses=[RUNNING], limit=1) == [three]
        assert await store.operations([one.id, bench.ids(), three.id]) == [three, one]
        assert await store.operations([]) == []

    async def test_failed_tasks_are_retried_in_portions_oldest_first(self, bench: Bench) -> None:
        tasks = await failed(bench, 5)
        operation = await begin(bench, Verb.RETRY)
        first = await portion(bench, operation, 2)
        assert (first.done, first.cursor, first.status) == (2, tasks[1].id, RUNNING)
        assert await bench.states(*tasks) == [State.PENDING] * 2 + [State.FAILED] * 3
        over = await perform(bench, first, 2)
        assert (over.done, over.status, over.ended_at) == (5, DONE, bench.now)
        assert await bench.states(*tasks) == [State.PENDING] * 5
        assert {(await bench.task(task.id)).attempts for task in tasks} == {0}

    async def test_each_is_retried_once_though_all_fail_again(self, bench: Bench) -> None:
        tasks = await failed(bench, 6)
        operation = await begin(bench, Verb.RETRY)
        while operation.status is RUNNING:
            operation = await portion(bench, operation, 2)
            for claim in await bench.claim(10):
                await bench.report(claim, FOR_GOOD)
        assert operation.done == 6
        assert {len(await bench.history(task)) for task in tasks} == {2}
        (shown,) = await bench.store.operations([operation.id])
        assert shown.failed_again == 6

    async def test_a_portion_happens_once_for_several_performers(self, bench: Bench) -> None:
        await failed(bench, 4)
        operation = await begin(bench, Verb.RETRY)
        other = await bench.open_engine()
        both = (store.advance_operation(operation.id, operation.cursor, limit=2) for store in (bench.store, other))
        answers = await asyncio.gather(*both)
        assert {answer.done for answer in answers if answer is not None} == {2}
        stale = await portion(bench, operation, 2)
        assert (stale.done, (await bench.store.count(by(state=State.PENDING))).number) == (2, 2)
        assert await bench.store.advance_operation(bench.ids(), "", limit=2) is None

    async def test_only_what_matched_when_it_began_counts(self, bench: Bench) -> None:
        (before,) = await failed(bench, 1)
        operation = await begin(bench, Verb.RETRY, "-tag:no age:<1h")
        bench.clock.advance(1)
        (after,) = await failed(bench, 1)
        other = await bench.add()
        over = await perform(bench, operation)
        assert (over.done, await bench.states(before, after)) == (1, [State.PENDING, State.FAILED])
        cancelling = await begin(bench, Verb.CANCEL, "-id:" + before.id)
        bench.clock.advance(1)
        late = await bench.add()
        over = await perform(bench, cancelling)
        assert (over.done, await bench.states(other, late)) == (1, [State.CANCELLED, State.PENDING])

    @pytest.mark.parametrize("wanted", ["tag:yes", "state:failed tag:yes", "state:cancelled,failed tag:yes", "tag:y*"])
    async def test_a_portion_reads_a_bounded_number_of_tasks(self, bench: Bench, wanted: str) -> None:
        bench.watching = False
        await failed(bench, READ_PER_TASK + 3)
        (task,) = await failed(bench, 1, tags=("yes",))
        operation = await begin(bench, Verb.RETRY, wanted)
        first = await portion(bench, operation, 1)
        assert (first.done, first.status) == (0, RUNNING)
        assert first.cursor
        second = await portion(bench, first, 1)
        assert (second.done, second.cursor, second.status) == (1, task.id, DONE)

    async def test_states_of_the_filter_narrow_it(self, bench: Bench) -> None:
        (dead,) = await failed(bench, 1)
        gone = await bench.add()
        await bench.cancel(gone.id)
        bench.clock.advance(1)
        assert (await perform(bench, await begin(bench, Verb.RETRY, "state:cancelled"))).done == 1
        assert await bench.states(dead, gone) == [State.FAILED, State.PENDING]
        assert (await perform(bench, await begin(bench, Verb.RETRY, "state:pending"))).done == 0
        assert (await perform(bench, await begin(bench, Verb.DISCARD, "state:failed,cancelled"))).done == 1
        assert await bench.store.get([dead.id]) == [None]

    async def test_cancelling_asks_running_tasks_to_stop(self, bench: Bench) -> None:
        running = await bench.started()
        waiting = await bench.add()
        await failed_items(bench)
        over = await perform(bench, await begin(bench, Verb.CANCEL, reason="enough"), 1)
        assert (over.done, over.asked, over.refused) == (1, 1, 0)
        assert (await bench.task(running.id)).cancel_asked
        assert (await bench.task(waiting.id)).reason == "enough"

    async def test_what_cannot_be_changed_is_refused(self, bench: Bench) -> None:
        (first,) = await failed(bench, 1, unique=Unique("k"))
        await bench.add(unique=Unique("k"))
        over = await perform(bench, await begin(bench, Verb.RETRY))
        assert (over.done, over.refused, over.refused_tasks) == (0, 1, (first.id,))
        await bench.complete(await bench.take())
        (kept,) = await failed(bench, 1, unique=Unique("p", 60_000_000))
        over = await perform(bench, await begin(bench, Verb.DISCARD))
        assert (over.done, over.refused, over.refused_tasks) == (2, 1, (kept.id,))

    async def test_items_of_batches_are_retried_with_their_batch(self, bench: Bench) -> None:
        item = bench.new()
        batch = await bench.create(item)
        await bench.report(await bench.take(), FOR_GOOD)
        bench.clock.advance(1)
        over = await perform(bench, await begin(bench, Verb.RETRY))
        assert (over.done, (await bench.batch(batch)).run) == (1, 2)
        await bench.report(await bench.take(), FOR_GOOD)
        bench.clock.advance(1)
        over = await perform(bench, await begin(bench, Verb.DISCARD))
        assert (over.done, over.refused_tasks) == (0, (item.id,))

    async def test_attempts_are_kept_if_that_is_wanted(self, bench: Bench) -> None:
        (task,) = await failed(bench, 1)
        over = await perform(bench, await begin(bench, Verb.RETRY, keep_attempts=True))
        assert (await bench.task(task.id)).attempts == 1
        assert over.failed_again == 0


async def failed_items(bench: Bench) -> None:
    """A task of each finished state: cancelling leaves these alone."""
    for outcome in (None, FOR_GOOD):
        task = await bench.add(queue="other")
        claim = await bench.take("other")
        assert claim.id == task.id
        await (bench.complete(claim) if outcome is None else bench.report(claim, outcome))


class OperationRates:
    async def test_a_rate_spreads_the_tasks_whoever_performs_it(self, bench: Bench) -> None:
        await failed(bench, 9)
        operation = await begin(bench, Verb.RETRY, rate=rate("4/s"))
        first = await portion(bench, operation)
        assert (first.done, first.next_at) == (2, bench.now + 500_000)
        assert await portion(bench, first) == first
        bench.clock.advance("499999us")
        assert await portion(bench, first) == first
        bench.clock.advance("1us")
        second = await portion(bench, first)
        assert second.done == 4
        # What was not used while no caller performed it is lost.
        bench.clock.advance("10s")
        assert (await portion(bench, second)).done == 6

    async def test_it_stops_when_too_many_fail_again(self, bench: Bench) -> None:
        await failed(bench, 10)
        operation = await begin(bench, Verb.RETRY, rate=rate("4/s"), stop_on_failures=2)
        operation = await portion(bench, operation)
        first, second = await bench.claim(2)
        await bench.report(first, FOR_GOOD)
        bench.clock.advance(1)
        operation = await portion(bench, operation)
        assert (operation.done, operation.status) == (4, RUNNING)
        # An attempt that failed counts, also if another one follows.
        await bench.report(second, Failed(BROKEN))
        assert (await bench.task(second.id)).state is State.SCHEDULED
        bench.clock.advance(1)
        stopped = await portion(bench, operation)
        assert (stopped.status, stopped.done, stopped.failed_again) == (OperationStatus.STOPPED, 4, 2)
        assert "failed again" in (stopped.why or "")
        assert await portion(bench, stopped) == stopped

    async def test_failures_belong_to_the_operation_that_retried_last(self, bench: Bench) -> None:
        (task,) = await failed(bench, 1)
        first = await begin(bench, Verb.RETRY, rate=rate("1/s"))
        await portion(bench, first)
        await bench.report(await bench.take(), FOR_GOOD)
        assert [one.failed_again for one in await bench.store.operations()] == [1]
        await bench.retry(task.id)
        await bench.report(await bench.take(), FOR_GOOD)
        assert [one.failed_again for one in await bench.store.operations()] == [0]

    async def test_a_task_that_succeeds_at_last_has_not_failed_again(self, bench: Bench) -> None:
        await failed(bench, 1)
        operation = await portion(bench, await begin(bench, Verb.RETRY))
        assert operation.status is DONE
        await bench.report(await bench.take(), Failed(BROKEN))
        assert [one.failed_again for one in await bench.store.operations()] == [1]
        bench.clock.advance("10s")
        await bench.complete(await bench.take())
        assert [one.failed_again for one in await bench.store.operations([operation.id])] == [0]

    @pytest.mark.parametrize(
        "options",
        [
            {"verb": Verb.RETRY},
            {"verb": Verb.CANCEL, "rate": rate("1/s")},
            {"verb": Verb.RETRY, "rate": rate("1/s"), "keep_attempts": True},
        ],
    )
    async def test_stopping_on_failures_needs_a_retry_at_a_rate(self, bench: Bench, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="stopping on failures"):
            await begin(bench, stop_on_failures=1, **options)
        assert await bench.store.operations() == []


class ChangingOperations:
    async def test_a_cancelled_operation_does_no_more(self, bench: Bench) -> None:
        await failed(bench, 3)
        operation = await portion(bench, await begin(bench, Verb.RETRY), 1)
        change = OperationChange(cancel=True, by="ann")
        cancelled = await bench.store.change_operation(operation.id, change)
        assert (cancelled.status, cancelled.ended_at) == (OperationStatus.CANCELLED, bench.now)
        assert "ann" in (cancelled.why or "")
        assert await portion(bench, cancelled) == cancelled
        assert (await bench.store.count(by(state=State.FAILED))).number == 2
        bench.clock.advance(1)
        assert await bench.store.change_operation(operation.id, change) == cancelled
        with pytest.raises(NotFound):
            await bench.store.change_operation(bench.ids(), change)

    async def test_the_rate_can_change(self, bench: Bench) -> None:
        await failed(bench, 8)
        operation = await portion(bench, await begin(bench, Verb.RETRY, rate=rate("1/h")))
        assert operation.done == 1
        faster = await bench.store.change_operation(operation.id, OperationChange(rate=rate("2/s")))
        assert faster.next_at == bench.now + 500_000
        bench.clock.advance("500ms")
        faster = await portion(bench, faster)
        assert faster.done == 2
        unpaced = await bench.store.change_operation(operation.id, OperationChange(rate=()))
        assert (await perform(bench, unpaced)).done == 8

    async def test_a_portion_that_could_not_be_done_is_told_and_waits(self, bench: Bench) -> None:
        await failed(bench, 3)
        operation = await begin(bench, Verb.RETRY)
        troubled = await bench.store.change_operation(operation.id, OperationChange(trouble="no"))
        assert (troubled.status, troubled.why) == (OperationStatus.RUNNING, "no")
        assert await bench.store.operations([operation.id]) == [troubled]
        assert await portion(bench, troubled) == troubled
        bench.clock.advance(10)
        after = await portion(bench, troubled)
        assert (after.done, after.why) == (3, None)

    async def test_begin_and_change_store_an_entry_in_the_audit_log(self, bench: Bench) -> None:
        entries = [AuditEntry(id=bench.ids(), who="ann", act=act) for act in ("retry", "cancel")]
        new = NewOperation(id=bench.ids(), verb=Verb.RETRY, wanted=EVERYTHING)
        await bench.store.audited(entries[0]).begin_operation(new)
        await bench.store.audited(entries[1]).change_operation(new.id, OperationChange(cancel=True))
        assert [one.act for one in await bench.store.audit_log()] == ["cancel", "retry"]

    async def test_old_ones_are_forgotten_by_the_leader(self, bench: Bench) -> None:
        old = await perform(bench, await begin(bench, Verb.CANCEL))
        bench.clock.advance(1)
        young, running = await perform(bench, await begin(bench, Verb.CANCEL)), await begin(bench, Verb.CANCEL)
        lead = await bench.store.campaign(bench.me.number)
        with pytest.raises(NotLeader):
            await bench.store.forget_operations(bench.now, term=lead.term + 1)
        assert old.ended_at is not None
        assert await bench.store.forget_operations(old.ended_at + 1, term=lead.term) == 1
        assert await bench.store.operations() == [running, young]
        assert await bench.store.forget_operations(bench.now + 1, limit=1) == 1
        assert await bench.store.operations() == [running]


__all__ = ["ChangingOperations", "Operating", "OperationRates"]
