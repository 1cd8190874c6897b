"""Why a task waits, and acts on many tasks."""

import pytest

from pitboss.model.batch import NewBatch
from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.queue import Changed, HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, ResourceChange
from pitboss.model.states import State
from pitboss.model.task import Unique
from pitboss.operate.tasks import (
    CANCELLABLE,
    PORTION,
    BulkResult,
    cancel_tasks,
    change_queues,
    delete_tasks,
    read_task,
    retry_tasks,
    retryable,
    select_tasks,
)
from tests.operate.bench import Bench


async def test_what_a_task_waits_for_is_read_from_the_store(store: Bench) -> None:
    (task,) = await store.add(store.new())

    async def why(one: str = task) -> str:
        return (await read_task(store, one, store.now)).why.sentence

    assert await why() == "no manager is running on this store"
    await store.manager(handlers=("greet", "check"))
    assert await why() == "it is ready, and waits for a free worker that serves its queue"
    await change_queues(store, ["default"], QueueChange(paused=True, by="ann"))
    store.time.advance("1m")
    assert await why() == 'queue "default" is paused by ann since 1m'
    (item,) = [store.new()]
    batch = await store.create_batch(NewBatch(id=store.new_id(), paused=True), [item])
    assert await why(item.id) == "its batch is paused until an operator resumes it"
    assert batch.status == "paused"


async def test_a_task_waits_for_a_member_of_its_queues_pool(store: Bench) -> None:
    await store.manager(handlers=("check",))
    await store.add_resources("proxies", [NewResource(name="p1")])
    await store.change_resources("proxies", ["p1"], ResourceChange(enabled=False))
    check = HandlerInfo(name="check", queue="checks", resources="proxies")
    (task,) = await store.add(store.new("check", queue="checks"), handlers=(check,))
    page = await read_task(store, task, store.now)
    assert page.why.sentence == 'resource pool "proxies" has no enabled member'


async def test_a_page_has_every_run(store: Bench) -> None:
    (task,) = await store.add(store.new())
    await store.run_all(fail="no route")
    page = await read_task(store, task[-8:], store.now)
    assert page.task.state is State.FAILED
    assert [attempt.outcome for attempt in page.attempts] == ["failed"]


async def test_many_tasks_are_changed_in_portions_with_progress(store: Bench) -> None:
    await store.add(*(store.new(queue="a") for _ in range(PORTION + 5)), store.new(queue="b"))
    selection = await select_tasks(store, by(queue="a"), CANCELLABLE)
    assert (selection.matched, selection.named) == (PORTION + 5, False)
    seen: list[int] = []
    result = await cancel_tasks(store, selection, reason="enough", progress=lambda total: seen.append(total.changed))
    assert (result.changed, seen) == (PORTION + 5, [PORTION, PORTION + 5])
    assert await store.count(by(state="cancelled", reason="enough")) == PORTION + 5
    assert await store.count(by(state="pending")) == 1


async def test_a_task_selected_by_its_id_is_named(store: Bench) -> None:
    first, _ = await store.add(store.new(), store.new())
    assert (await select_tasks(store, by(id=first), CANCELLABLE)).named
    assert not (await select_tasks(store, EVERYTHING, CANCELLABLE)).named
    assert (await select_tasks(store, by(id=first), (State.FAILED,))).matched == 0


async def test_a_filter_means_failed_tasks_unless_it_names_others(store: Bench) -> None:
    assert retryable(parsed("queue:mail")) == (State.FAILED,)
    assert retryable(parsed("state:cancelled")) == retryable(by(id="x")) == (State.FAILED, State.CANCELLED)
    await store.add(store.new())
    await store.run_all(fail="no")
    selection = await select_tasks(store, EVERYTHING, (State.FAILED,))
    assert (await retry_tasks(store, selection)).changed == 1
    assert await store.count(by(state="pending")) == 1


async def test_refused_tasks_do_not_repeat_the_act_for_ever(store: Bench) -> None:
    key = Unique("greet/k")
    (failed,) = await store.add(store.new(unique=key))
    await store.run_all(fail="no")
    await store.add(store.new(unique=key))
    result = await retry_tasks(store, await select_tasks(store, EVERYTHING, (State.FAILED,)))
    assert result == BulkResult(refused=(failed,))


async def test_a_store_that_always_has_more_but_changes_nothing_ends_it(
    store: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stuck(*_: object, **__: object) -> Changed:
        return Changed(refused=("x",), more=True)

    monkeypatch.setattr(store, "prune", stuck)
    assert await delete_tasks(store, await select_tasks(store, EVERYTHING, (State.FAILED,))) == BulkResult(
        refused=("x",)
    )


async def test_deleted_tasks_are_gone(store: Bench) -> None:
    await store.add(store.new())
    await store.run_all(fail="no")
    assert (await delete_tasks(store, await select_tasks(store, EVERYTHING, (State.FAILED,)))).changed == 1
    assert await store.count(EVERYTHING) == 0
