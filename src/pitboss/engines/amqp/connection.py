"""One connection of the driver, as calls that can be awaited, each within a time limit."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from pika import exceptions
from pika.adapters.asyncio_connection import AsyncioConnection

from pitboss.engines.amqp import faults
from pitboss.engines.amqp.address import CONNECT_SECONDS, Address
from pitboss.engines.broker_protocol import BrokerError
from pitboss.model.source import SourceState

ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 2.0

Kind = Literal["classic", "quorum"]


class Connection:
    """`lost` is called once, if the connection ends other than by `close`. After that, `error` says why."""

    def __init__(self, address: Address, lost: Callable[[BrokerError], None]) -> None:
        self.address = address
        self.error: BrokerError | None = None
        self._lost = lost
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self.driver: Any = None

    async def open(self, name: str) -> None:
        self.driver = AsyncioConnection(
            self.address.settings(name),
            on_open_callback=lambda _: _resolve(self._opened, None),
            on_open_error_callback=lambda _, error: _fail(self._opened, faults.unreachable(self.address, error)),
            on_close_callback=lambda _, error: self._ended(error),
        )
        try:
            # The driver limits each address of a host; this limits all of them together.
            async with asyncio.timeout(CONNECT_SECONDS * 1.2):
                await self._opened
        except TimeoutError:
            raise faults.no_connection_in_time(self.address, CONNECT_SECONDS) from None
        finally:
            if not (self.driver.is_open or self.driver.is_closing or self.driver.is_closed):
                self.driver.close()

    async def channel(self) -> "Channel":
        self.check()
        channel = Channel(self)
        await channel.open()
        return channel

    def check(self) -> None:
        if self.error is not None:
            # The same error many times: without this, it would collect the traceback of each.
            raise self.error.with_traceback(None)

    def fail(self, error: BrokerError) -> BrokerError:
        """The connection is of no use any more. Returns the first error of all."""
        if self.error is None:
            self.error = error
            self._lost(error)
        return self.error

    def give_up(self, error: BrokerError) -> BrokerError:
        """End a connection on which the broker does not answer."""
        first = self.fail(error)
        self._abort()
        return first

    async def close(self) -> None:
        if self.error is None:
            self.error = faults.closed(self.address)
            with suppress(exceptions.ConnectionWrongStateError):
                self.driver.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._over.wait()
        except TimeoutError:
            # A broker with an alarm does not read from connections that publish.
            self._abort()

    def _ended(self, error: BaseException) -> None:
        self.fail(faults.lost(self.address, error))
        self._over.set()

    def _abort(self) -> None:
        """The driver's public `close` waits for the broker. This is what its heartbeat does instead."""
        if not self._over.is_set():
            self.driver._terminate_stream(exceptions.ConnectionClosedByClient(0, "aborted"))


class Channel:
    """`ended` is called if the channel ends other than by `drop` or `close`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: set[asyncio.Future[Any]] = set()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: BrokerError | None = None
        self.ended: Callable[[BrokerError], None] | None = None
        self.driver: Any = None

    async def open(self) -> None:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.driver = self._connection.driver.channel(on_open_callback=lambda _: _resolve(opened, None))
        self.driver.add_on_close_callback(lambda _, reason: self._ended(reason))
        await self.answer(opened)

    async def ask(self, send: Callable[..., object], **arguments: Any) -> Any:
        """The broker's answer to a call of the driver that takes a callback."""
        self.check()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        send(callback=lambda frame: _resolve(answer, frame), **arguments)
        return await self.answer(answer)

    async def answer(self, answer: asyncio.Future[Any]) -> Any:
        """Wait for an answer. It fails when the channel ends."""
        self._waiting.add(answer)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        except TimeoutError:
            raise self._connection.give_up(faults.no_answer(self._connection.address, ANSWER_SECONDS)) from None
        finally:
            self._waiting.discard(answer)

    def check(self) -> None:
        self._connection.check()
        if self.error is not None:
            raise self.error.with_traceback(None)

    def drop(self) -> None:
        """Close without waiting."""
        self.ended = None
        if self.driver.is_open:
            self.driver.close()

    def give_up(self, error: BrokerError) -> None:
        """Close without waiting; from now on calls raise this."""
        self.error = self.error or error
        self.drop()

    async def close(self) -> None:
        """Messages that were delivered here and not acknowledged go back to their queue, in their order."""
        self.drop()
        if not self._closed.done():
            await self.answer(self._closed)

    def _ended(self, reason: Exception) -> None:
        if isinstance(reason, exceptions.ChannelClosedByClient):
            self.error = faults.closed(self._connection.address)
            _resolve(self._closed, None)
        elif isinstance(reason, exceptions.ChannelClosed):
            self.error = faults.channel_closed(reason)
        else:
            self.error = self._connection.fail(faults.lost(self._connection.address, reason))
        for waiting in self._waiting:
            _fail(waiting, self.error)
        if self.ended is not None:
            self.ended(self.error)


async def declare(connection: Connection, name: str, create: Kind | None) -> Any:
    """The broker's facts about a queue, which is made if it does not exist and a kind is given."""
    try:
        return await _declare(connection, queue=name, passive=True)
    except BrokerError as error:
        if create is None or error.state is not SourceState.MISSING:
            raise
    try:
        return await _declare(connection, queue=name, durable=True, arguments={"x-queue-type": create})
    except BrokerError as again:
        if again.state is not SourceState.REFUSED:
            raise
        refused = again
    # Another client may have made it in the meantime, with other settings.
    try:
        return await _declare(connection, queue=name, passive=True)
    except BrokerError:
        raise refused from None


async def _declare(connection: Connection, **arguments: Any) -> Any:
    # The broker closes the channel of a refused call: a channel of its own, so that no consumption ends with it.
    channel = await connection.channel()
    try:
        frame = await channel.ask(channel.driver.queue_declare, **arguments)
    finally:
        channel.drop()
    return frame.method


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: BrokerError) -> None:
    if not future.done():
        future.set_exception(error)
