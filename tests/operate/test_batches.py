"""Batches as people read them."""

from pitboss.model.batch import BatchStatus, Cancel, NewBatch, Pause
from pitboss.model.eta import Forecast, spoken_range
from pitboss.model.snapshot import Snapshot, WorkerFigures, WorkerState
from pitboss.operate.batches import list_batches, read_batch, read_line
from pitboss.operate.documents import batch_page_document
from tests.operate.bench import GREET, Bench


async def create(store: Bench, name: str, size: int = 4) -> str:
    batch = await store.create_batch(NewBatch(id=store.new_id(), name=name), [store.new() for _ in range(size)])
    return batch.id


async def test_progress_waiting_and_errors_of_one_batch(store: Bench) -> None:
    await store.register([GREET])
    batch = await create(store, "a")
    page = await read_batch(store, batch[-8:], store.now)
    assert (page.reading.percent, page.reading.forecast) == (0, Forecast())
    assert page.reading.waiting == "no manager is running on this store"
    assert page.reading.lane is not None
    assert page.reading.lane.running == 1
    await store.run_all(fail="no route")
    page = await read_batch(store, batch, store.now)
    assert (page.reading.percent, page.reading.waiting) == (100, None)
    assert [group.count for group in page.errors.groups] == [4]
    document = batch_page_document(page)
    assert (document["batch"]["status"], document["errors"][0]["error"]) == ("done_with_errors", "OSError")


async def test_a_queued_batch_waits_for_its_turn(store: Bench) -> None:
    for name in "abc":
        await create(store, name)
    found = await list_batches(store, store.now, [BatchStatus.QUEUED], 10)
    assert [one.waiting for one in found] == [
        f'it waits for its turn in lane "default": place {place} of 2' for place in (1, 2)
    ]
    assert len(await list_batches(store, store.now, limit=2)) == 2


async def test_a_batch_that_waits_for_a_person_has_no_end_nor_has_one_behind_it(store: Bench) -> None:
    """The page said when it ends beside the sentence that no manager runs."""
    await store.register([GREET])
    first, second = await create(store, "a", 100), await create(store, "b", 30)
    store.time.advance(60)
    await store.run_all(most=50)
    store.time.advance(60)
    for batch in (first, second):
        reading = (await read_batch(store, batch, store.now)).reading
        assert spoken_range(reading.forecast.ends) == "unknown"
    assert (await read_batch(store, first, store.now)).reading.waiting == "no manager is running on this store"
    worker = WorkerFigures(name="w", state=WorkerState.IDLE)
    await store.manager(Snapshot(concurrency=4, workers=(worker,)))
    for batch in (first, second):
        reading = (await read_batch(store, batch, store.now)).reading
        assert spoken_range(reading.forecast.ends).startswith("about")


async def test_a_cancelled_batch_shows_what_ran(store: Bench) -> None:
    await store.register([GREET])
    batch = await create(store, "a", 10)
    await store.run_all(most=3)
    await store.act_on_batch(batch, Cancel())
    (reading,) = await list_batches(store, store.now)
    assert (reading.batch.status, reading.batch.finished) == (BatchStatus.CANCELLED, 10)
    assert (reading.done, reading.percent) == (3, 30)


async def test_percent_is_100_only_when_every_item_has_ended(store: Bench) -> None:
    await store.register([GREET])
    await create(store, "a", 250)
    await store.run_all(most=249)
    assert [one.percent for one in await list_batches(store, store.now)] == [99]
    await store.run_all()
    await create(store, "empty", 0)
    assert [one.percent for one in await list_batches(store, store.now)] == [100, 100]


async def test_the_acts_are_those_that_change_something(store: Bench) -> None:
    running, queued = await create(store, "first"), await create(store, "second")

    async def acts(batch: str) -> frozenset[str]:
        return (await read_batch(store, batch, store.now)).reading.acts

    assert await acts(running) == {"pause", "cancel"}
    assert await acts(queued) == {"pause", "start", "move", "cancel"}
    await store.act_on_batch(queued, Pause())
    assert await acts(queued) == {"resume", "start", "cancel"}
    await store.run_all(fail="no")
    assert await acts(running) == {"requeue", "delete"}


async def test_why_an_end_is_unknown(store: Bench) -> None:
    running, queued = await create(store, "first", 100), await create(store, "second")
    await store.manager(Snapshot(workers=(WorkerFigures(name="w", state=WorkerState.IDLE),)))
    said = [(await read_batch(store, one, store.now)).reading.unknown_end for one in (running, queued)]
    assert "20 items" in said[0]
    assert "before it" in said[1]
    await store.run_all(most=30)
    store.time.advance("90s")
    known = (await read_batch(store, running, store.now)).reading
    assert (known.unknown_end, known.speed(store.now)) == ("", 30 / 90)


async def test_the_line_of_a_lane_is_in_its_order(store: Bench) -> None:
    first, second, third = [await create(store, name) for name in ("first", "second", "third")]
    await store.act_on_batch(second, Pause())
    other = NewBatch(id=store.new_id(), lane="other")
    await store.create_batch(other, [store.new(params='{"name":"you"}')])
    assert [one.batch.id for one in await read_line(store, "default", store.now, 10)] == [first, third, second]
    assert [one.batch.id for one in await read_line(store, "default", store.now, 1)] == [first]
