"""Messages become tasks: at least once, once with an id, in order, and no more than the queue takes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pytest

from pitboss.engines.amqp import AmqpBroker
from pitboss.engines.broker_protocol import BrokerError, Message
from pitboss.engines.protocol import Store
from pitboss.model.canonical import from_json
from pitboss.model.duration import span
from pitboss.model.errors import StoreFull, StoreUnavailable
from pitboss.model.meta import read_meta
from pitboss.model.source import SourceState
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed
from tests.sources.shop import app
from tests.sources.stage import QUEUE, Stage, until, until_true


def hold_puts(store: Store) -> asyncio.Event:
    """Puts of this store wait until the event is set; then they are done."""
    put, go = store.put, asyncio.Event()

    async def held(tasks: Sequence[NewTask]) -> list[Placed]:
        await go.wait()
        return list(await put(tasks))

    store.put = held  # type: ignore[method-assign]
    return go


async def test_messages_become_tasks_with_all_that_came_with_them(stage: Stage) -> None:
    running = await stage.start()
    headers = {"retries": 3, "trace": {"id": "ab"}}
    await stage.send({"number": 7}, message_id="m7", headers=headers, correlation_id="c", type="job", timestamp=12)
    (task,) = await stage.stored(1)
    await stage.taken_in()
    assert (task.handler, task.queue, task.state, task.params) == ("work", "work", State.PENDING, '{"number":7}')
    mark = read_meta(task.meta).message
    assert mark is not None
    assert (mark.source, mark.queue, mark.id, mark.exchange, mark.routing_key) == ("one", QUEUE, "m7", "", QUEUE)
    assert mark.headers == headers
    assert mark.properties == {"correlation_id": "c", "type": "job", "timestamp": 12}
    figures = running.figures()
    assert (figures.received, figures.stored, figures.duplicates, figures.malformed) == (1, 1, 0, 0)
    (done,) = await stage.ran()
    assert (done.state, done.result) == (State.COMPLETED, "7")


async def test_nothing_is_acknowledged_before_it_is_stored(stage: Stage) -> None:
    store = await stage.open_store()
    go = hold_puts(store)
    running = await stage.start(store=store)
    await stage.send_numbers(20)
    await until(lambda: running.figures().received > 0)
    assert (stage.unsettled(), await stage.numbers()) == (20, [])
    go.set()
    await stage.taken_in()
    assert await stage.numbers() == list(range(20))


@pytest.mark.parametrize("place", ["before", "after"])
async def test_a_lost_answer_of_the_store_costs_nothing_and_doubles_nothing(stage: Stage, place: str) -> None:
    """The same tasks are put again: also messages without ids are stored once."""
    running = await stage.start()
    stage.failpoints.plan(f"put.{place}", "lost")
    await stage.send_numbers(30, ids=False)
    await until(lambda: stage.failpoints.bitten)
    await stage.taken_in()
    assert sorted(await stage.numbers()) == list(range(30))
    await running.until(SourceState.RUNNING)


@pytest.mark.parametrize("place", ["before", "after"])
async def test_a_killed_process_loses_nothing_and_doubles_no_message_with_an_id(stage: Stage, place: str) -> None:
    await stage.send_numbers(40)
    await stage.killed(await stage.start_child(killed_at=f"put.{place}"))
    stored = await stage.numbers()
    assert len(stored) == (0 if place == "before" else 40)
    running = await stage.start()
    await stage.taken_in()
    assert await stage.numbers() == list(range(40))
    assert running.figures().duplicates == len(stored)


async def test_messages_without_ids_double_at_most_as_many_as_the_prefetch(sqlite_stage: Stage) -> None:
    stage, prefetch = sqlite_stage, 8
    await stage.send_numbers(40, ids=False)
    await stage.killed(await stage.start_child(stage.spec(prefetch=prefetch), killed_at="put.after"))
    await stage.start(stage.spec(prefetch=prefetch))
    await stage.taken_in()
    found = await stage.numbers()
    assert set(found) == set(range(40))
    assert 40 < len(found) <= 40 + prefetch


async def test_a_drain_while_messages_are_stored_doubles_none(stage: Stage) -> None:
    """Regression: what a drained process had stored was not acknowledged, and came again."""
    store = await stage.open_store()
    put, go, committed = store.put, asyncio.Event(), asyncio.Event()

    async def answered_late(tasks: Sequence[NewTask]) -> list[Placed]:
        placed = list(await put(tasks))
        committed.set()
        await go.wait()
        return placed

    store.put = answered_late  # type: ignore[method-assign]
    running = await stage.start(store=store)
    await stage.send_numbers(50, ids=False)
    await committed.wait()
    # The answer comes when the drain has begun.
    asyncio.get_running_loop().call_later(0.3, go.set)
    await stage.stop(running)
    await stage.start()
    await stage.taken_in()
    assert await stage.numbers() == list(range(50))


async def test_an_id_comes_once_whether_its_task_waits_or_is_done(stage: Stage) -> None:
    running = await stage.start()
    await stage.send({"number": 1}, {"number": 1}, message_id="a")
    await stage.taken_in()
    (done,) = await stage.ran()
    assert done.state is State.COMPLETED
    await stage.send({"number": 1}, message_id="a")
    await stage.send({"number": 2}, message_id="b")
    await stage.taken_in()
    assert await stage.numbers() == [1, 2]
    assert (running.figures().stored, running.figures().duplicates) == (2, 2)


async def test_an_id_is_new_again_after_its_period(stage: Stage) -> None:
    await stage.start(stage.spec(dedupe=span("300ms")))
    await stage.send({"number": 1}, message_id="a")
    await stage.stored(1)

    async def taken_again() -> bool:
        await stage.send({"number": 1}, message_id="a")
        await stage.taken_in()
        return len(await stage.tasks()) == 2

    await until_true(taken_again, what="the id is forgotten")


async def test_without_dedupe_every_message_is_a_task(sqlite_stage: Stage) -> None:
    await sqlite_stage.start(sqlite_stage.spec(dedupe=0))
    await sqlite_stage.send({"number": 1}, {"number": 1}, message_id="a")
    assert len(await sqlite_stage.stored(2)) == 2


async def test_long_ids_that_differ_at_the_end_are_different(stage: Stage) -> None:
    """Regression: ids were cut to 200 characters, and the second message was lost as a repetition."""
    await stage.start()
    await stage.send({"number": 1}, message_id="x" * 254 + "1")
    await stage.send({"number": 2}, message_id="x" * 254 + "2")
    await stage.taken_in()
    assert await stage.numbers() == [1, 2]


async def test_two_sources_with_one_handler_keep_their_ids_apart(stage: Stage) -> None:
    await stage.producer.queue("other", "classic")
    await stage.start(stage.spec(), stage.spec(name="two", queue="other"))
    await stage.send({"number": 1}, message_id="a")
    await stage.send({"number": 2}, message_id="a", queue="other")
    found = {from_json(task.params)["number"]: read_meta(task.meta).message for task in await stage.stored(2)}
    assert {number: mark and mark.source for number, mark in found.items()} == {1: "one", 2: "two"}


async def test_the_order_is_kept(stage: Stage) -> None:
    await stage.send_numbers(300)
    await stage.start(stage.spec(prefetch=7))
    await stage.taken_in()
    assert await stage.numbers() == list(range(300))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_another_process_stands_by_and_keeps_the_order(sqlite_stage: Stage, kind: str) -> None:
    stage = sqlite_stage
    await stage.producer.queue("line", "quorum" if kind == "quorum" else "classic")
    spec = stage.spec(queue="line", prefetch=10)
    first = await stage.start(spec)
    second = await stage.start(spec, store=await stage.open_store(), running=False)
    await second.until(SourceState.STANDBY, within=5)
    await first.well()
    # Regression: at each start it was in use by another program at first.
    await until(lambda: any("stands by" in line for line in second.lines))
    assert not any("in use" in line for line in second.lines)
    await stage.send_numbers(60, queue="line", ids=False)
    await until(lambda: first.figures().stored > 0)
    await stage.stop(first)
    await second.until(SourceState.RUNNING, within=5)
    await stage.send_numbers(10, 60, queue="line", ids=False)
    await stage.stored(70)
    await until_true(lambda: _is_ready(stage, 0, "line"))
    assert await stage.numbers() == list(range(70))
    assert second.figures().stored >= 10


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_what_a_closed_connection_held_comes_first_to_the_next(sqlite_stage: Stage, kind: str) -> None:
    """Regression: the consumer of a quorum queue ended before its messages were back, and the next one got those behind
    them first."""
    stage = sqlite_stage
    await stage.producer.queue("line", "quorum" if kind == "quorum" else "classic")
    broker = AmqpBroker(stage.url)
    first, second = [await broker.consuming(lambda _: None) for _ in range(2)]
    held, got = list[Message](), list[Message]()
    await first.consume("line", prefetch=10, exclusive=True, heard=held.append, ended=lambda _: None)
    await stage.send_numbers(60, queue="line")
    await until(lambda: len(held) == 10)
    first.ack(held[4].tag)
    closing = asyncio.create_task(first.close())

    async def begun() -> bool:
        with suppress(BrokerError):
            await second.consume("line", prefetch=100, exclusive=True, heard=got.append, ended=lambda _: None)
            return True
        return False

    await until_true(begun)
    await closing
    await until(lambda: len(got) == 55)
    assert [from_json(one.body.decode())["number"] for one in got] == list(range(5, 60))
    await second.close()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_queue_with_a_single_active_consumer_is_consumed(sqlite_stage: Stage, kind: str) -> None:
    """Regression: RabbitMQ refuses an exclusive consumer of it, which was told as another consumer."""
    stage = sqlite_stage
    stage.declare("line", {"x-queue-type": kind, "x-single-active-consumer": True})
    first = await stage.start(stage.spec(queue="line"))
    second = await stage.start(stage.spec(queue="line"), store=await stage.open_store(), running=False)
    await second.until(SourceState.STANDBY, within=10)
    await stage.send_numbers(20, queue="line")
    await stage.stored(20)
    assert await stage.numbers() == list(range(20))
    await stage.stop(first)
    await second.until(SourceState.RUNNING, within=10)


async def test_how_many_messages_wait_in_the_queue_is_known_while_connected(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = sqlite_stage
    monkeypatch.setattr("pitboss.sources.source._READY_SECONDS", 0.1)
    await stage.limit("narrow", 2)
    running = await stage.start(stage.spec("narrow"))
    await stage.send_numbers(7)
    await until(lambda: running.figures().ready == 5)
    stage.rabbit.close_connections()
    await until(lambda: running.figures().ready is None)
    await until(lambda: running.figures().ready == 5)
    await stage.connect()


async def test_competing_processes_share_a_queue(sqlite_stage: Stage) -> None:
    stage, spec = sqlite_stage, sqlite_stage.spec(competing=True, prefetch=1)
    await stage.start(spec)
    await stage.start(spec, store=await stage.open_store())
    await stage.send_numbers(60)
    await stage.taken_in()
    assert sorted(await stage.numbers()) == list(range(60))


async def test_at_capacity_the_broker_keeps_the_rest(stage: Stage) -> None:
    capacity = 10
    await stage.limit("narrow", capacity)
    running = await stage.start(stage.spec("narrow", prefetch=25))
    await stage.send_numbers(40, ids=False)
    await running.until(SourceState.FULL)
    # Not even held by the source: the broker ends consumers that hold messages for long.
    await until_true(lambda: _is_ready(stage, 30))
    assert await stage.numbers("narrow") == list(range(10))
    done = 0
    while done < 40:
        done += len(await stage.ran(3))
        assert len(await stage.tasks("narrow", state=State.PENDING)) <= capacity
        await asyncio.sleep(0)
    await stage.taken_in()
    assert await stage.numbers("narrow") == list(range(40))
    await running.until(SourceState.RUNNING)
    figures = running.figures()
    assert (figures.stored, figures.duplicates) == (40, 0)
    # Nothing came that had to go back: a quorum queue drops what comes back too often.
    assert (figures.received, figures.requeued) == (40, 0)


async def _is_ready(stage: Stage, count: int, queue: str = QUEUE) -> bool:
    return await stage.ready(queue) == count


async def test_a_full_queue_of_one_source_holds_up_no_other(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.limit("narrow", 1)
    await stage.producer.queue("other", "classic")
    running = await stage.start(stage.spec("narrow"), stage.spec(name="two", queue="other"))
    await stage.send_numbers(3)
    await running.until(SourceState.FULL)
    await stage.send_numbers(5, queue="other")
    await stage.taken_in("other")
    assert await stage.numbers() == list(range(5))


async def test_a_capacity_that_is_raised_or_removed_lets_it_go_on(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.limit("narrow", 2)
    running = await stage.start(stage.spec("narrow"))
    await stage.send_numbers(6)
    await running.until(SourceState.FULL)
    await stage.limit("narrow", 4)
    await until_true(lambda: _are_stored(stage, 4))
    await stage.limit("narrow", None)
    await stage.taken_in()
    assert await stage.numbers("narrow") == list(range(6))


async def _are_stored(stage: Stage, count: int) -> bool:
    return len(await stage.tasks("narrow")) == count


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        ("whole", [{"from": "ann", "link": "x", "retryCount": 2}, {"h": 1}, "m"]),
        ("any_field", {"from": "ann", "link": "x", "retryCount": 2}),
        ("modelled", ["x", "ann", "2"]),
    ],
)
async def test_every_form_of_handler_gets_foreign_fields(stage: Stage, handler: str, result: object) -> None:
    await stage.start(stage.spec(handler))
    await stage.send({"link": "x", "from": "ann", "retryCount": 2}, message_id="m", headers={"h": 1})
    (stored,) = await stage.stored(1, handler)
    (done,) = await stage.ran()
    assert done.state is State.COMPLETED, done.error
    assert from_json(done.result or "null") == result
    # The stored form passes its own check again, as a retry by name or from Python needs it.
    params = from_json(stored.params)
    assert from_json(app.handlers[handler].params.pack((), params)) == params


async def test_plain_parameters_get_the_fields(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.start()
    await stage.send({"number": 4, "bad": False})
    (task,) = await stage.stored(1)
    assert from_json(task.params) == {"number": 4, "bad": False}
    (done,) = await stage.ran()
    assert done.result == "4"


async def test_a_handler_that_is_registered_late_gets_all_messages(stage: Stage) -> None:
    (work,) = [one for one in app.describe() if one.name == "work"]
    await stage.store.forget(["work"])
    running = await stage.start(running=False)
    await stage.send_numbers(5)
    await running.until(SourceState.NO_HANDLER)
    assert stage.unsettled() == 5
    await stage.store.register([work])
    await stage.taken_in()
    assert await stage.numbers() == list(range(5))


async def test_a_handler_that_is_forgotten_while_consuming_ends_the_consumption(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    running = await stage.start()
    await stage.store.forget(["work"])
    sent = 0

    async def noticed() -> bool:
        nonlocal sent
        await stage.send_numbers(1, sent)
        sent += 1
        return running.state() is SourceState.NO_HANDLER

    await until_true(noticed)
    await stage.store.register([one for one in app.describe() if one.name == "work"])
    await running.until(SourceState.RUNNING)
    await stage.taken_in()
    assert await stage.numbers() == list(range(sent))


async def test_a_schema_that_changes_counts_from_the_next_second(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    (work,) = [one for one in app.describe() if one.name == "work"]
    running = await stage.start()
    strict = from_json(work.schema)
    strict["properties"]["number"]["maximum"] = 10
    changed = msgspec.structs.replace(work, schema=msgspec.json.encode(strict).decode())
    await stage.send_numbers(1, 99)
    await stage.taken_in()
    await stage.store.register([changed])

    async def refused() -> bool:
        await stage.send_numbers(1, 99, ids=False)
        await stage.taken_in()
        return running.figures().malformed > 0

    await until_true(refused)
    await stage.send_numbers(1, 3)
    await stage.taken_in()
    assert (await stage.numbers())[-1] == 3
    assert "maximum" in (await stage.dead(running.figures().malformed))[-1].properties.headers["x-pitboss-error"]


async def test_what_a_process_held_while_it_stood_still_is_not_stored(sqlite_stage: Stage) -> None:
    """Regression: a process that was stopped for longer than the broker waits stored what the broker had given back by
    then, and messages without an id ran twice."""
    stage = sqlite_stage
    running = await stage.start()
    (source,) = running.process._sources
    await stage.send_numbers(1, ids=False)
    await stage.stored(1)
    # As if the clock had gone on and nothing else.
    source._ticked_at -= 60
    await stage.send_numbers(3, ids=False)
    await stage.taken_in()
    assert len(await stage.tasks()) == 4
    assert running.figures().duplicates == 0


class Rival:
    """Another program that enqueues: it takes all room just before this store puts messages, that often."""

    def __init__(self, stage: Stage, store: Store, times: int) -> None:
        self._stage, self._put, self._left = stage, store.put, times
        store.put = self._late  # type: ignore[method-assign]

    async def _late(self, tasks: Sequence[NewTask]) -> list[Placed]:
        if self._left and any(task.queue == "narrow" for task in tasks):
            self._left -= 1
            (queue,) = [one for one in await self._stage.store.queues() if one.name == "narrow"]
            assert queue.capacity is not None
            room = range(queue.capacity - queue.waiting)
            await self._stage.store.put(
                [NewTask(id=self._stage.new_id(), handler="any_field", queue="narrow") for _ in room]
            )
        return list(await self._put(tasks))


@pytest.mark.parametrize("capacity", [15, 50])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_messages_that_find_no_room_are_held_and_stored_in_order_portion_by_portion(
    sqlite_stage: Stage, kind: str, capacity: int
) -> None:
    """Regression: they were given back. Each return counts as a delivery, so that a quorum queue with a limit dropped
    them, and they came in another order. With little room a window is consumed, with much it is a stream."""
    stage = sqlite_stage
    stage.declare("line", {"x-queue-type": kind, **({"x-delivery-limit": 1} if kind == "quorum" else {})})
    await stage.limit("narrow", capacity)
    store = await stage.open_store()
    Rival(stage, store, times=4)
    running = await stage.start(stage.spec("narrow", queue="line", prefetch=20), store=store)
    await stage.send_numbers(60, ids=False, queue="line")
    await running.told(SourceState.FULL)

    async def all_stored() -> bool:
        await stage.ran(3)
        return len(await stage.tasks("narrow")) >= 60

    await until_true(all_stored)
    await until_true(lambda: _is_ready(stage, 0, "line"))
    assert await stage.numbers("narrow") == list(range(60))
    await until(lambda: running.figures().received == 60)
    assert (running.figures().stored, running.figures().requeued) == (60, 0)


async def test_what_is_held_for_too_long_is_given_back_and_told(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ would take it back itself after half an hour, and end the consumption."""
    stage = sqlite_stage
    monkeypatch.setattr("pitboss.sources.source.HOLD_SECONDS", 0.5)
    await stage.limit("narrow", 10)
    store = await stage.open_store()
    Rival(stage, store, times=1)
    running = await stage.start(stage.spec("narrow"), store=store)
    await stage.send_numbers(3, ids=False)
    await until_true(lambda: _is_ready(stage, 3))
    assert running.figures().requeued == 3
    await until(lambda: any("source one: 3 messages were given back to RabbitMQ" in one for one in running.lines))
    await stage.ran()
    await stage.taken_in()
    assert await stage.numbers("narrow") == [0, 1, 2]


async def test_a_drain_while_messages_are_held_doubles_none(sqlite_stage: Stage) -> None:
    """Those of the window that are stored are acknowledged, the others given back."""
    stage = sqlite_stage
    await stage.limit("narrow", 10)
    store = await stage.open_store()
    Rival(stage, store, times=1)
    running = await stage.start(stage.spec("narrow"), store=store)
    await stage.send_numbers(8, ids=False)
    await running.told(SourceState.FULL)
    await stage.ran(3)
    await until_true(lambda: _are_stored(stage, 3))
    await stage.stop(running)
    await stage.ran()
    await stage.start(stage.spec("narrow"))
    await stage.taken_in()
    assert await stage.numbers("narrow") == list(range(8))


@pytest.mark.parametrize("error", [StoreFull("its disk is nearly full"), StoreUnavailable("gone", why="", fix="")])
async def test_messages_are_held_while_the_store_takes_none(sqlite_stage: Stage, error: Exception) -> None:
    """Regression: a full store gave them back every two seconds, and a queue with a delivery limit dropped them."""
    stage = sqlite_stage
    stage.declare("line", {"x-queue-type": "quorum", "x-delivery-limit": 1})
    store = await stage.open_store()
    put, refusals = store.put, 3

    async def refused(tasks: Sequence[NewTask]) -> list[Placed]:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise error
        return list(await put(tasks))

    store.put = refused  # type: ignore[method-assign]
    running = await stage.start(stage.spec(queue="line"), store=store)
    await stage.send_numbers(5, queue="line", ids=False)
    await running.until(SourceState.STORE)
    await stage.stored(5)
    await running.until(SourceState.RUNNING)
    assert await stage.numbers() == list(range(5))
    assert running.figures().requeued == 0
