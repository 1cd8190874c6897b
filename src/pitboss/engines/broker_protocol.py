"""What sources need of a message broker. `engines.amqp` has it for RabbitMQ.

A broker has deliveries, not rows, so it is no store: a source pairs it with one. Two connections, because a broker that
is short of memory or disk stops reading from connections that publish.
"""

from collections.abc import Callable
from typing import Literal, Protocol

from pitboss.model.errors import PitbossError
from pitboss.model.message import Message, OutMessage, Properties
from pitboss.model.source import SourceState

__all__ = ["Broker", "BrokerError", "Consuming", "Message", "OutMessage", "Properties", "Publishing"]


class BrokerError(PitbossError):
    """The broker is away, or refuses. `state` names the trouble."""

    code = "broker"

    def __init__(self, state: SourceState, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.state = state

    @property
    def text(self) -> str:
        """All of it as sentences."""
        parts = [part.rstrip(".") for part in (self.what, self.why, self.fix) if part]
        return ". ".join(f"{part[:1].upper()}{part[1:]}" for part in parts)


class Consuming(Protocol):
    """A connection that consumes from one queue. An error of one call leaves the connection usable, unless it is lost:
    then `lost` has been called, and every call raises the same `BrokerError`."""

    async def queue(self, name: str, create: Literal["classic", "quorum"] | None = None) -> int:
        """How many messages wait in the queue (ready, not delivered). If it does not exist, it is made durable, of this
        kind; without one, `BrokerError` (MISSING). An existing queue is used as it is, whatever its kind."""

    async def consume(
        self,
        queue: str,
        *,
        prefetch: int,
        exclusive: bool,
        heard: Callable[[Message], None],
        ended: Callable[[BrokerError], None],
    ) -> None:
        """Begin to consume; `heard` gets each message, in order, from the event loop. At most `prefetch` are held
        without an acknowledgement. `exclusive`: no other consumer at the same time; if there is one, `BrokerError`
        (IN_USE), after half a second in which an ended one may be forgotten. A quorum queue does not keep foreign
        consumers out that come later. `ended` is called if the broker ends it (the queue is deleted, its node is gone,
        an acknowledgement was late), not if the connection is lost: the messages that are held belong to the broker
        again, and tags are worth nothing. It may be called before this returns."""

    def ack(self, tag: int, *, multiple: bool = True) -> None:
        """Acknowledge every message up to this tag, or only this one. Not confirmed by the broker: after a lost
        connection, messages that were acknowledged may come again. A tag that is not held any more is ignored."""

    async def stop(self, stored_upto: int | None = None) -> None:
        """Consume no more; once no more messages can come, acknowledge all up to this tag; give back to the queue, at
        their old places, those that are still held. Returns once they are there. Acknowledgements after the call are
        ignored."""

    async def get(self, queue: str) -> Message | None:
        """One message without consuming; None if the queue is empty. It is held until `ack` or `stop`. While it is
        held, a quorum queue counts it as a consumer: stop before an exclusive `consume`."""

    async def close(self) -> None:
        """Disconnect. Messages that are held go back to the queue. Harmless to repeat."""


class Publishing(Protocol):
    """A connection that publishes with confirms."""

    async def publish(self, message: OutMessage) -> None:
        """Returns once the broker has confirmed that the message is stored in at least one queue. `BrokerError`:
        UNROUTABLE (no queue takes it), REJECTED (a queue is full and refuses more), REFUSED, MISSING (no such
        exchange), BLOCKED (the broker has raised an alarm and takes nothing; known at once, and afterwards calls wait
        for at most a few seconds; messages that were sent before it was known are published when it is over), AWAY (it
        may or may not have been published). `InvalidInput` if a name or header cannot be sent. Calls may run side by
        side."""

    async def queue(self, name: str, create: Literal["classic", "quorum"] | None = None) -> int:
        """As `Consuming.queue`."""

    @property
    def blocked(self) -> str | None:
        """The reason of the alarm, while there is one."""

    async def close(self) -> None: ...


class Broker(Protocol):
    """One server, as a URL names it."""

    async def consuming(self, lost: Callable[[BrokerError], None]) -> Consuming:
        """Connect, within a few seconds. `BrokerError` AWAY, or REFUSED (user, password, virtual host). `lost` is
        called once, if the connection ends other than by `close`."""

    async def publishing(
        self, lost: Callable[[BrokerError], None], blocked: Callable[[str | None], None]
    ) -> Publishing:
        """As `consuming`. `blocked` is called with the reason of an alarm, and with None when it is over."""
