"""Bulk acts: a few tasks in one act, many as an operation that one process performs and others watch."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pitboss.client.operations import PORTION, OperationPerformer
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.happening import Kind
from pitboss.model.limits import rate
from pitboss.model.operation import NewOperation, Operation, OperationChange, OperationStatus, Verb
from pitboss.model.states import State
from pitboss.model.task import Unique
from pitboss.operate.operations import (
    FEW,
    BulkResult,
    LeftOut,
    Pace,
    act_on_tasks,
    done_text,
    find_operation,
    left_out,
    operation_document,
    pace,
    until_over,
)
from pitboss.operate.tasks import select_tasks
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.duties import Duty, Pause
from pitboss.upkeep.operations import OperationDuty
from tests.operate.bench import Bench

DONE, STOPPED = OperationStatus.DONE, OperationStatus.STOPPED


def virtually(work: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """In virtual time, which is the store's too."""
    store = Bench()
    run_virtual(work(store), clock=store.time)


async def failed(store: Bench, number: int, **options: Any) -> None:
    await store.add(*(store.new(**options) for _ in range(number)))
    await store.run_all(fail="no")
    store.time.advance("2s")


def wanted(store: Bench, verb: Verb, text: str = "", at: str = "", **options: Any) -> NewOperation:
    windows = rate(at) if at else ()
    return NewOperation(id=store.new_id(), verb=verb, wanted=parsed(text), rate=windows, **options)


async def begun(store: Bench, text: str = "state:failed", at: str = "10/s", **options: Any) -> Operation:
    return await store.begin_operation(wanted(store, Verb.RETRY, text, at, **options))


async def watched(store: Bench, operation: Operation, **options: Any) -> Operation:
    given: dict[str, Any] = {"stop": asyncio.Event(), "told": lambda _: None} | options
    return await until_over(store, operation, **given)


async def often(work: Callable[[], Any]) -> None:
    """`work` is done every tenth of a second."""
    while True:
        await asyncio.sleep(0.1)
        await work()


async def with_workers(store: Bench, operation: Operation, **fails: Any) -> Operation:
    """Performed while workers end at once what was retried."""
    working = asyncio.create_task(often(lambda: store.run_all(**{"fail": "again"} | fails)))
    try:
        return await watched(store, operation)
    finally:
        working.cancel()


async def test_a_few_tasks_are_changed_in_one_act(store: Bench) -> None:
    await store.add(*(store.new(queue="a") for _ in range(FEW)), store.new(queue="b"))
    cancelling = wanted(store, Verb.CANCEL, "queue:a", reason="enough")
    assert await act_on_tasks(store, cancelling) == BulkResult(changed=FEW)
    assert (await store.count(by(state="cancelled", reason="enough"))).number == FEW
    assert await store.operations() == []
    again = wanted(store, Verb.RETRY, "state:cancelled")
    assert await act_on_tasks(store, again) == BulkResult(changed=FEW)
    assert await act_on_tasks(store, wanted(store, Verb.RETRY, "queue:none")) == BulkResult()


async def test_the_entry_of_an_act_has_its_number_and_its_operation(store: Bench) -> None:
    """Regression: an entry did not say how many tasks the act was about."""
    told = list[dict[str, Any]]()

    def audited(details: dict[str, Any]) -> Bench:
        told.append(details)
        return store

    await failed(store, 3)
    few = await select_tasks(store, parsed("state:failed"), (State.FAILED,))
    assert few.wanted == parsed("state:failed")
    paced = wanted(store, Verb.RETRY, "state:failed", at="1/s", matched=3)
    await act_on_tasks(store, paced, audited)
    await act_on_tasks(store, wanted(store, Verb.RETRY, "state:failed"), audited)
    assert told == [{"tasks": 3, "operation": paced.id}, {"tasks": 3}]


async def test_tasks_whose_key_is_taken_are_refused(store: Bench) -> None:
    await failed(store, 1, unique=Unique("k"))
    (task,) = (await store.find(EVERYTHING)).tasks
    await store.add(store.new(unique=Unique("k")))
    assert await act_on_tasks(store, wanted(store, Verb.RETRY, "state:failed")) == BulkResult(refused=(task.id,))
    assert await act_on_tasks(store, wanted(store, Verb.DISCARD, "state:failed")) == BulkResult(changed=1)


def test_more_are_an_operation() -> None:
    async def work(store: Bench) -> None:
        await store.add(*(store.new() for _ in range(FEW + 1)))
        operation = await act_on_tasks(store, wanted(store, Verb.CANCEL, by="ann", matched=FEW + 1))
        assert isinstance(operation, Operation)
        seen = list[int]()
        over = await watched(store, operation, told=lambda one: seen.append(one.done))
        assert (over.status, over.done) == (DONE, FEW + 1)
        assert seen == sorted(seen)
        assert seen[0] == PORTION
        document = operation_document(over)
        assert (document["status"], document["done"], document["by"]) == ("done", FEW + 1, "ann")
        assert {"began_at", "ended_at", "filter", "rate"} <= document.keys()

    virtually(work)


def test_each_is_retried_once_though_all_fail_again() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 25)
        began = asyncio.get_running_loop().time()
        over = await with_workers(store, await begun(store))
        assert (over.status, over.done) == (DONE, 25)
        assert 2.0 <= asyncio.get_running_loop().time() - began <= 3.0
        assert over.failed_again >= 20
        tasks = (await store.find(EVERYTHING)).tasks
        await store.run_all(fail="again")
        assert {len(await store.attempts(task.id)) for task in tasks} == {2}

    virtually(work)


def test_what_fails_after_the_start_is_left_alone() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 10)

        async def another() -> None:
            await store.add(store.new(tags=("late",)))
            await store.run_all(fail="again")

        working = asyncio.create_task(often(another))
        over = await watched(store, await begun(store, at="5/s"))
        working.cancel()
        assert (over.status, over.done) == (DONE, 10)
        late = await store.find(by(tag="late"), limit=1000)
        assert {len(await store.attempts(task.id)) for task in late.tasks} == {1}

    virtually(work)


@pytest.mark.parametrize("retryable", [False, True])
def test_it_stops_when_too_many_fail_again(retryable: bool) -> None:
    """A failed attempt counts also if others follow."""

    async def work(store: Bench) -> None:
        await failed(store, 100)
        over = await with_workers(store, await begun(store, stop_on_failures=5), retryable=retryable)
        assert over.status is STOPPED
        assert 5 <= over.failed_again <= over.done <= 20
        assert (await store.count(by(state=State.FAILED))).number >= 100 - over.done

    virtually(work)


def test_who_stops_watching_does_not_stop_it() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 30)
        stop = asyncio.Event()

        def tell(one: Operation) -> None:
            if one.done >= 10:
                stop.set()

        left = await watched(store, await begun(store), stop=stop, told=tell)
        assert (left.status, left.done) == (OperationStatus.RUNNING, 10)
        over = await watched(store, left)
        assert (over.status, over.done) == (DONE, 30)

    virtually(work)


def test_where_a_manager_leads_it_is_only_watched() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 30)
        session = await store.manager()
        lead = await store.campaign(session)
        operation = await begun(store, at="")
        watching = asyncio.create_task(watched(store, operation))
        await asyncio.sleep(2)
        assert (await store.operations())[0].done == 0
        duty = OperationDuty(store, store.time)
        assert await duty.perform(lead.term) is None
        assert (await watching).done == 30

    virtually(work)


def test_a_manager_that_does_nothing_is_not_waited_for() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 3)
        await store.campaign(await store.manager())
        assert (await watched(store, await begun(store, at=""))).done == 3

    virtually(work)


def test_a_slow_rate_is_kept_and_a_filter_too() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 3, queue="mail")
        await failed(store, 3)
        began = asyncio.get_running_loop().time()
        over = await watched(store, await begun(store, "state:failed queue:mail", at="2/m"))
        assert over.done == 3
        assert 60 <= asyncio.get_running_loop().time() - began <= 61

    virtually(work)


async def test_several_operations_take_turns(store: Bench) -> None:
    await failed(store, PORTION + 1, queue="a")
    await failed(store, PORTION + 1, queue="b")
    for queue in "ab":
        await begun(store, f"queue:{queue}", at="")
    performer = OperationPerformer(store, store.time)
    assert await performer.perform() is not None
    assert [one.done for one in await store.operations()] == [PORTION] * 2
    assert await performer.perform() is None
    assert [one.status for one in await store.operations()] == [DONE] * 2


async def test_an_operation_that_cannot_go_on_says_so_and_holds_up_no_other(
    store: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: its error ended the round, so that those after it were never performed."""
    for queue in "ab":
        await failed(store, 2 * PORTION, queue=queue)
    good, bad = [await begun(store, f"state:failed queue:{queue}", at="") for queue in "ab"]
    advance = store.advance_operation

    async def broken(operation: str, cursor: str, *, limit: int) -> Any:
        if operation == bad.id and store.now < good.began + 5_000_000:
            raise ValueError("cannot be read\nat all")
        return await advance(operation, cursor, limit=limit)

    monkeypatch.setattr(store, "advance_operation", broken)
    with pytest.raises(ValueError, match="cannot be read"):
        await OperationPerformer(store, store.time, only=bad.id).perform()
    performer = OperationPerformer(store, store.time)
    for _ in range(3):
        await performer.perform()
    found = {one.id: one for one in await store.operations()}
    assert (found[good.id].status, found[good.id].done) == (DONE, 2 * PORTION)
    why = "a portion could not be done, and is tried again: ValueError: cannot be read"
    assert (found[bad.id].status, found[bad.id].why) == (OperationStatus.RUNNING, why)
    store.time.advance(10)
    await performer.perform()
    (after,) = await store.operations([bad.id])
    assert (after.done, after.why) == (PORTION, None)


async def test_a_performer_notices_what_an_operator_does(store: Bench) -> None:
    await failed(store, 3 * PORTION)
    operation, performer = await begun(store, at=""), OperationPerformer(store, store.time)
    await performer.perform()
    await store.change_operation(operation.id, OperationChange(cancel=True))
    assert await performer.perform() is None
    assert [one.done for one in await store.operations()] == [PORTION]
    store.tables.operations.clear()
    assert await performer.perform() is None


async def test_the_duty_runs_as_often_as_the_rate_asks_and_forgets_old_ones(store: Bench) -> None:
    lead = await store.campaign(await store.manager())
    duty = OperationDuty(store, store.time)
    assert await duty.perform(lead.term) is None
    await failed(store, 10)
    await begun(store, at="4/s")
    pause = await Duty("operations", 1, duty.perform).work(lead.term)
    assert isinstance(pause, Pause)
    assert pause.seconds == pytest.approx(0.5)
    assert await duty.forget(lead.term) == 0
    (operation,) = await store.operations()
    await store.change_operation(operation.id, OperationChange(cancel=True))
    store.time.advance("31d")
    lead = await store.campaign(await store.manager())
    assert await duty.forget(lead.term) == 1


async def test_an_operation_that_stops_is_in_the_log_of_what_happened(store: Bench) -> None:
    """Regression: one that stopped because its tasks failed again was in no list."""
    noted = list[tuple[Any, ...]]()
    await failed(store, 5)
    operation = await begun(store, at="1/s", by="ann", stop_on_failures=1)
    duty = OperationDuty(store, store.time, lambda *said, **_: noted.append(said))
    for _ in range(5):
        await duty.perform(1)
        await store.run_all(fail="boom")
        store.time.advance(2)
    ((kind, subject, text, details),) = noted
    assert (kind, subject) == (Kind.OPERATION_STOPPED, f"operation {operation.id}")
    assert "(retry by ann) was stopped: " in text
    assert details["operation"] == operation.id


async def test_operations_are_found_by_a_piece_of_their_id(store: Bench) -> None:
    one = await begun(store)
    other = await begun(store)
    assert (await find_operation(store, one.id.upper())).id == one.id
    assert (await find_operation(store, other.id[-8:])).id == other.id
    with pytest.raises(NotFound, match="there is no operation"):
        await find_operation(store, "ffffffff")
    with pytest.raises(InvalidInput, match="several operations"):
        await find_operation(store, one.id[:8])
    with pytest.raises(InvalidInput, match="not the id of an operation"):
        await find_operation(store, "mail")


async def test_the_pace_of_an_operation_and_what_it_leaves_out(store: Bench) -> None:
    await failed(store, 4)
    fast = await begun(store, at="", matched=5)
    assert pace(fast, store.now) == Pace()
    store.time.advance("2s")
    half = await store.advance_operation(fast.id, "", limit=2)
    assert half is not None
    assert pace(half, store.now) == Pace(1.0, 3_000_000)
    assert left_out(half) == []
    whole = await store.advance_operation(fast.id, half.cursor, limit=10)
    assert whole is not None
    (left,) = left_out(whole)
    assert left.tasks == 1
    assert "no longer matched" in left.why
    assert pace(whole, store.now + 9_000_000).speed == 2.0
    await failed(store, 2)
    paced = await begun(store, at="2/s", matched=2)
    assert pace(paced, store.now).ends == 1_000_000
    stopped = await store.change_operation(paced.id, OperationChange(cancel=True, by="ana"))
    assert left_out(stopped) == [LeftOut(2, "cancelled by ana")]


def test_what_a_few_came_to_is_said() -> None:
    said = done_text(Verb.CANCEL, BulkResult(changed=1, asked=2))
    assert said == "1 task cancelled; 2 running tasks asked to stop"
    assert "1 refused: another unfinished task" in done_text(Verb.RETRY, BulkResult(refused=("a",)))
