"""Batches from code: made, followed, steered and read back. The store is in memory; engines have tests of their own."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pitboss import App, InvalidInput, NotFound, State, TimedOutWaiting
from pitboss.client.batch_handle import BatchHandle, act_in_portions
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import BatchChanged, BatchStatus, Requeue
from pitboss.model.errors import Unsupported
from pitboss.testing.sandbox import Sandbox, sandbox

ENDED: list[tuple[str, str]] = []
app = App("memory://")


@app.task
def square(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return number * number


@app.task
def shout(text: str) -> str:
    return text.upper()


@app.task
def report(batch: str, status: str, to: str = "ann") -> None:
    ENDED.append((batch, f"{status} for {to}"))


@app.task
def count_runs(batch: str, status: str, run: int) -> None:
    ENDED.append((batch, f"{status} in run {run}"))


@app.task
def deaf(to: str) -> None: ...


@pytest.fixture
def box() -> Iterator[Sandbox]:
    ENDED.clear()
    with sandbox(app) as box:
        yield box


def numbers(count: int) -> list[dict[str, int]]:
    return [{"number": number} for number in range(count)]


def test_a_batch_runs_to_its_end_and_tells(box: Sandbox) -> None:
    handle = square.batch(numbers(30), name="night run", data={"for": "ann"}, on_complete=report)
    found = handle.batch()
    assert (found.status, found.name, found.total, found.data) == ("running", "night run", 30, '{"for":"ann"}')
    box.drain()
    ended = handle.wait(1)
    assert ended.status is BatchStatus.DONE
    assert handle.status is BatchStatus.DONE
    assert ended.counts == {State.COMPLETED: 30}
    assert [(one.params["number"], one.value) for one in handle.results()] == [(n, n * n) for n in range(30)]
    assert [(handle.id, "done for ann")] == ENDED


def test_a_batch_may_mix_handlers_and_results_are_decoded_by_each(box: Sandbox) -> None:
    handle = app.batch([square.prepared(3), shout.prepared("hey"), shout.using(priority=-1).prepared("first")])
    box.drain()
    assert [one.value for one in handle.results()] == [9, "HEY", "FIRST"]


def test_more_items_than_fit_a_page_are_iterated(box: Sandbox) -> None:
    handle = square.batch(numbers(1203))
    assert len(list(handle.items())) == 1203
    assert [task.params for task in handle.items("args.number:7")] == ['{"number":7}']
    other = square.batch(numbers(2))
    assert len(list(other.items())) == 2


def test_failures_are_an_end_with_errors_and_can_be_requeued(box: Sandbox) -> None:
    handle = square.using(max_attempts=1).batch([{"number": -1}, {"number": 2}], on_complete=report.prepared("", ""))
    box.drain()
    assert handle.status is BatchStatus.DONE_WITH_ERRORS
    assert [task.error and task.error.type for task in handle.items(state="failed")] == ["ValueError"]
    assert [(handle.id, "done_with_errors for ann")] == ENDED
    assert handle.requeue(error="KeyError").changed == 0
    done = handle.requeue(error="ValueError")
    assert (done.changed, done.refused) == (1, ())
    assert handle.batch().left == 1


def test_each_end_of_a_batch_is_reported_with_the_number_of_the_run(box: Sandbox) -> None:
    handle = square.using(max_attempts=1).batch([{"number": -1}], on_complete=count_runs)
    box.drain()
    handle.requeue()
    box.drain()
    assert [(handle.id, "done_with_errors in run 1"), (handle.id, "done_with_errors in run 2")] == ENDED
    assert handle.batch().run == 2


def test_the_line_can_be_paused_moved_started_and_cancelled(box: Sandbox) -> None:
    first, second, third = (square.batch(numbers(3), name=name) for name in "abc")
    assert [one.batch().position for one in (first, second, third)] == [0, 1, 2]
    assert third.move("before", second).position == 1
    assert third.move("down").position == 2
    assert second.move("bottom").position == 2
    assert first.pause().status is BatchStatus.PAUSED
    assert third.status is BatchStatus.RUNNING
    assert first.resume(at="top").position == 1
    assert first.start().status is BatchStatus.RUNNING
    assert second.cancel("wrong list").status is BatchStatus.CANCELLED
    assert {task.reason for task in second.items()} == {"wrong list"}
    assert [batch.name for batch in app.batches("cancelled")] == ["b"]
    second.delete()
    with pytest.raises(NotFound, match="not in the store"):
        second.batch()
    with pytest.raises(InvalidInput):
        third.delete()
    first.pause()
    first.delete(force=True)
    assert [batch.name for batch in app.batches()] == ["c"]


def test_a_batch_can_wait_to_be_resumed_and_the_same_id_makes_no_second(box: Sandbox) -> None:
    chosen = app.new_id()
    handle = square.batch(numbers(3), paused=True, id=chosen)
    again = square.batch(numbers(5), id=chosen)
    assert again.id == handle.id == chosen
    assert again.batch().total == 3
    assert handle.status is BatchStatus.PAUSED
    assert box.drain() == []
    assert app.batch_handle(chosen).resume().status is BatchStatus.RUNNING


def test_lanes_have_room_for_as_many_as_is_said(box: Sandbox) -> None:
    assert app.lane("slow").max_running == 1
    assert app.lane("slow", max_running=2).max_running == 2
    handles = [square.batch(numbers(1), lane="slow") for _ in range(3)]
    assert [handle.status for handle in handles] == ["running", "running", "queued"]
    assert (app.lane("slow").running, app.lane("slow").queued) == (2, 1)


def test_async_callers_have_the_same(box: Sandbox) -> None:
    async def main() -> None:
        handle = await square.abatch(numbers(3))
        mixed = await app.abatch([shout.prepared("x")])
        assert (await handle.abatch()).total == 3
        assert await mixed.astatus() == "queued"
        assert (await mixed.amove("top")).position == 1
        assert (await handle.apause()).status == "paused"
        assert (await handle.aresume()).status == "queued"
        assert (await handle.astart()).status == "running"
        assert (await handle.acancel()).status == "cancelled"
        assert (await handle.awaited(1)).status == "cancelled"
        assert (await handle.arequeue(cancelled=True)).changed == 3
        assert [task.state async for task in handle.aitems(state="held")] == ["held"] * 3
        assert [one async for one in handle.aresults()] == []
        await handle.adelete(force=True)
        assert [batch.id for batch in await app.abatches()] == [mixed.id]
        assert (await app.alane(max_running=3)).max_running == 3

    asyncio.run(main())


def test_waiting_ends_in_time(box: Sandbox) -> None:
    handle = square.batch(numbers(3))
    with pytest.raises(TimedOutWaiting, match="0 of 3 items have ended"):
        handle.wait(0)
    with pytest.raises(TimedOutWaiting):
        asyncio.run(handle.awaited(0))


def test_a_result_without_a_limit_is_waited_for(box: Sandbox) -> None:
    handle = square.batch(numbers(1))
    box.drain()
    assert handle.wait().status is BatchStatus.DONE
    single = square.enqueue(2)
    box.drain()
    assert single.result() == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "two\nlines"}, "cannot name a batch"),
        ({"name": "x" * 201}, "cannot name a batch"),
        ({"lane": "a b"}, "cannot name a lane"),
        ({"id": "night"}, "UUID of version 7"),
        ({"data": {"x": float("nan")}}, "data of the batch"),
        ({"on_complete": deaf}, "let it take batch: str and status: str"),
        ({"on_complete": deaf.prepared("ann")}, "let it take batch: str and status: str"),
        ({"wait": "soon"}, "not a duration"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_stored(box: Sandbox, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        square.batch(numbers(2), **options)
    assert said in str(caught.value)
    assert app.batches() == []


def test_one_bad_item_refuses_the_whole_batch(box: Sandbox) -> None:
    with pytest.raises(InvalidInput, match="do not fit"):
        square.batch([{"number": 1}, {"number": "x"}])
    with pytest.raises(InvalidInput, match="transaction"):
        square.using(within=object()).batch(numbers(1))
    assert app.batches() == []
    assert box.tasks() == []


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda handle: handle.move("before"), "needs other batch"),
        (lambda handle: handle.move("top", handle), "takes no other batch"),
        (lambda _: app.batches("runing"), "is not a status"),
        (lambda _: app.lane("x", max_running=0), "max_running=0"),
        (lambda _: app.lane("a b"), "cannot name a lane"),
    ],
)
def test_acts_that_make_no_sense_are_refused(box: Sandbox, act: Any, said: str) -> None:
    handle: BatchHandle = square.batch(numbers(1))
    with pytest.raises(InvalidInput) as caught:
        act(handle)
    assert said in str(caught.value)


def test_an_engine_without_batches_says_so() -> None:
    with pytest.raises(Unsupported, match="use SQLite or PostgreSQL"):
        batches_of(object())


class Stubborn:
    """Always wants another portion, and changes nothing from the third on."""

    def __init__(self) -> None:
        self.asked = 0

    async def act_on_batch(self, batch: str, act: object, *, limit: int = 1000) -> BatchChanged:
        self.asked += 1
        return BatchChanged(batch=None, changed=5 if self.asked < 3 else 0, refused=("t",), more=True)


def test_portions_end_even_if_what_is_refused_stays() -> None:
    store: Any = Stubborn()
    told: list[int] = []
    total = asyncio.run(act_in_portions(store, "b", Requeue(), lambda step: told.append(step.changed)))
    assert (total.changed, total.refused) == (10, ("t",))
    assert told[:3] == [5, 10, 10]
    assert store.asked == 5
