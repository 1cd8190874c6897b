"""Connections that cannot be made, or end: what is wrong is said at once, and no password is shown."""

import asyncio
import sys
from collections.abc import Callable

import pytest

from pitboss import wiring
from pitboss.engines.amqp import AmqpBroker, connection
from pitboss.engines.amqp.address import address
from pitboss.engines.broker_protocol import OutMessage
from pitboss.model.errors import InvalidInput, Unsupported
from pitboss.model.source import SourceState
from tests.engines.amqp.connections import Connections, Ear, Trouble, consume, numbered, until
from tests.servers.proxy import refused_port
from tests.servers.rabbitmq import RabbitServer
from tests.servers.relay import Relay


def test_all_parts_of_a_url_are_read() -> None:
    read = address("amqp://us%40er:pa%2Fss@host.example:1234/a%2Fb")
    assert (read.host, read.port, read.vhost, read.tls) == ("host.example", 1234, "a/b", False)
    assert (read.user, read.password) == ("us@er", "pa/ss")
    plain = address("amqps://host")
    assert (plain.port, plain.vhost, plain.user, plain.tls) == (5671, "/", "guest", True)
    assert address("amqp://host//").vhost == address("amqp://host/").vhost == address("amqp://host/%2F").vhost == "/"


@pytest.mark.parametrize(
    "url",
    [
        "amqp://user:se/cret@host:5672/",
        "amqp://user:secret@host:cret/",
        "amqp://user:secret@/vhost",
        "amqp://user:secret@[host/",
        "amqp://user:secret@host/?heartbeat=5",
        "http://user:secret@host/",
        "user:secret@host",
        "",
    ],
)
def test_a_malformed_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        wiring.make_broker(url)
    assert "cret" not in f"{caught.value}"
    assert caught.value.why
    assert caught.value.fix


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pitboss.engines.amqp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(Unsupported, match=r"pitboss\[amqp\]"):
        wiring.make_broker("amqp://host/")


async def test_certificates_that_cannot_be_read_are_named() -> None:
    broker = AmqpBroker("amqps://host/?cacertfile=/nowhere/ca.pem")
    with pytest.raises(InvalidInput, match="certificates"):
        await broker.consuming(print)


async def test_a_port_without_a_server_is_away(connections: Connections) -> None:
    with Trouble(SourceState.AWAY) as caught:
        await connections.consuming(url=f"amqp://127.0.0.1:{refused_port()}/")
    assert "refused" in caught.error.why.lower()
    with Trouble(SourceState.AWAY):
        await connections.consuming(url="amqp://no-such-host.invalid/")


async def test_a_port_without_tls_names_the_scheme(connections: Connections, rabbit_server: RabbitServer) -> None:
    with Trouble(SourceState.AWAY) as caught:
        await connections.consuming(url=rabbit_server.url().replace("amqp://", "amqps://"))
    assert "amqp:// instead of amqps://" in caught.error.fix


async def test_a_server_that_does_not_speak_is_away_in_time(
    connections: Connections, rabbit_server: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.3)
    with Relay(rabbit_server.port) as relay:
        relay.fall_silent()
        with Trouble(SourceState.AWAY):
            await connections.consuming(url=rabbit_server.url(port=relay.port))


@pytest.mark.parametrize("how", ["password", "vhost", "rights"])
async def test_an_entry_that_is_refused_says_so_and_hides_the_password(
    connections: Connections, rabbit_server: RabbitServer, rabbit_vhost: str, how: str
) -> None:
    urls: dict[str, Callable[[], str]] = {
        "password": lambda: rabbit_server.url(rabbit_vhost, password="wrong-secret"),
        "vhost": lambda: rabbit_server.url("no-such-vhost"),
        "rights": lambda: rabbit_server.url(rabbit_vhost, user=rabbit_server.make_user("stranger")),
    }
    with Trouble(SourceState.REFUSED) as caught:
        await connections.consuming(url=urls[how]())
    assert "wrong-secret" not in f"{caught.error}"
    if how == "rights":
        rabbit_server.delete_user("stranger")


async def test_a_user_without_rights_is_refused_and_the_connection_stays(
    connections: Connections, rabbit_server: RabbitServer, rabbit_vhost: str
) -> None:
    await connections.filled("work", 1)
    user = rabbit_server.make_user("limited")
    rabbit_server.permit(user, rabbit_vhost, configure="^$", write="^$", read="^$")
    url = rabbit_server.url(rabbit_vhost, user=user)
    ear = Ear()
    source, publisher = await connections.consuming(ear, url), await connections.publishing(url)
    with Trouble(SourceState.REFUSED):
        await consume(source, "work", ear)
    with Trouble(SourceState.REFUSED):
        await source.get("work")
    with Trouble(SourceState.REFUSED):
        await source.queue("other", "quorum")
    with Trouble(SourceState.REFUSED):
        await publisher.publish(numbered("work", 1))
    rabbit_server.permit(user, rabbit_vhost)
    await publisher.publish(numbered("work", 1))
    await consume(source, "work", ear)
    assert await ear.hear(2) == [0, 1]
    assert ear.ends == ear.losses == connections.losses == []
    rabbit_server.delete_user(user)


async def test_an_operator_sees_who_is_connected(connections: Connections, rabbit_server: RabbitServer) -> None:
    await connections.consuming()
    await connections.publishing()
    assert {"pitboss source", "pitboss outbox"} <= rabbit_server.connection_names()


async def test_a_cut_connection_is_told_once_and_every_call_says_it(
    connections: Connections, rabbit_server: RabbitServer, rabbit_vhost: str
) -> None:
    ear = Ear()
    await connections.filled("work", 1)
    with Relay(rabbit_server.port) as relay:
        url = rabbit_server.url(rabbit_vhost, port=relay.port)
        source, publisher = await connections.consuming(ear, url), await connections.publishing(url)
        await consume(source, "work", ear)
        await ear.hear(1)
        relay.cut()
        await until(lambda: bool(ear.losses and connections.losses))
    for call in (source.queue("work"), source.get("work"), source.stop(), consume(source, "work", ear)):
        with Trouble(SourceState.AWAY) as caught:
            await call
        assert caught.error is ear.losses[0]
    with Trouble(SourceState.AWAY):
        source.ack(1)
    with Trouble(SourceState.AWAY):
        await publisher.publish(numbered("work", 1))
    await source.close()
    await source.close()
    assert (len(ear.losses), ear.ends) == (1, [])


async def test_messages_under_way_on_a_cut_connection_are_answered(
    connections: Connections, rabbit_server: RabbitServer, rabbit_vhost: str
) -> None:
    await connections.filled("work", 0)
    with Relay(rabbit_server.port) as relay:
        publisher = await connections.publishing(rabbit_server.url(rabbit_vhost, port=relay.port))
        await publisher.publish(numbered("work", 0))
        relay.fall_silent()
        call = asyncio.create_task(publisher.publish(numbered("work", 1)))
        await asyncio.sleep(0)
        relay.cut()
        with Trouble(SourceState.AWAY):
            await call


async def test_a_broker_that_does_not_answer_is_given_up(
    connections: Connections, rabbit_server: RabbitServer, rabbit_vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    with Relay(rabbit_server.port) as relay:
        source = await connections.consuming(ear, rabbit_server.url(rabbit_vhost, port=relay.port))
        relay.fall_silent()
        monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.3)
        with Trouble(SourceState.AWAY) as caught:
            await source.queue("work")
        assert ear.losses == [caught.error]
        await source.close()


async def test_a_broker_that_shuts_down_is_away(connections: Connections, rabbit_server: RabbitServer) -> None:
    ear = Ear()
    await connections.filled("work", 2)
    source = await connections.consuming(ear)
    await consume(source, "work", ear)
    await ear.hear(2)
    rabbit_server.stop()
    try:
        await until(lambda: bool(ear.losses))
        assert (ear.losses[0].state, ear.ends) == (SourceState.AWAY, [])
        assert "shutdown" in ear.losses[0].why
        with Trouble(SourceState.AWAY):
            await connections.consuming()
    finally:
        rabbit_server.start()
    again = Ear()
    await consume(await connections.consuming(again), "work", again)
    assert await again.hear(2) == [0, 1]


async def test_a_closed_connection_says_so(connections: Connections) -> None:
    publisher = await connections.publishing()
    await publisher.close()
    await publisher.close()
    with pytest.raises(Exception, match="closed"):
        await publisher.publish(OutMessage(routing_key="x", body=b""))
    assert connections.losses == []
