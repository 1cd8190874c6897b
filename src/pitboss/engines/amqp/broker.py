"""`engines.broker_protocol` for RabbitMQ."""

from collections.abc import Callable

from pitboss.engines.amqp.address import address
from pitboss.engines.amqp.connection import Connection
from pitboss.engines.amqp.consuming import AmqpConsuming
from pitboss.engines.amqp.publishing import AmqpPublishing
from pitboss.engines.broker_protocol import BrokerError


class AmqpBroker:
    def __init__(self, url: str) -> None:
        self._address = address(url)

    async def consuming(self, lost: Callable[[BrokerError], None]) -> AmqpConsuming:
        return AmqpConsuming(await self._connect("pitboss source", lost))

    async def publishing(
        self, lost: Callable[[BrokerError], None], blocked: Callable[[str | None], None]
    ) -> AmqpPublishing:
        return AmqpPublishing(await self._connect("pitboss outbox", lost), blocked)

    async def _connect(self, name: str, lost: Callable[[BrokerError], None]) -> Connection:
        connection = Connection(self._address, lost)
        await connection.open(name)
        return connection
