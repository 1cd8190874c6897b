"""Messages in: order, acknowledgements, prefetch, exclusive use, and consumptions that the broker ends."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pytest

from pitboss.engines.broker_protocol import BrokerError, Properties
from pitboss.model.source import SourceState
from tests.engines.amqp.connections import Connections, Ear, Trouble, consume, numbered, until
from tests.servers.rabbitmq import RabbitServer

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@KINDS
async def test_messages_come_in_order_and_are_acknowledged_in_groups(connections: Connections, kind: str) -> None:
    ear = Ear()
    publisher = await connections.filled("work", 20, kind)
    source = await connections.consuming(ear)
    assert await source.queue("work") == 20
    await consume(source, "work", ear)
    assert await ear.hear(20) == list(range(20))
    assert [message.tag for message in ear.messages] == list(range(1, 21))
    source.ack(15)
    source.ack(15)
    source.ack(3)
    source.ack(18, multiple=False)
    source.ack(18)
    source.ack(99, multiple=False)
    await source.stop()
    assert await publisher.queue("work") == 2
    assert ear.ends == ear.losses == []


@KINDS
async def test_what_is_held_goes_back_to_its_old_place(connections: Connections, kind: str) -> None:
    ear = Ear()
    await connections.filled("work", 60, kind)
    source = await connections.consuming(ear)
    for round_ in range(1, 4):
        ear.messages.clear()
        await consume(source, "work", ear, prefetch=20)
        held = await ear.hear(20)
        source.ack(ear.messages[4].tag)
        await source.stop()
        assert held[0] == 5 * (round_ - 1)
    ear.messages.clear()
    await consume(source, "work", ear)
    assert await ear.hear(45) == list(range(15, 60))
    assert [message.redelivered for message in ear.messages[:15]] == [True] * 15


@KINDS
async def test_messages_of_a_cut_connection_come_again_in_order(
    connections: Connections, kind: str, rabbit_server: RabbitServer
) -> None:
    ear, later = Ear(), Ear()
    await connections.filled("work", 30, kind)
    await consume(await connections.consuming(ear), "work", ear, prefetch=20)
    await ear.hear(20)
    rabbit_server.close_connections()
    await until(lambda: bool(ear.losses))
    await consume(await connections.consuming(later), "work", later)
    assert await later.hear(30) == list(range(30))


async def test_no_more_than_the_prefetch_is_held(connections: Connections) -> None:
    ear = Ear()
    await connections.filled("work", 10)
    source = await connections.consuming(ear)
    await consume(source, "work", ear, prefetch=3)
    await ear.hear(3)
    # Whatever the broker has sent before its answer is here by now.
    assert await source.queue("work") == 7
    assert ear.numbers == [0, 1, 2]
    source.ack(2)
    assert await ear.hear(5) == [0, 1, 2, 3, 4]


async def test_tags_grow_over_all_consumptions_of_a_connection(connections: Connections) -> None:
    ear = Ear()
    publisher = await connections.filled("work", 3)
    source = await connections.consuming(ear)
    for heard in (3, 6):
        await consume(source, "work", ear)
        await ear.hear(heard)
        await source.stop()
    assert [message.tag for message in ear.messages] == [1, 2, 3, 4, 5, 6]
    await consume(source, "work", ear)
    await ear.hear(9)
    source.ack(6)
    source.ack(7)
    await source.stop()
    assert await publisher.queue("work") == 2
    source.ack(9)
    assert ear.ends == []


@KINDS
async def test_get_takes_one_message_without_consuming(connections: Connections, kind: str) -> None:
    await connections.filled("work", 2, kind)
    source = await connections.consuming()
    first = await source.get("work")
    assert first is not None
    assert (first.body, first.tag, first.routing_key) == (b"0", 1, "work")
    source.ack(first.tag)
    assert await source.get("work") is not None
    assert await source.get("work") is None
    await source.stop()
    again = await source.get("work")
    assert again is not None
    assert (again.body, again.redelivered) == (b"1", True)
    with Trouble(SourceState.MISSING):
        await source.get("nothing")
    # A quorum queue takes it back a moment after the channel was closed.
    found = 0
    for _ in range(250):
        found = await source.queue("work")
        if found:
            break
        await asyncio.sleep(0.02)
    assert found == 1


async def test_gets_side_by_side_each_have_their_message(connections: Connections) -> None:
    await connections.filled("work", 3)
    source = await connections.consuming()
    got = await asyncio.gather(*(source.get("work") for _ in range(4)))
    assert [message and message.body for message in got] == [b"0", b"1", b"2", None]


@KINDS
async def test_a_queue_is_made_once_and_then_used_as_it_is(connections: Connections, kind: str) -> None:
    source = await connections.consuming()
    with Trouble(SourceState.MISSING) as missing:
        await source.queue("work")
    assert "work" in missing.error.why
    assert await source.queue("work", "quorum" if kind == "quorum" else "classic") == 0
    assert await source.queue("work", "classic") == 0
    assert await source.queue("work", "quorum") == 0


@KINDS
async def test_an_exclusive_consumer_is_the_only_one(connections: Connections, kind: str) -> None:
    ear, other = Ear(), Ear()
    await connections.filled("work", 5, kind)
    source, second = await connections.consuming(ear), await connections.consuming(other)
    await consume(source, "work", ear)
    with Trouble(SourceState.IN_USE):
        await consume(second, "work", other)
    assert await ear.hear(5) == [0, 1, 2, 3, 4]
    await source.stop()
    await consume(second, "work", other)
    assert await other.hear(5) == [0, 1, 2, 3, 4]


@KINDS
async def test_of_two_that_begin_at_once_at_most_one_consumes(connections: Connections, kind: str) -> None:
    ears = [Ear(), Ear()]
    await connections.filled("work", 5, kind)
    sources = [await connections.consuming(ear) for ear in ears]
    began = [consume(source, "work", ear) for source, ear in zip(sources, ears, strict=True)]
    results = await asyncio.gather(*began, return_exceptions=True)
    refused = [error.state for error in results if isinstance(error, BrokerError)]
    assert refused in ([SourceState.IN_USE], [SourceState.IN_USE] * 2)
    heard = [ear for ear, result in zip(ears, results, strict=True) if result is None]
    for ear in heard:
        assert await ear.hear(5) == [0, 1, 2, 3, 4]
    assert sum(len(ear.messages) for ear in ears) == 5 * len(heard)


async def test_competing_consumers_share_a_queue(connections: Connections) -> None:
    ears = [Ear(), Ear()]
    publisher = await connections.filled("work", 0)
    for ear in ears:
        await consume(await connections.consuming(ear), "work", ear, prefetch=5, exclusive=False)
    for number in range(10):
        await publisher.publish(numbered("work", number))
    await until(lambda: all(len(ear.messages) == 5 for ear in ears))


async def test_a_foreign_exclusive_queue_is_in_use(connections: Connections) -> None:
    source = await connections.consuming()
    with connections.foreign() as channel:
        channel.queue_declare("private", exclusive=True)
        with Trouble(SourceState.IN_USE):
            await source.queue("private")


@KINDS
async def test_a_deleted_queue_ends_the_consumption(
    connections: Connections, kind: str, rabbit_server: RabbitServer, rabbit_vhost: str
) -> None:
    ear = Ear()
    await connections.filled("work", 5, kind)
    source = await connections.consuming(ear)
    await consume(source, "work", ear)
    await ear.hear(5)
    rabbit_server.delete_queue(rabbit_vhost, "work")
    await until(lambda: bool(ear.ends))
    assert [error.state for error in ear.ends] == [SourceState.MISSING]
    source.ack(5)
    with Trouble(SourceState.MISSING):
        await consume(source, "work", ear)
    await connections.filled("work", 1, kind, first=7)
    await consume(source, "work", ear)
    assert (await ear.hear(6))[5] == 7
    assert (len(ear.ends), ear.losses) == (1, [])


@KINDS
async def test_a_late_acknowledgement_ends_the_consumption_and_loses_no_message(
    connections: Connections, kind: str, rabbit_server: RabbitServer
) -> None:
    ear = Ear()
    await connections.filled("work", 3, kind)
    rabbit_server.set_consumer_timeout(1)
    try:
        source = await connections.consuming(ear)
        await consume(source, "work", ear)
    finally:
        rabbit_server.set_consumer_timeout(1_800_000)
    await ear.hear(3)
    while not ear.ends:
        rabbit_server.tick_channels()
        await source.queue("work")
    assert ear.ends[0].state == SourceState.AWAY
    assert "consumer_timeout" in ear.ends[0].fix
    ear.messages.clear()
    await consume(source, "work", ear)
    assert await ear.hear(3) == [0, 1, 2]


async def test_foreign_properties_become_values_of_json(connections: Connections) -> None:
    ear = Ear()
    source = await connections.consuming(ear)
    await source.queue("work", "classic")
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    headers = {
        "text": "ä", "bytes": b"ok", "raw": b"\xff\x00", "time": moment, "price": Decimal("1.5"),
        "none": None, "yes": True, "big": 2**40, "list": [b"x", {"in": b"y"}], "table": {"at": moment},
    }  # fmt: skip
    properties = pika.BasicProperties(
        headers=headers, message_id="id", timestamp=1_700_000_000, priority=3, content_type="text/plain", type="kind"
    )
    with connections.foreign() as channel:
        channel.basic_publish("", "work", b"1", properties)
        channel.basic_publish("", "work", b"2")
    await consume(source, "work", ear)
    await ear.hear(2)
    assert ear.messages[0].properties == Properties(
        message_id="id",
        headers={
            "text": "ä", "bytes": "ok", "raw": "/wA=", "time": "2026-01-02T03:04:05+00:00", "price": 1.5,
            "none": None, "yes": True, "big": 2**40, "list": ["x", {"in": "y"}],
            "table": {"at": "2026-01-02T03:04:05+00:00"},
        },
        timestamp=1_700_000_000,
        priority=3,
        content_type="text/plain",
        type="kind",
    )  # fmt: skip
    assert ear.messages[1].properties == Properties()


async def test_a_message_that_the_driver_cannot_read_is_named(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    source = await connections.consuming(ear)
    await source.queue("work", "classic")
    far = datetime(2026, 1, 1, tzinfo=UTC)
    with connections.foreign() as channel, monkeypatch.context() as patch:
        # Milliseconds where seconds belong, as some producers write them.
        patch.setattr("pika.data.calendar.timegm", lambda _: 1_700_000_000_000)
        channel.basic_publish("", "work", b"1", pika.BasicProperties(headers={"at": far}))
    with Trouble(SourceState.AWAY) as caught:
        await source.get("work")
    assert "cannot read a message" in caught.error.what
    assert ear.losses == [caught.error]
