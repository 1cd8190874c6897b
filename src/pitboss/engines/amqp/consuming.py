"""Messages in: consume, acknowledge in groups, give back."""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pika import spec

from pitboss.engines.amqp import faults, messages
from pitboss.engines.amqp.connection import CLOSE_SECONDS, Channel, Connection, Kind, declare
from pitboss.engines.broker_protocol import BrokerError, Message
from pitboss.model.source import SourceState

Heard = Callable[[Message], None]

# A quorum queue forgets a consumer, and takes its messages back, a moment after its channel or connection has ended.
FORGET_SECONDS = 2.0
# An end that we have not seen, that of another manager for instance, is waited for less.
GRACE_SECONDS = 0.5
# Before the second look; each later pause is twice as long.
LOOK_SECONDS = 0.02


class AmqpConsuming:
    """One channel at a time. Its tags start at 1; ours go on from the last one of the channel before."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: Channel | None = None
        self._before = self._last = 0
        # The tags of messages that are not acknowledged, in order.
        self._held: dict[int, None] = {}
        self._queue = self._consumer = ""
        self._feed: _Feed | None = None
        self._getting: asyncio.Future[Message | None] | None = None
        self._one_get = asyncio.Lock()

    async def queue(self, name: str, create: Kind | None = None) -> int:
        facts = await declare(self._connection, name, create)
        return int(facts.message_count)

    async def consume(
        self,
        queue: str,
        *,
        prefetch: int,
        exclusive: bool,
        heard: Heard,
        ended: Callable[[BrokerError], None],
    ) -> None:
        if exclusive:
            await self._refuse_if_consumed(queue, allowed=0, seconds=GRACE_SECONDS)
        try:
            channel, feed = await self._begin(queue, prefetch, exclusive, heard, ended)
        except BrokerError as error:
            if not exclusive or error.state is not SourceState.IN_USE:
                raise
            # A queue with a single active consumer refuses exclusive ones, also if it has no other. It lets one consume
            # at a time itself.
            channel, feed = await self._begin(queue, prefetch, False, heard, ended)
        # Set after the answer: a refused consumption has not begun, so it does not end.
        channel.ended = lambda error: self._ended(channel, error, ended)
        channel.check()
        if exclusive:
            await self._keep_if_alone(queue)
        if self._channel is channel:
            feed.open()

    async def _begin(
        self, queue: str, prefetch: int, exclusive: bool, heard: Heard, ended: Callable[[BrokerError], None]
    ) -> tuple[Channel, "_Feed"]:
        channel = await self._ready(queue)
        self._feed = feed = _Feed(heard)
        await channel.ask(channel.driver.basic_qos, prefetch_count=prefetch)
        channel.driver.add_on_cancel_callback(lambda _: self._cancelled(channel, queue, ended))
        answer = await channel.ask(
            channel.driver.basic_consume,
            queue=queue,
            on_message_callback=lambda _, method, properties, body: feed.take(self._received(method, properties, body)),
            exclusive=exclusive,
        )
        self._consumer = answer.method.consumer_tag
        return channel, feed

    def ack(self, tag: int, *, multiple: bool = True) -> None:
        self._connection.check()
        # The broker closes the channel on a tag that it does not know: an old one, or one that is acknowledged.
        if self._channel is None or self._channel.error or not (known := self._take_held(tag, multiple)):
            return
        self._channel.driver.basic_ack(known - self._before, multiple=multiple)

    async def stop(self, stored_upto: int | None = None) -> None:
        self._connection.check()
        channel, self._channel = self._channel, None
        if channel is None or channel.error:
            return
        if self._feed is not None:
            self._feed.close()
        try:
            consumers = await self._wait_for_fewer(self._queue, 0, 0.0)
            if stored_upto is not None:
                await channel.ask(channel.driver.basic_cancel, consumer_tag=self._consumer)
                if known := self._take_held(stored_upto, multiple=True):
                    channel.driver.basic_ack(known - self._before, multiple=True)
            # Not cancel and nack: a quorum queue would put the messages behind those that wait.
            await channel.close()
            await self._wait_for_fewer(self._queue, max(consumers - 1, 0), FORGET_SECONDS)
        except BrokerError as error:
            channel.drop()
            # With the queue, its messages are gone.
            if error.state is not SourceState.MISSING:
                raise

    async def get(self, queue: str) -> Message | None:
        async with self._one_get:
            channel = await self._ready(queue)
            self._getting = answer = asyncio.get_running_loop().create_future()
            channel.driver.basic_get(
                queue, lambda _, method, properties, body: self._got(self._received(method, properties, body))
            )
            message: Message | None = await channel.answer(answer)
            return message

    async def close(self) -> None:
        # The end of a connection cancels the consumer before it gives the messages back: the next consumer of a quorum
        # queue would get those behind them first.
        with suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.stop()
        await self._connection.close()

    async def _ready(self, queue: str) -> Channel:
        self._connection.check()
        self._queue = queue
        if self._channel is None or self._channel.error:
            channel = await self._connection.channel()
            channel.driver.add_callback(lambda _: self._got(None), [spec.Basic.GetEmpty], one_shot=False)
            self._channel = channel
            self._before, self._feed = self._last, None
            self._held.clear()
        return self._channel

    async def _refuse_if_consumed(self, queue: str, allowed: int, seconds: float = 0.0) -> None:
        """A quorum queue accepts "exclusive" and lets others consume as well, so the consumers are counted."""
        consumers = await self._wait_for_fewer(queue, allowed, seconds)
        if consumers > allowed:
            raise faults.in_use(queue, consumers - allowed)

    async def _wait_for_fewer(self, queue: str, most: int, seconds: float) -> int:
        """How many consumers the queue has, once there are no more than `most`, or the time is over."""
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + seconds, LOOK_SECONDS
        # One channel for all looks: a source that stands by does this every few seconds.
        channel = await self._connection.channel()
        try:
            while (consumers := await _consumers(channel, queue)) > most and clock() < deadline:
                await asyncio.sleep(pause)
                pause *= 2
        finally:
            channel.drop()
        return consumers

    async def _keep_if_alone(self, queue: str) -> None:
        try:
            await self._refuse_if_consumed(queue, allowed=1)
        except BrokerError:
            if self._connection.error is None:
                await self.stop()
            raise

    def _take_held(self, tag: int, multiple: bool) -> int:
        """Hold this message, or all up to it, no longer. Returns the last of them; 0 if there is none."""
        upto = itertools.takewhile(lambda held: held <= tag, self._held)
        taken = list(upto) if multiple else [held for held in (tag,) if held in self._held]
        for held in taken:
            del self._held[held]
        return taken[-1] if taken else 0

    def _received(self, method: Any, properties: Any, body: bytes) -> Message:
        self._last = self._before + method.delivery_tag
        self._held[self._last] = None
        return messages.received(self._last, method, properties, body)

    def _got(self, message: Message | None) -> None:
        if self._getting is not None and not self._getting.done():
            self._getting.set_result(message)

    def _cancelled(self, channel: Channel, queue: str, ended: Callable[[BrokerError], None]) -> None:
        """The broker ends the consumption and leaves the channel open."""
        channel.drop()
        self._ended(channel, faults.consumer_cancelled(queue), ended)

    def _ended(self, channel: Channel, error: BrokerError, ended: Callable[[BrokerError], None]) -> None:
        if self._channel is channel and self._connection.error is None:
            self._channel = None
            ended(error)


async def _consumers(channel: Channel, queue: str) -> int:
    frame = await channel.ask(channel.driver.queue_declare, queue=queue, passive=True)
    return int(frame.method.consumer_count)


class _Feed:
    """Messages can arrive before it is known that no other consumer is there: they are kept until `open`."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._kept: list[Message] = []
        self.take: Heard = self._kept.append

    def open(self) -> None:
        self.take = self._heard
        for message in self._kept:
            self._heard(message)

    def close(self) -> None:
        """Messages that still arrive are not told: they go back to the queue."""
        self.take = _ignore


def _ignore(message: Message) -> None:
    pass
