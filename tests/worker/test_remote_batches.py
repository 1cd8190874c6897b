"""Batches from inside a worker: every call goes over the socket, and comes back as the same values and errors."""

import asyncio
from random import Random

import pytest

from pitboss.client.client import Client
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import Batches
from pitboss.manager import answers
from pitboss.manager.answers import answer
from pitboss.model.batch import BatchStatus, Cancel, Move, NewBatch, Pause
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock
from pitboss.worker import remote_store
from pitboss.worker.frames import AskMessage
from pitboss.worker.remote_store import ManagedStore


class Wire:
    """A worker's store, and its manager's answers, without the socket."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.ids = IdMaker(self.clock.now, Random(1).getrandbits)
        self.store = ManagedStore(self._say)
        self._pending: set[asyncio.Task[None]] = set()

    def tasks(self, count: int) -> list[NewTask]:
        return [NewTask(id=self.ids(), handler="job") for _ in range(count)]

    def _say(self, ask: AskMessage) -> None:
        async def reply() -> None:
            self.store.hear(await answer(self.engine, ask))

        work = asyncio.create_task(reply())
        self._pending.add(work)
        work.add_done_callback(self._pending.discard)


async def connected() -> Wire:
    wire = Wire()
    await wire.engine.open()
    await wire.engine.register([HandlerInfo(name="job")])
    return wire


async def test_a_worker_makes_steers_and_reads_batches() -> None:
    wire = await connected()
    store = wire.store
    assert isinstance(store, Batches)
    completion = NewTask(id=wire.ids(), handler="job")
    made = await store.create_batch(NewBatch(id=wire.ids(), name="a", on_complete=completion), wire.tasks(3))
    assert (made, made.total, made.on_complete) == ((await wire.engine.batches())[0], 3, completion)
    second = await store.create_batch(NewBatch(id=wire.ids()), wire.tasks(1))
    third = await store.create_batch(NewBatch(id=wire.ids()), wire.tasks(1))
    moved = await store.act_on_batch(third.id, Move("before", second.id))
    assert moved.batch is not None
    assert moved.batch.position == 1
    assert [batch.id for batch in await store.batches([second.id])] == [second.id]
    assert [batch.id for batch in await store.batches(statuses=[BatchStatus.QUEUED], limit=1)] == [third.id]
    assert (await store.change_lane("default", 2)).max_running == 2
    assert [lane.running for lane in await store.lanes()] == [2]
    page = await store.find(by(batch=made.id), limit=2, oldest_first=True)
    assert len(page.tasks) == 2
    assert page.next is not None
    done = await store.act_on_batch(made.id, Cancel("enough"), limit=2)
    assert (done.changed, done.more) == (2, True)


async def test_errors_are_the_same_as_at_the_store() -> None:
    wire = await connected()
    with pytest.raises(NotFound):
        await wire.store.act_on_batch(wire.ids(), Pause())
    made = await wire.store.create_batch(NewBatch(id=wire.ids()), [])
    with pytest.raises(InvalidInput):
        await wire.store.act_on_batch(made.id, Pause())


async def test_what_does_not_fit_one_message_is_refused_and_the_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = await connected()
    monkeypatch.setattr(remote_store, "_LARGEST", 1000)
    with pytest.raises(InvalidInput, match="several portions"):
        await wire.store.create_batch(NewBatch(id=wire.ids()), wire.tasks(100))
    assert await Client(wire.store, wire.clock).put(wire.tasks(1))


async def test_an_answer_that_does_not_fit_one_message_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = await connected()
    made = await wire.store.create_batch(NewBatch(id=wire.ids()), wire.tasks(150))
    page = await wire.store.find(by(batch=made.id), limit=1000)
    assert len(page.tasks) == 100
    assert page.next is not None
    monkeypatch.setattr(answers, "_LARGEST", 1000)
    with pytest.raises(InvalidInput, match="ask for less"):
        await wire.store.find(by(batch=made.id))
    assert await wire.store.get([page.tasks[0].id])
