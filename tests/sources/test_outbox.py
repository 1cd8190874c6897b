"""What goes to the broker: every final failure, and what the app publishes. Never lost, perhaps repeated."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pitboss.client.messages import out_message
from pitboss.engines.broker_protocol import Message
from pitboss.model.canonical import from_json
from pitboss.model.filter import by
from pitboss.model.message import ATTEMPTS, ERROR, HANDLER, REASON, SOURCE, TASK, stored
from pitboss.model.settlement import Settlement
from pitboss.model.source import SourceState, outbox
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.operate.tasks import read_task
from tests.sources.stage import DLQ, Stage, until, until_true


def labels(letter: Message) -> list[Any]:
    told = letter.properties.headers
    return [told[name] for name in (SOURCE, HANDLER, REASON, ERROR, ATTEMPTS)]


async def test_a_final_failure_becomes_a_dead_letter_with_everything(stage: Stage) -> None:
    await stage.start()
    sent = {"number": 5, "bad": True}
    await stage.send(sent, message_id="m5", headers={"mine": [1, "two"]}, correlation_id="c", reply_to="back")
    await stage.stored(1)
    (failed,) = await stage.ran()
    (letter,) = await stage.dead(1)
    assert from_json(letter.body.decode()) == sent
    assert letter.properties.headers[TASK] == failed.id
    assert labels(letter) == ["one", "work", "attempts used up", "Refused: message 5 is refused", 1]
    assert letter.properties.headers["mine"] == [1, "two"]
    assert letter.properties.message_id == "m5"
    assert (letter.properties.correlation_id, letter.properties.reply_to) == ("c", "back")
    assert letter.properties.content_type == "application/json"


async def test_a_good_task_leaves_no_dead_letter(stage: Stage) -> None:
    await stage.start()
    await stage.send_numbers(3)
    await stage.stored(3)
    await stage.ran()
    assert await stage.tasks(outbox("one")) == []
    await stage.dead(0)


@pytest.mark.parametrize("handler", ["whole", "any_field"])
async def test_the_body_of_a_dead_letter_is_the_message(stage: Stage, handler: str) -> None:
    await stage.start(stage.spec(handler))
    sent = {"bad": True, "from": "ann", "message": {"inner": 1}, "text": 'ü\n"', "number": 1.5}
    await stage.send(sent, message_id="m")
    await stage.stored(1, handler)
    await stage.ran()
    (letter,) = await stage.dead(1)
    assert from_json(letter.body.decode()) == sent


async def test_a_task_that_was_no_message_fails_into_the_same_queue(stage: Stage) -> None:
    await stage.start()
    task = NewTask(id=stage.new_id(), handler="work", queue="work", params='{"bad":true,"number":8}')
    await stage.store.put([task])
    await stage.ran()
    (letter,) = await stage.dead(1)
    assert from_json(letter.body.decode()) == {"bad": True, "number": 8}
    assert letter.properties.headers[TASK] == task.id
    # An id of its own, so that consumers can tell repetitions.
    (out,) = await stage.tasks(outbox("one"))
    assert letter.properties.message_id == out.id


async def test_a_cancelled_task_is_no_dead_letter_and_an_expired_one_is(stage: Stage) -> None:
    await stage.start()
    cancelled = NewTask(id=stage.new_id(), handler="work", queue="work", params='{"number":1}')
    expired = NewTask(id=stage.new_id(), handler="work", queue="work", params='{"number":2}', expires_in=1)
    await stage.store.put([cancelled, expired])
    await stage.store.cancel(by(id=cancelled.id))

    assert await stage.ran() == []
    (letter,) = await stage.dead(1)
    assert letter.properties.headers[TASK] == expired.id
    assert letter.properties.headers[REASON] == "expired"


async def test_of_two_sources_with_one_handler_each_gets_its_own_failures(stage: Stage) -> None:
    await stage.producer.queue("other", "classic")
    await stage.start(stage.spec(), stage.spec(name="two", queue="other", dead_letter_queue="other_dlq"))
    await stage.send({"number": 1, "bad": True}, message_id="a")
    await stage.send({"number": 2, "bad": True}, message_id="a", queue="other")
    await stage.store.put([NewTask(id=stage.new_id(), handler="work", queue="work", params='{"bad":true,"number":3}')])
    await stage.stored(3)
    await stage.ran()
    own = [(from_json(one.body.decode())["number"], one.properties.headers[SOURCE]) for one in await stage.dead(2)]
    assert sorted(own) == [(1, "one"), (3, "one")]
    (other,) = await stage.dead(1, "other_dlq")
    assert (from_json(other.body.decode())["number"], other.properties.headers[SOURCE]) == (2, "two")


async def test_follow_ups_have_no_foreign_id_in_their_dead_letters(stage: Stage) -> None:
    """A consumer that tells repetitions by the id would drop them."""
    await stage.producer.queue("other", "classic")
    await stage.start(
        stage.spec("parent"), stage.spec("work", name="two", queue="other", dead_letter_queue="other_dlq")
    )
    await stage.send({"number": 6}, message_id="m6", headers={"mine": 1})
    await stage.stored(1, "parent")
    await stage.ran()
    (of_other,) = await stage.dead(1, "other_dlq")
    assert from_json(of_other.body.decode()) == {"bad": True, "number": 6}
    assert of_other.properties.message_id != "m6"
    (of_same,) = await stage.dead(1)
    assert from_json(of_same.body.decode()) == {"number": -6}
    assert of_same.properties.message_id != "m6"


async def test_a_dead_letter_queue_that_is_deleted_is_made_again(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.start()
    stage.rabbit.delete_queue(stage.vhost, DLQ)
    await stage.send({"number": 1, "bad": True})
    await stage.send(b"nonsense")
    await stage.stored(1)
    await stage.ran()
    await until_true(lambda: _completed(stage, 2))
    assert len(await stage.dead(2)) == 2


async def _completed(stage: Stage, count: int) -> bool:
    return len(await stage.tasks(outbox("one"), state=State.COMPLETED)) == count


async def test_what_the_app_publishes_arrives(stage: Stage) -> None:
    running = await stage.start()
    await stage.producer.queue("results", "classic")
    for message in ({"size": 1}, b"\x00\xffraw", "text"):
        await stage.publish("results", message)
    found = await stage.dead(3, "results")
    assert {one.body for one in found} == {b'{"size":1}', b"\x00\xffraw", b'"text"'}
    kinds = {one.body: one.properties.content_type for one in found}
    assert kinds[b"\x00\xffraw"] == "application/octet-stream"
    assert kinds[b'"text"'] == "application/json"
    await until_true(lambda: _completed(stage, 3))
    assert running.figures().published == 3


async def test_a_message_that_reaches_no_queue_waits_for_one(stage: Stage) -> None:
    running = await stage.start()
    task = await stage.publish("nowhere", {"a": 1})
    await stage.producer.queue("results", "classic")
    said = await running.told(SourceState.UNROUTABLE, out=True)
    assert 'queue "nowhere"' in said
    # Other messages pass, and do not hide it (regression: its state lasted until the next one).
    await stage.publish("results", {"b": 2})
    await stage.dead(1, "results")
    assert running.state(out=True) is SourceState.UNROUTABLE
    await stage.producer.queue("nowhere", "classic")
    await running.well()
    (found,) = await stage.dead(1, "nowhere")
    assert found.body == b'{"a":1}'
    (done,) = await stage.store.get([task])
    assert done is not None
    assert done.state is State.COMPLETED


async def test_an_alarm_holds_up_what_goes_out_and_not_what_comes_in(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    running = await stage.start()
    await stage.send({"number": 1, "bad": True}, {"number": 2})
    await stage.stored(2)
    stage.rabbit.raise_alarm()
    try:
        await stage.ran(1)
        said = await running.told(SourceState.BLOCKED, out=True)
        assert "memory" in said
        # While it takes nothing, nothing is claimed: no attempt and no retry is spent.
        await until_true(lambda: _in_state(stage, State.PENDING))
        assert running.state() is SourceState.RUNNING
    finally:
        stage.rabbit.clear_alarm()
    await running.well()
    # The first copy may be on its way already when the alarm is told: then there are two, of one id.
    await until_true(lambda: _completed(stage, 1))
    letters = await stage.dead(await stage.ready(DLQ))
    assert len({one.properties.message_id for one in letters}) == 1
    assert len(letters) <= 2


async def _in_state(stage: Stage, state: State) -> bool:
    return [task.state for task in await stage.tasks(outbox("one"))] == [state]


async def test_dead_letters_of_a_time_without_a_broker_are_published_later(stage: Stage) -> None:
    running = await stage.start()
    await stage.send({"number": 1, "bad": True})
    await stage.stored(1)
    await stage.stop(running)
    await stage.ran()
    assert await _in_state(stage, State.PENDING)
    await stage.start()
    await stage.dead(1)


async def test_a_process_that_is_killed_before_it_has_noted_the_confirmation_repeats_the_message(stage: Stage) -> None:
    await stage.start()
    await stage.stop(stage.processes[0])
    await stage.store.put([NewTask(id=stage.new_id(), handler="work", queue="work", params='{"bad":true,"number":3}')])
    await stage.ran()
    await stage.killed(await stage.start_child(killed_at="settle.before"))
    assert await _in_state(stage, State.PENDING)
    await stage.start()
    first, second = await stage.dead(2)
    assert (first.body, first.properties) == (second.body, second.properties)
    assert await _in_state(stage, State.COMPLETED)


async def test_a_store_that_is_away_when_it_is_confirmed_loses_and_repeats_nothing(stage: Stage) -> None:
    store = await stage.open_store()
    settle, go = store.settle, asyncio.Event()

    async def held(settlements: Sequence[Settlement]) -> Any:
        await go.wait()
        return await settle(settlements)

    store.settle = held  # type: ignore[method-assign]
    await stage.start(store=store)
    await stage.publish(DLQ, {"a": 1})
    await stage.dead(1)
    go.set()
    await until_true(lambda: _completed(stage, 1))
    await stage.dead(0)


async def test_outbox_tasks_are_claimed_by_no_worker(stage: Stage) -> None:
    """A slot without queues takes those of every queue, but not reserved ones."""
    running = await stage.start()
    await stage.stop(running)
    await stage.publish("results", {"a": 1})
    assert await stage.ran() == []
    assert await _in_state(stage, State.PENDING)


async def test_many_dead_letters_keep_no_other_source_waiting(sqlite_stage: Stage) -> None:
    """One source's messages reach no queue; those of the other one are published meanwhile."""
    stage = sqlite_stage
    await stage.producer.queue("other", "classic")
    running = await stage.start(stage.spec(), stage.spec(name="two", queue="other"))
    for _ in range(20):
        await stage.publish("nowhere", {}, "one")
    await stage.producer.queue("results", "classic")
    await stage.publish("results", {"a": 1}, "two")
    await stage.dead(1, "results")
    await running.until(SourceState.UNROUTABLE, out=True)
    assert running.state("two", out=True) is SourceState.RUNNING
    await until(lambda: running.figures("two").published == 1)


async def test_a_full_queue_that_rejects_messages_is_named_and_tried_again_with_pauses(sqlite_stage: Stage) -> None:
    """Regression: the message was claimed and released a hundred times a second, and nothing said so."""
    stage = sqlite_stage
    stage.declare(DLQ, {"x-max-length": 1, "x-overflow": "reject-publish"})
    running = await stage.start()
    await stage.producer.queue("results", "classic")
    for number in range(2):
        await stage.publish(DLQ, {"number": number})
    said = await running.told(SourceState.REJECTED, out=True)
    assert f'queue "{DLQ}"' in said
    assert "reject-publish" in said
    await stage.publish("results", {"b": 2})
    await stage.dead(1, "results")
    await until_true(lambda: _completed(stage, 2))
    (left,) = [task for task in await stage.tasks(outbox("one")) if task.state is not State.COMPLETED]
    # After 1, 2 and 4 s.
    assert left.attempts <= 3
    assert left.error is not None
    assert left.error.category == "rejected"
    why = (await read_task(stage.store, left.id, stage.store.clock.now())).why
    assert "RabbitMQ did not take a message" in f"{why}"
    await stage.dead(1)
    await running.well()
    await stage.dead(1)
    await until(lambda: "source one can publish again" in running.lines)
    assert len([line for line in running.lines if "cannot publish some messages (rejected)" in line]) == 1


async def test_of_two_troubles_one_is_told_until_it_is_over(sqlite_stage: Stage) -> None:
    """Regression: with a missing queue and a missing exchange, the log named one and the other every second."""
    stage = sqlite_stage
    running = await stage.start()
    name = outbox("one")
    for exchange in ("", "nowhere"):
        made = stored(out_message("lost", {"a": 1}, exchange=exchange, headers=None, message_id=None))
        await stage.store.put([NewTask(id=stage.new_id(), handler=name, queue=name, params=made)])
    await until(lambda: "And 1 other target of messages" in running.figures().out_why)
    first = running.state(out=True)
    seen = set[SourceState]()

    async def tried_again() -> bool:
        seen.add(running.state(out=True))
        return all(task.attempts >= 3 for task in await stage.tasks(name))

    await until_true(tried_again)
    assert seen == {first}
    assert first in (SourceState.UNROUTABLE, SourceState.MISSING)
    assert len([line for line in running.lines if "cannot publish" in line]) == 1
    told = [task.error.message for task in await stage.tasks(name) if task.error is not None]
    assert any("no exchange 'nowhere'" in one for one in told), "each message keeps its own reason"
