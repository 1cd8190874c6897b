"""Messages out: confirmed, returned, refused, and while the broker has an alarm."""

import asyncio

import msgspec
import pytest

from pitboss.engines.amqp import publishing
from pitboss.engines.broker_protocol import BrokerError, OutMessage, Properties
from pitboss.model.errors import InvalidInput
from pitboss.model.message import HEADER_BYTES, SHORT_BYTES, table_size
from pitboss.model.source import SourceState
from tests.engines.amqp.connections import Connections, Ear, Trouble, consume, numbered, until
from tests.servers.rabbitmq import RabbitServer


async def test_a_confirmed_message_is_in_the_queue_with_all_that_came_with_it(connections: Connections) -> None:
    ear = Ear()
    publisher = await connections.filled("out", 0)
    headers = {"n": 1, "list": [1, "x"], "big": 2**40, "none": None, "table": {"a": True}}
    texts = ("message_id", "content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id")
    properties = Properties(
        headers=headers, priority=1, timestamp=5, expiration="60000", **{name: f"{name} ä" for name in texts}
    )
    await publisher.publish(OutMessage(routing_key="out", body=b"1", properties=properties))
    source = await connections.consuming(ear)
    await consume(source, "out", ear)
    await ear.hear(1)
    assert (ear.messages[0].properties, ear.messages[0].exchange) == (properties, "")


async def test_messages_survive_a_restart(connections: Connections, rabbit_server: RabbitServer) -> None:
    publisher = await connections.filled("out", 3)
    rabbit_server.kill9()
    rabbit_server.start()
    await until(lambda: bool(connections.losses))
    assert [error.state for error in connections.losses] == [SourceState.AWAY]
    with Trouble(SourceState.AWAY):
        await publisher.publish(numbered("out", 4))
    assert await (await connections.consuming()).queue("out") == 3


async def test_a_thousand_calls_run_side_by_side(connections: Connections) -> None:
    publisher = await connections.filled("out", 0)
    await asyncio.gather(*(publisher.publish(numbered("out", number)) for number in range(1_000)))
    assert await publisher.queue("out") == 1_000


async def test_only_the_messages_that_reach_no_queue_are_unroutable(connections: Connections) -> None:
    publisher = await connections.filled("out", 0)
    calls = [publisher.publish(numbered("out" if number % 3 else "nowhere", number)) for number in range(30)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    states = [error.state if isinstance(error, BrokerError) else None for error in results]
    assert states == [None if number % 3 else SourceState.UNROUTABLE for number in range(30)]
    assert await publisher.queue("out") == 20
    with Trouble(SourceState.UNROUTABLE) as caught:
        await publisher.publish(numbered("nowhere", 1))
    assert '"nowhere"' in caught.error.what


async def test_of_messages_with_one_body_the_one_without_a_queue_is_told_by_its_properties(
    connections: Connections,
) -> None:
    publisher = await connections.filled("out", 0)
    with connections.foreign() as channel:
        channel.exchange_declare("by-header", "headers")
        channel.queue_bind("out", "by-header", arguments={"x-match": "all", "take": "yes"})

    def message(take: str) -> OutMessage:
        properties = Properties(message_id=take, headers={"take": take})
        return OutMessage(exchange="by-header", routing_key="same", body=b"same", properties=properties)

    calls = [publisher.publish(message(take)) for take in ("yes", "no", "yes")]
    results = await asyncio.gather(*calls, return_exceptions=True)
    states = [error.state if isinstance(error, BrokerError) else None for error in results]
    assert states == [None, SourceState.UNROUTABLE, None]


async def test_a_missing_exchange_harms_no_message_to_another(connections: Connections) -> None:
    publisher = await connections.filled("out", 0)
    lost = [publisher.publish(OutMessage(exchange="none", routing_key="x", body=b"1")) for _ in range(5)]
    kept = [publisher.publish(numbered("out", number)) for number in range(50)]
    results = await asyncio.gather(*lost, *kept, return_exceptions=True)
    states = [error.state if isinstance(error, BrokerError) else None for error in results]
    assert states == [SourceState.MISSING] * 5 + [None] * 50
    with Trouble(SourceState.MISSING):
        await publisher.publish(OutMessage(exchange="none", routing_key="x", body=b"1"))
    assert connections.losses == []


async def test_a_full_queue_that_refuses_more_is_named(connections: Connections) -> None:
    publisher = await connections.publishing()
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with connections.foreign() as channel:
        channel.queue_declare("small", durable=True, arguments=limits)
    await publisher.publish(numbered("small", 1))
    with Trouble(SourceState.REJECTED) as caught:
        await publisher.publish(numbered("small", 2))
    assert 'queue "small"' in caught.error.what
    assert await publisher.queue("small") == 1


@pytest.mark.parametrize(
    "message",
    [
        OutMessage(routing_key="x" * 256, body=b"1"),
        OutMessage(routing_key="out", body=b"1", properties=Properties(message_id="x" * 256)),
        OutMessage(routing_key="out", body=b"1", properties=Properties(headers={"n": 2**70})),
        OutMessage(routing_key="out", body=b"1", properties=Properties(expiration="soon")),
        OutMessage(routing_key="out", body=b"1", properties=Properties(priority=256)),
        OutMessage(routing_key="out", body=b"1", properties=Properties(headers={"x" * 256: 1})),
        OutMessage(routing_key="out", body=b"1", properties=Properties(headers={"x": "y" * 140_000})),
        OutMessage(routing_key="out", body=b"1", properties=Properties(headers={"x": [1] * 30_000})),
    ],
)
async def test_a_message_that_cannot_be_sent_is_refused_before_it_is_sent(
    connections: Connections, message: OutMessage
) -> None:
    """Regression: the broker ended the connection because of headers that do not fit a frame."""
    publisher = await connections.filled("out", 0)
    with pytest.raises(InvalidInput):
        await publisher.publish(message)
    await publisher.publish(numbered("out", 1))
    assert await publisher.queue("out") == 1
    assert connections.losses == []


async def test_headers_as_large_as_they_may_be_are_taken(connections: Connections) -> None:
    publisher = await connections.filled("out", 0)
    headers = {"x": "y" * (HEADER_BYTES - 12)}
    assert table_size(headers) == HEADER_BYTES
    texts = ("message_id", "content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id")
    properties = msgspec.structs.replace(Properties(headers=headers), **dict.fromkeys(texts, "z" * SHORT_BYTES))
    await publisher.publish(OutMessage(routing_key="out", body=b"1", properties=properties))
    assert connections.losses == []


async def test_a_message_that_is_not_confirmed_is_forgotten(
    connections: Connections, rabbit_server: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was kept, and each repetition too, for as long as the connection lasted."""
    monkeypatch.setattr(publishing, "CONFIRM_SECONDS", 0.3)
    publisher = await connections.filled("out", 1)
    before = publisher._exchanges[""]
    rabbit_server.freeze()
    try:
        calls = [publisher.publish(numbered("out", number)) for number in range(20)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        rabbit_server.thaw()
    assert [one.state for one in results if isinstance(one, BrokerError)] == [SourceState.AWAY] * 20
    assert not before._waiting
    monkeypatch.undo()
    await asyncio.gather(*(publisher.publish(numbered("out", number)) for number in range(20)))
    assert connections.losses == []


async def test_an_alarm_is_told_and_ends(
    connections: Connections, rabbit_server: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "BLOCKED_SECONDS", 0.2)
    publisher = await connections.filled("out", 1)
    rabbit_server.raise_alarm()
    try:
        # The broker says that it is blocked only to a connection that publishes.
        with Trouble(SourceState.BLOCKED) as first:
            await publisher.publish(numbered("out", 1))
        assert "memory" in first.error.why
        assert publisher.blocked is not None
        with Trouble(SourceState.BLOCKED):
            await publisher.publish(numbered("out", 2))
        ear = Ear()
        await consume(await connections.consuming(ear), "out", ear, exclusive=False)
        assert await ear.hear(1) == [0]
    finally:
        rabbit_server.clear_alarm()
    await until(lambda: publisher.blocked is None)
    await publisher.publish(numbered("out", 3))
    # The first one was on its way when the alarm came, and has been taken since.
    assert await ear.hear(3) == [0, 1, 3]
    assert (len(connections.alarms), connections.alarms[-1], connections.losses) == (2, None, [])


async def test_a_message_waits_for_the_end_of_a_short_alarm(
    connections: Connections, rabbit_server: RabbitServer
) -> None:
    publisher = await connections.filled("out", 0)
    rabbit_server.raise_alarm()
    call = asyncio.create_task(publisher.publish(numbered("out", 1)))
    await until(lambda: publisher.blocked is not None)
    waits = asyncio.create_task(publisher.publish(numbered("out", 2)))
    rabbit_server.clear_alarm()
    await asyncio.gather(call, waits)
    assert await publisher.queue("out") == 2


async def test_a_blocked_connection_closes_in_time(
    connections: Connections, rabbit_server: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "BLOCKED_SECONDS", 0.1)
    publisher = await connections.filled("out", 0)
    rabbit_server.raise_alarm()
    try:
        with Trouble(SourceState.BLOCKED):
            await publisher.publish(numbered("out", 1))
        async with asyncio.timeout(4):
            await publisher.close()
    finally:
        rabbit_server.clear_alarm()
    assert connections.losses == []


async def test_a_float_in_a_header_is_sent_as_text(connections: Connections) -> None:
    publisher = await connections.filled("out", 0)
    properties = Properties(headers={"f": 1.5, "in": [{"f": 2.5}]})
    await publisher.publish(OutMessage(routing_key="out", body=b"1", properties=properties))
    got = await (await connections.consuming()).get("out")
    assert got is not None
    assert got.properties.headers == {"f": "1.5", "in": [{"f": "2.5"}]}
