"""Messages that no task can be made of: to the dead-letter queue with the reason, byte for byte, and nothing waits."""

from collections.abc import Sequence

import pytest

from pitboss.model.canonical import MAX_PARAMS_BYTES
from pitboss.model.message import ERROR, MALFORMED, REASON, SOURCE
from pitboss.model.meta import read_meta
from pitboss.model.source import SourceState
from pitboss.model.task import NewTask, Placed
from tests.sources.stage import DLQ, QUEUE, Stage, until, until_true

# More than a task of the outbox takes.
HUGE = 1_200_000
BAD = {
    "not JSON": (b"{number: 1}", "not JSON"),
    "empty": (b"", "not JSON"),
    "cut off": (b'{"number": 1', "not JSON"),
    "two documents": (b'{"number": 1}{"number": 2}', "not JSON"),
    "a list": (b"[1, 2]", "not a JSON object: it is a list"),
    "text": (b'"number"', "not a JSON object: it is text"),
    "null": (b"null", "not a JSON object: it is null"),
    "a number": (b"17", "not a JSON object: it is a number"),
    "a field of another type": (b'{"number": "one"}', "do not fit task"),
    "an unknown field": (b'{"number": 1, "from": "ann"}', "do not fit task"),
    "no field": (b"{}", "do not fit task"),
    "not UTF-8": (b"\xff\xfe\x00number", "not JSON"),
    "UTF-8 cut off": (b'{"number": "\xc3', "not JSON"),
    "control characters": (b"\x00\x01\x02\x1b[31m\x7f", "not JSON"),
    "NUL in a text": (b'{"number": 1, "from": "a\\u0000b"}', "NUL"),
    "lone surrogate": (b'{"number": 1, "from": "\\ud800"}', "not JSON"),
    "integer of 100 bits": (b'{"number": 1267650600228229401496703205376}', "outside 64 bits"),
    "float out of range": (b'{"number": 1e999}', "not JSON"),
    "too deep": (b'{"number": ' + b"[" * 5000 + b"]" * 5000 + b"}", ""),
    "too large for a task": (b'{"number": 1, "x": "' + b"y" * MAX_PARAMS_BYTES + b'"}', f"{MAX_PARAMS_BYTES:,}"),
    "too large for the store": (b'{"number": 1, "x": "' + b"y" * HUGE + b'"}', f"{MAX_PARAMS_BYTES:,}"),
    "huge bytes": (b"\xff" * HUGE, f"{MAX_PARAMS_BYTES:,}"),
}


async def test_each_lands_in_the_dead_letter_queue_as_it_was(stage: Stage) -> None:
    running = await stage.start()
    for number, (name, (body, _)) in enumerate(BAD.items()):
        known = {"kind": name, "CC": ["nowhere"]}
        await stage.send(body, message_id=f"bad {name}", headers=known, content_type="text/x-job", priority=3)
        await stage.send({"number": number})
    await stage.taken_in()
    assert await stage.numbers() == list(range(len(BAD)))
    letters = {one.properties.headers["kind"]: one for one in await stage.dead(len(BAD))}
    assert letters.keys() == BAD.keys()
    for name, (body, reason) in BAD.items():
        letter = letters[name]
        assert letter.body == body, name
        told = letter.properties.headers
        assert (told[SOURCE], told[REASON]) == ("one", MALFORMED)
        assert reason in told[ERROR], name
        assert len(told[ERROR]) <= 2000
        assert "CC" not in told
        assert letter.properties.message_id == f"bad {name}"
        assert (letter.properties.content_type, letter.properties.priority) == ("text/x-job", 3)
    figures = running.figures()
    assert (figures.malformed, figures.state) == (len(BAD), SourceState.RUNNING)
    assert 0 < figures.malformed_at <= stage.store.clock.now()


async def test_headers_and_ids_that_no_store_can_have_make_a_message_malformed(stage: Stage) -> None:
    await stage.start()
    await stage.send({"number": 1}, message_id="a\0b")
    await stage.send({"number": 2}, message_id="b", headers={"x": "a\0b"})
    await stage.send({"number": 3}, message_id="c")
    await stage.taken_in()
    assert await stage.numbers() == [3]
    first, second = await stage.dead(2)
    assert (first.properties.message_id, first.body) == ("a\0b", b'{"number":1}')
    assert second.properties.headers["x"] == "a\0b"
    assert "NUL" in first.properties.headers[ERROR]


async def test_one_whose_headers_leave_no_room_for_the_reason_stops_no_other(sqlite_stage: Stage) -> None:
    """Regression: RabbitMQ ended the connection of the outbox each time that the dead letter was tried."""
    stage = sqlite_stage
    running = await stage.start()
    full = {"x": "y" * 119_900}
    await stage.send(b"nonsense", message_id="m1", headers=full)
    await stage.send({"number": 1, "bad": True}, message_id="m2", headers=full)
    await stage.send(b"more nonsense", message_id="m3")
    await stage.stored(1)
    await stage.ran()
    letters = {one.properties.message_id: one.properties.headers for one in await stage.dead(3)}
    assert letters.keys() == {"m1", "m2", "m3"}
    assert "x" not in letters["m1"] | letters["m2"]
    assert "message 1 is refused (the headers" in letters["m2"][ERROR]
    assert running.figures().published == 3
    (task,) = await stage.tasks()
    mark = read_meta(task.meta).message
    assert mark is not None
    assert mark.headers == full


async def test_large_ones_are_stored_a_few_at_a_time(sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: 500 of them kept the process busy for so long that RabbitMQ gave up the connection, and sent them
    again."""
    stage = sqlite_stage
    for _ in range(12):
        await stage.send(b"x" * 900_000)
    sizes: list[int] = []
    put = stage.store.put

    async def all_delivered() -> bool:
        return await stage.ready() == 0

    async def counting(tasks: Sequence[NewTask]) -> list[Placed]:
        if not sizes:
            await until_true(all_delivered, what="all messages are with the source")
        sizes.append(sum(len(task.params) for task in tasks))
        return await put(tasks)

    monkeypatch.setattr(stage.store, "put", counting)
    running = await stage.start()
    await stage.dead(12)
    assert max(sizes) < 5_000_000
    assert running.figures().malformed == 12


async def test_one_that_expires_stays_in_the_dead_letter_queue(sqlite_stage: Stage) -> None:
    """Regression: a malformed message took its date of expiry along, and vanished."""
    stage = sqlite_stage
    await stage.start()
    await stage.send(b"nonsense", expiration="60000")
    await stage.send({"number": 1, "bad": True}, expiration="60000")
    await stage.stored(1)
    await stage.ran()
    assert [one.properties.expiration for one in await stage.dead(2)] == [None, None]


async def test_one_that_came_by_a_copy_is_not_copied_back(sqlite_stage: Stage) -> None:
    """Regression: RabbitMQ follows the header CC, and the dead letter came back to its source for ever."""
    stage = sqlite_stage
    running = await stage.start()
    await stage.producer.queue("other", "classic")
    await stage.send(b"nonsense", queue="other", headers={"CC": [QUEUE], "kept": 1})
    await stage.send({"number": 1, "bad": True}, queue="other", headers={"CC": [QUEUE], "kept": 2})
    await stage.stored(1)
    await stage.ran()
    letters = await stage.dead(2)
    assert [one.properties.headers["kept"] for one in letters] == [1, 2]
    await stage.taken_in()
    assert running.figures().received == 2
    assert await stage.ready("other") == 2


async def test_a_large_one_behind_a_full_queue_is_published_once(sqlite_stage: Stage) -> None:
    """Regression: it was published again each time that the queue was full before it."""
    stage = sqlite_stage
    await stage.limit("narrow", 5)
    running = await stage.start(stage.spec("narrow"))
    await stage.send_numbers(22)
    await stage.send(b"x" * HUGE)
    await stage.send_numbers(3, 22)
    while len(await stage.tasks("narrow")) < 25:
        await stage.ran(2)
        await until(lambda: running.state() in (SourceState.FULL, SourceState.RUNNING))
    await stage.taken_in()
    assert len(await stage.dead(1)) == 1
    assert await stage.numbers("narrow") == list(range(25))


@pytest.mark.parametrize("competing", [False, True])
async def test_a_large_one_that_cannot_be_published_waits_and_is_not_lost(sqlite_stage: Stage, competing: bool) -> None:
    """Regression: the source took its own consumer for another one, for ever; a competing source acknowledged the
    message with a later one, and it was lost."""
    stage = sqlite_stage
    user = stage.rabbit.make_user(f"reader{competing}")
    await stage.producer.queue(DLQ, "classic")
    stage.rabbit.permit(user, stage.vhost, write="^$")
    url = stage.rabbit.url(stage.vhost, user)
    running = await stage.start(stage.spec(url=url, competing=competing))
    await stage.send(b"x" * HUGE)
    await stage.send_numbers(3)
    assert "ACCESS_REFUSED" in await running.told(SourceState.REFUSED)
    stage.rabbit.permit(user, stage.vhost)
    await running.well()
    await stage.taken_in()
    assert await stage.numbers() == [0, 1, 2]
    (letter,) = await stage.dead(1)
    assert len(letter.body) == HUGE
    stage.rabbit.delete_user(user)
