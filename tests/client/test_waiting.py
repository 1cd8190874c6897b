"""How long the oldest due task of a queue has waited, whatever stands before it."""

from typing import Any

from pitboss.client.alert_facts import read_alert_facts
from pitboss.client.queue_flows import read_forecasts
from pitboss.client.waiting import oldest_wait
from pitboss.engines.protocol import Page
from pitboss.model.alert_counters import Counters
from pitboss.model.alert_facts import CONDITIONS
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND, Span
from pitboss.model.queue import HandlerInfo, QueueChange
from tests.operate.bench import Bench

HOUR: Span = 3600 * SECOND
JOB = HandlerInfo(name="job", queue="work")


class Line(Bench):
    """A store with one queue."""

    async def oldest(self) -> Span | None:
        (queue,) = await self.queues()
        return await oldest_wait(self, queue, self.now)

    async def add_jobs(self, number: int, **options: Any) -> None:
        await self.register([JOB])
        await self.put([self.new("job", queue="work", **options) for _ in range(number)])


async def test_tasks_of_every_priority_wait() -> None:
    """Regression: with more than 2,000 pending tasks, only priority 0 was read."""
    store = Line()
    await store.add_jobs(2500, priority=5)
    store.time.advance(3 * 3600)
    assert await store.oldest() == 3 * HOUR
    await store.add_jobs(100)
    store.time.advance(3600)
    assert await store.oldest() == 4 * HOUR
    await store.change_queue("work", QueueChange(paused=True))
    found = (await read_forecasts(store, store.now))["work"]
    assert (found.waited, found.pinch.cause) == (4 * HOUR, "paused")


async def test_tasks_behind_items_of_batches_wait() -> None:
    """Regression: if the ten oldest were items, nothing waited."""
    store = Line()
    await store.register([JOB])
    await store.create_batch(NewBatch(id=store.new_id()), [store.new("job", queue="work") for _ in range(40)])
    await store.lose(30, "job")
    store.time.advance(3600)
    assert await store.oldest() == 0
    await store.add_jobs(5)
    store.time.advance(3600)
    assert await store.oldest() == HOUR
    assert (await read_forecasts(store, store.now))["work"].waited == HOUR


async def test_tasks_behind_those_that_were_due_later_wait() -> None:
    store = Line()
    await store.add_jobs(100, delay=3 * HOUR)
    store.time.advance(3600)
    await store.add_jobs(20)
    store.time.advance(3600 * 2 + 60)
    await store.lose(0, "job")
    assert await store.oldest() == 2 * HOUR + 60 * SECOND


async def test_what_an_engine_gave_up_on_is_not_known() -> None:
    store = Line()
    await store.add_jobs(5)

    async def gave_up(*_: object, **__: object) -> Page:
        return Page([], store.new_id(), store.now)

    store.find = gave_up  # type: ignore[method-assign]
    assert await store.oldest() is None
    assert (await read_forecasts(store, store.now))["work"].waited is None
    facts = await read_alert_facts(store)
    assert facts.queues["work"].waited is None
    for name in ("processing_delay", "oldest_wait"):
        rule = CONDITIONS[name].rule(name, name)
        assert list(CONDITIONS[name].measure(facts, Counters(), rule)) == []
