"""What tests of the broker share: connections that are closed after the test, and what came over them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest

from pitboss.engines.amqp import AmqpBroker
from pitboss.engines.amqp.consuming import AmqpConsuming
from pitboss.engines.amqp.publishing import AmqpPublishing
from pitboss.engines.broker_protocol import BrokerError, Message, OutMessage, Properties
from pitboss.model.source import SourceState
from pitboss.testing.plugin import InLoop

SECONDS = 15.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Ear:
    """What a source would get from its connection."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ends: list[BrokerError] = []
        self.losses: list[BrokerError] = []

    async def hear(self, count: int) -> list[int]:
        """Wait for that many messages in all; returns their numbers."""
        await until(lambda: len(self.messages) >= count)
        return self.numbers

    @property
    def numbers(self) -> list[int]:
        return [int(message.body) for message in self.messages]


class Connections(InLoop):
    """Opens connections to one broker, and closes them after the test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._open: list[AmqpConsuming | AmqpPublishing] = []
        self.alarms: list[str | None] = []
        self.losses: list[BrokerError] = []

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._open:
            await connection.close()

    async def consuming(self, ear: Ear | None = None, url: str | None = None) -> AmqpConsuming:
        connection = await AmqpBroker(url or self.url).consuming((ear or self).losses.append)
        self._open.append(connection)
        return connection

    async def publishing(self, url: str | None = None) -> AmqpPublishing:
        connection = await AmqpBroker(url or self.url).publishing(self.losses.append, self.alarms.append)
        self._open.append(connection)
        return connection

    @contextmanager
    def foreign(self) -> Iterator[Any]:
        """A channel of another client."""
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            yield connection.channel()

    async def filled(self, queue: str, count: int, kind: str = "classic", first: int = 0) -> AmqpPublishing:
        """Numbered messages in a queue, which is made first."""
        connection = await self.publishing()
        await connection.queue(queue, "quorum" if kind == "quorum" else "classic")
        for number in range(first, first + count):
            await connection.publish(numbered(queue, number))
        return connection


def numbered(queue: str, number: int) -> OutMessage:
    return OutMessage(routing_key=queue, body=b"%d" % number, properties=Properties(message_id=f"m{number}"))


async def consume(connection: AmqpConsuming, queue: str, ear: Ear, prefetch: int = 500, exclusive: bool = True) -> None:
    await connection.consume(
        queue, prefetch=prefetch, exclusive=exclusive, heard=ear.messages.append, ended=ear.ends.append
    )


class Trouble:
    """`with trouble(state) as caught`: a broker's error with that state, whose parts are all filled."""

    def __init__(self, state: SourceState) -> None:
        self._state = state
        self._raises = pytest.raises(BrokerError)

    def __enter__(self) -> "Trouble":
        self._caught = self._raises.__enter__()
        return self

    def __exit__(self, *exc: object) -> bool:
        passed = self._raises.__exit__(*exc)  # type: ignore[arg-type]
        assert (self.error.state, bool(self.error.why), bool(self.error.fix)) == (self._state, True, True)
        return bool(passed)

    @property
    def error(self) -> BrokerError:
        return self._caught.value
