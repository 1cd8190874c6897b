"""Messages out: published with confirms, many at a time."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from pika.exceptions import AMQPError

from pitboss.engines.amqp import faults, messages
from pitboss.engines.amqp.connection import Channel, Connection, Kind, declare
from pitboss.engines.broker_protocol import BrokerError, OutMessage

CONFIRM_SECONDS = 10.0
# How long a message may wait for the end of an alarm.
BLOCKED_SECONDS = 3.0


class AmqpPublishing:
    """A channel for each exchange: the broker answers a missing or forbidden exchange by closing the channel, with all
    that is under way on it."""

    def __init__(self, connection: Connection, blocked: Callable[[str | None], None]) -> None:
        self._connection, self._tell = connection, blocked
        self._exchanges: dict[str, _Exchange] = {}
        self._opening = asyncio.Lock()
        self._reason: str | None = None
        self._free = asyncio.Event()
        self._free.set()
        connection.driver.add_on_connection_blocked_callback(lambda _, frame: self._alarm(frame.method.reason))
        connection.driver.add_on_connection_unblocked_callback(lambda *_: self._alarm_over())

    @property
    def blocked(self) -> str | None:
        return self._reason

    async def publish(self, message: OutMessage) -> None:
        self._connection.check()
        await self._wait_for_the_alarm()
        exchange = self._exchanges.get(message.exchange)
        if exchange is None or exchange.channel.error is not None:
            exchange = await self._open(message.exchange)
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await exchange.publish(message)
        except TimeoutError:
            error = faults.not_confirmed(self._connection.address, CONFIRM_SECONDS)
            exchange.give_up(error)
            raise error from None

    async def queue(self, name: str, create: Kind | None = None) -> int:
        facts = await declare(self._connection, name, create)
        return int(facts.message_count)

    async def close(self) -> None:
        await self._connection.close()

    async def _open(self, name: str) -> "_Exchange":
        async with self._opening:
            known = self._exchanges.get(name)
            if known is None or known.channel.error is not None:
                channel = await self._connection.channel()
                known = _Exchange(channel)
                await channel.ask(channel.driver.confirm_delivery, ack_nack_callback=known.confirmed)
                self._exchanges[name] = known
            return known

    async def _wait_for_the_alarm(self) -> None:
        if self._reason is None:
            return
        try:
            async with asyncio.timeout(BLOCKED_SECONDS):
                await self._free.wait()
        except TimeoutError:
            raise faults.blocked(self._reason or "") from None

    def _alarm(self, reason: str) -> None:
        self._reason = f"{messages.plain(reason)}"
        self._free.clear()
        asyncio.get_running_loop().call_later(BLOCKED_SECONDS, self._fail_what_waits)
        self._tell(self._reason)

    def _alarm_over(self) -> None:
        self._reason = None
        self._free.set()
        self._tell(None)

    def _fail_what_waits(self) -> None:
        if self._reason is not None:
            for exchange in self._exchanges.values():
                exchange.fail_all(faults.blocked(self._reason))


class _Exchange:
    """The channel in confirm mode, and the messages on it that the broker has not confirmed, by their number."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        channel.ended = self.fail_all
        channel.driver.add_on_return_callback(lambda _, *returned: self._returned(*returned))
        self._sent = self._oldest = 0
        self._waiting: dict[int, tuple[OutMessage, asyncio.Future[None]]] = {}

    async def publish(self, message: OutMessage) -> None:
        self.channel.check()
        try:
            self.channel.driver.basic_publish(
                message.exchange, message.routing_key, message.body, messages.to_send(message), mandatory=True
            )
        except (AMQPError, struct.error, ValueError, TypeError, AssertionError) as error:
            raise faults.unsendable(error) from error
        self._sent += 1
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[self._sent] = message, confirmed
        await confirmed

    def confirmed(self, frame: Any) -> None:
        """An ack or a nack, of one message or of all up to it."""
        method = frame.method
        taken = method.NAME == "Basic.Ack"
        first = self._oldest + 1 if method.multiple else method.delivery_tag
        if method.multiple:
            self._oldest = method.delivery_tag
        for number in range(first, method.delivery_tag + 1):
            if taken:
                self._answer(number, None)
            elif number in self._waiting:
                message, _ = self._waiting[number]
                self._answer(number, faults.not_taken(message.exchange, message.routing_key))

    def give_up(self, error: BrokerError) -> None:
        """The next message has a channel of its own: what waits here, and is published again, would become more and
        more, and would come as often once the queue takes messages again."""
        self.channel.give_up(error)
        self.fail_all(error)

    def fail_all(self, error: BrokerError) -> None:
        for number in list(self._waiting):
            self._answer(number, error)

    def _returned(self, method: Any, properties: Any, body: bytes) -> None:
        """The broker does not say which message it returns. Of equal ones, any will do."""
        sent = [(number, message) for number, (message, _) in self._waiting.items()]
        alike = [one for one in sent if one[1].routing_key == method.routing_key and one[1].body == body]
        same = [one for one in alike if one[1].properties == messages.ours(properties)]
        for number, message in (same or alike)[:1]:
            self._answer(number, faults.unroutable(message.exchange, message.routing_key, method.reply_text))

    def _answer(self, number: int, error: BrokerError | None) -> None:
        _, confirmed = self._waiting.pop(number, (None, None))
        if confirmed is None or confirmed.done():
            return
        if error is None:
            confirmed.set_result(None)
        else:
            confirmed.set_exception(error)
