"""Why a task waits, and which tasks a bulk act is about."""

from pitboss.model.batch import NewBatch
from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, ResourceChange
from pitboss.model.states import State
from pitboss.operate.tasks import (
    CANCELLABLE,
    change_queues,
    read_task,
    retryable,
    select_tasks,
)
from tests.operate.bench import Bench


async def test_a_pending_task_has_a_place_in_line(store: Bench) -> None:
    first, second = await store.add(store.new(), store.new())
    (later,) = await store.add(store.new(delay=5_000_000))
    places = [(await read_task(store, one, store.now)).why.before for one in (first, second, later)]
    assert places == [0, 1, None]


async def test_what_a_task_waits_for_is_read_from_the_store(store: Bench) -> None:
    (task,) = await store.add(store.new())

    async def why(one: str = task) -> str:
        return (await read_task(store, one, store.now)).why.sentence

    assert await why() == "no manager is running on this store"
    await store.manager(handlers=("greet", "check"))
    assert await why() == "it is ready, and waits for a free worker that serves its queue"
    await change_queues(store, ["default"], QueueChange(paused=True, by="ann"))
    store.time.advance("1m")
    assert await why() == 'queue "default" was paused by ann 1m ago'
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


async def test_a_task_selected_by_its_id_is_named(store: Bench) -> None:
    first, _ = await store.add(store.new(), store.new())
    assert (await select_tasks(store, by(id=first), CANCELLABLE)).named
    assert not (await select_tasks(store, EVERYTHING, CANCELLABLE)).named
    assert (await select_tasks(store, by(id=first), (State.FAILED,))).matched == 0


async def test_a_filter_means_failed_tasks_unless_it_names_others(store: Bench) -> None:
    assert retryable(parsed("queue:mail")) == (State.FAILED,)
    assert retryable(parsed("state:cancelled")) == retryable(by(id="x")) == (State.FAILED, State.CANCELLED)
