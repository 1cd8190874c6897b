"""`pitboss dead retry --source NAME`: what waits in the dead-letter queue is worked on again, and nothing is lost."""

from typing import Any

import pytest

from pitboss.engines.amqp import AmqpBroker
from pitboss.engines.broker_protocol import OutMessage
from pitboss.model.canonical import from_json
from pitboss.model.errors import NotFound, PitbossError, StoreUnavailable
from pitboss.model.filter import by
from pitboss.model.message import REASON, TASK
from pitboss.model.meta import read_meta
from pitboss.model.source import SourceSpec, outbox
from pitboss.model.states import State
from pitboss.sources.taking_back import TakenBack, take_back, waiting_dead_letters
from tests.sources.stage import DLQ, QUEUE, Stage, until, until_true

UNKNOWN = "01a1edec-2acb-7000-98bf-4a559339626f"


async def taken_back(stage: Stage, spec: SourceSpec | None = None) -> TakenBack:
    return await take_back(AmqpBroker(stage.url), spec or stage.spec(), stage.store, stage.new_id)


async def failed(stage: Stage, *numbers: int, **properties: Any) -> list[str]:
    """Messages whose tasks have failed, with their dead letters in the queue; returns the tasks."""
    before = await stage.ready(DLQ)
    for number in numbers:
        await stage.send({"number": number, "bad": True}, message_id=f"m{number}", **properties)
    known = len(await stage.tasks())
    await stage.taken_in()
    assert len(await stage.tasks()) >= known
    await stage.ran()

    async def published() -> bool:
        return await stage.ready(DLQ) == before + len(numbers)

    await until_true(published)
    return [task.id for task in await stage.tasks() if task.state is State.FAILED]


async def states(stage: Stage) -> list[State]:
    return [task.state for task in await stage.tasks()]


async def test_a_task_of_ours_is_retried_and_its_letter_removed(stage: Stage) -> None:
    await stage.start()
    (task,) = await failed(stage, 1)
    assert await waiting_dead_letters(AmqpBroker(stage.url), stage.spec()) == 1
    report = await taken_back(stage)
    assert report == TakenBack(matched=1, retried=1)
    assert [one.id for one in await stage.tasks()] == [task]
    assert await states(stage) == [State.PENDING]
    await stage.dead(0)
    # It fails again: a new letter, of the same task and message.
    await stage.ran()
    (letter,) = await stage.dead(1)
    assert (letter.properties.headers[TASK], letter.properties.message_id) == (task, "m1")


async def test_a_task_that_was_retried_already_only_loses_its_letter(stage: Stage) -> None:
    await stage.start()
    (task,) = await failed(stage, 1)
    await stage.store.retry(by(id=task))
    assert await taken_back(stage) == TakenBack(matched=1, known=1)
    await stage.dead(0)
    assert await states(stage) == [State.PENDING]


async def test_a_task_that_is_gone_becomes_a_new_one(stage: Stage) -> None:
    await stage.start()
    await failed(stage, 1)
    (letter,) = await stage.dead(1)
    headers = {**letter.properties.headers, TASK: UNKNOWN, "mine": 2}
    await stage.send(letter.body, queue=DLQ, message_id="m1", headers=headers)
    assert await taken_back(stage) == TakenBack(matched=1, created=1)
    old, new = await stage.tasks()
    assert (old.state, new.state, new.params) == (State.FAILED, State.PENDING, old.params)
    mark = read_meta(new.meta).message
    assert mark is not None
    # The labels of its first death are gone, and its own key does not count it as a repetition.
    assert (mark.id, mark.headers) == ("m1", {"mine": 2})


async def test_a_foreign_message_becomes_a_new_task(stage: Stage) -> None:
    await stage.start()
    await stage.send({"number": 4}, message_id="m4")
    await stage.stored(1)
    await stage.send({"number": 4}, queue=DLQ, message_id="m4", headers={"x-death": 1})
    await stage.send({"number": 5}, queue=DLQ)
    await stage.send({"number": 6}, queue=DLQ, headers={TASK: "nonsense"})
    assert await taken_back(stage) == TakenBack(matched=3, created=3)
    assert await stage.numbers() == [4, 4, 5, 6]
    await stage.dead(0)


async def test_a_malformed_message_stays_where_it_is(stage: Stage) -> None:
    running = await stage.start()
    await stage.send(b"first", {"number": "two"})
    await stage.taken_in()
    await until_true(lambda: _published(stage, 2))
    await stage.send({"number": 7}, queue=DLQ)
    report = await taken_back(stage)
    assert (report.matched, report.created, report.left) == (3, 1, 2)
    assert "not JSON" in report.reasons[0]
    assert "do not fit" in report.reasons[1]
    assert [one.body for one in await stage.dead(2)] == [b"first", b'{"number":"two"}']
    assert running.figures().malformed == 2


async def _published(stage: Stage, count: int) -> bool:
    return await stage.ready(DLQ) == count


async def test_a_malformed_one_that_fits_by_now_becomes_a_task_without_its_labels(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.start(stage.spec("any_field", queue="other", create="classic"))
    await stage.send({"from": "ann"}, queue=DLQ, headers={REASON: "malformed", "mine": 1})
    report = await taken_back(stage, stage.spec("any_field"))
    assert report.created == 1
    (task,) = await stage.tasks("any_field")
    mark = read_meta(task.meta).message
    assert mark is not None
    assert mark.headers == {"mine": 1}


async def test_a_task_of_another_handler_is_not_touched(stage: Stage) -> None:
    await stage.start()
    (task,) = await failed(stage, 1)
    (letter,) = await stage.dead(1)
    await stage.send(letter.body, queue=DLQ, headers=letter.properties.headers)
    report = await taken_back(stage, stage.spec("any_field"))
    assert report.created == 1
    (old,) = await stage.store.get([task])
    assert old is not None
    assert old.state is State.FAILED
    assert [from_json(one.params) for one in await stage.tasks("any_field")] == [{"bad": True, "number": 1}]


@pytest.mark.parametrize("what", ["ours", "foreign"])
async def test_one_that_is_killed_in_between_loses_nothing(stage: Stage, what: str) -> None:
    """Stored, but not acknowledged: the message stays, and is taken back again."""
    await stage.start()
    if what == "ours":
        await failed(stage, 1)
    else:
        await stage.send({"number": 1}, queue=DLQ)
    store = await stage.open_store()
    verb = "retry" if what == "ours" else "put"
    do = getattr(store, verb)

    async def dies(*args: Any) -> Any:
        await do(*args)
        raise StoreUnavailable("the process was killed here", why="a test", fix="none")

    setattr(store, verb, dies)
    with pytest.raises(PitbossError):
        await take_back(AmqpBroker(stage.url), stage.spec(), store, stage.new_id)
    await until_true(lambda: _published(stage, 1))
    report = await taken_back(stage)
    assert (report.known, report.created) == ((1, 0) if what == "ours" else (0, 1))
    await stage.dead(0)
    assert len(await stage.tasks(state=State.PENDING)) == (1 if what == "ours" else 2)


async def test_what_fails_again_meanwhile_is_not_taken_twice(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.start()
    await failed(stage, *range(20))
    report = await taken_back(stage)
    assert report == TakenBack(matched=20, retried=20)
    await stage.ran()
    await until_true(lambda: _published(stage, 20))
    assert len(await stage.tasks()) == 20
    assert len(await stage.tasks(outbox("one"))) == 40


async def test_progress_is_told(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.producer.queue(DLQ, "classic")
    for number in range(3):
        await stage.send({"number": number}, queue=DLQ)
    told: list[int] = []
    await take_back(
        AmqpBroker(stage.url), stage.spec(), stage.store, stage.new_id, progress=lambda one: told.append(one.created)
    )
    assert told == [1, 2, 3]


async def test_without_its_handler_nothing_is_taken(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.producer.queue(DLQ, "classic")
    await stage.send({"number": 1}, queue=DLQ)
    with pytest.raises(NotFound, match="no app has registered"):
        await taken_back(stage, stage.spec("unknown"))
    assert await stage.ready(DLQ) == 1


async def test_a_dead_letter_that_is_moved_back_to_its_queue_runs_its_task_again(stage: Stage) -> None:
    """Regression: it met its own key, counted as known, and was gone."""
    running = await stage.start()
    (task,) = await failed(stage, 1)
    (letter,) = await stage.dead(1)
    # As a shovel does it: between others, and with all properties.
    await stage.send({"number": 2}, message_id="m2")
    await stage.producer.publish(OutMessage(routing_key=QUEUE, body=letter.body, properties=letter.properties))
    await stage.send({"number": 3}, message_id="m3")
    await stage.taken_in()
    assert await stage.numbers() == [1, 2, 3]
    assert await states(stage) == [State.PENDING] * 3
    figures = running.figures()
    assert (figures.received, figures.stored, figures.retried, figures.duplicates) == (4, 3, 1, 0)
    # A second copy does nothing: the task waits already.
    await stage.producer.publish(OutMessage(routing_key=QUEUE, body=letter.body, properties=letter.properties))
    await stage.taken_in()
    assert (running.figures().retried, running.figures().duplicates) == (1, 1)
    await stage.ran()
    (again,) = await stage.dead(1)
    assert again.properties.headers[TASK] == task


async def test_a_dead_letter_whose_task_is_gone_becomes_a_new_task_in_its_queue(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    await stage.start()
    await stage.send({"number": 1}, message_id="m1", headers={TASK: UNKNOWN, REASON: "expired", "mine": 2})
    (task,) = await stage.stored(1)
    await stage.taken_in()
    mark = read_meta(task.meta).message
    assert mark is not None
    assert mark.headers == {"mine": 2}


async def test_a_dead_letter_of_another_handler_becomes_a_new_task_in_its_queue(sqlite_stage: Stage) -> None:
    """Regression: the source got another handler, so the failed task could not run again; the message met its own key,
    counted as known, and was gone."""
    stage = sqlite_stage
    running = await stage.start()
    await failed(stage, 1)
    (letter,) = await stage.dead(1)
    await stage.stop(running)
    running = await stage.start(stage.spec("any_field"))
    again = OutMessage(routing_key=QUEUE, body=letter.body, properties=letter.properties)
    await stage.producer.publish(again)
    await stage.producer.publish(again)
    await stage.taken_in()
    assert await stage.numbers("any_field") == [1]
    # The second one may be a repetition by RabbitMQ.
    assert (running.figures().stored, running.figures().duplicates) == (1, 1)


async def test_an_id_of_a_failed_task_that_a_producer_sends_again_is_counted_and_told_once(sqlite_stage: Stage) -> None:
    """It may be a repetition by RabbitMQ, so it does not run the task again; but it is not silent."""
    stage = sqlite_stage
    running = await stage.start()
    await failed(stage, 1)
    for _ in range(2):
        await stage.send({"number": 1, "bad": True}, message_id="m1")
    await stage.taken_in()
    assert await states(stage) == [State.FAILED]
    assert (running.figures().duplicates, running.figures().known_failed) == (2, 2)
    await until(lambda: [line for line in running.lines if "had the id of a task that has failed" in line])
    assert len([line for line in running.lines if "had the id of a task that has failed" in line]) == 1
