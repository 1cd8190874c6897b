"""The delivery process: all sources of one manager with their outboxes, and its channels of alerts, until it is
drained."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.broker_protocol import Broker
from pitboss.engines.protocol import Store
from pitboss.model.alert_message import POLICY as ALERT_POLICY
from pitboss.model.alert_message import AlertMessage, ChannelSpec, is_alert_handler
from pitboss.model.errors import StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.session import SessionInfo
from pitboss.model.source import (
    COUNTS_RETURNS,
    KNOWN_FAILED,
    POLICY,
    SourceFigures,
    SourceSpec,
    SourceState,
)
from pitboss.model.source_findings import KIND, live_sources
from pitboss.model.text import counted
from pitboss.operate.task_types import TaskTypes
from pitboss.sources.alerts import AlertWorker
from pitboss.sources.connecting import Tries
from pitboss.sources.outbox import Outbox, OutboxWorker, Outlet
from pitboss.sources.source import Services, Source
from pitboss.worker.channel import (
    Channel,
    FromDelivery,
    HeartbeatMessage,
    LogMessage,
    ReadyMessage,
    TellMessage,
    ToDelivery,
    WornOutMessage,
    delivery_codec,
)

BEAT_SECONDS = 1.0
# Gets a function that tells people why the store is not open yet.
Opening = Callable[[Callable[[str], None]], Awaitable[None]]
_FAULT_SECONDS = 5.0
# What people read, if it does and if it does not.
_TAKES = ("takes messages", "takes no messages")
_PUBLISHES = ("can publish", "publishes nothing")
# States in which a source may have a consumer.
_CONSUMES = frozenset({SourceState.RUNNING, SourceState.FULL, SourceState.STORE})
_PUBLISHES_SOME = (_PUBLISHES[0], "cannot publish some messages")


class DeliveryProcess:
    """Runs the sources. `make_broker` gets a URL; `luck` gives random numbers in [0, 1); `manager` is its process."""

    def __init__(
        self,
        specs: tuple[SourceSpec, ...],
        store: Store,
        *,
        make_broker: Callable[[str], Broker],
        make_id: Callable[[], TaskId],
        luck: Callable[[], float],
        manager: int = 0,
        channels: tuple[ChannelSpec, ...] = (),
    ) -> None:
        self._manager = manager
        self._specs, self._store, self._make_id, self._luck = specs, store, make_id, luck
        self._types = TaskTypes(store, store.clock.now)
        self.worn_out: Callable[[str], None] = lambda _why: None
        self._brokers = {url: make_broker(url) for url in {spec.url for spec in specs}}
        self._outlets = {url: Outlet(broker, self._tries()) for url, broker in self._brokers.items()}
        self._workers = [OutboxWorker(spec, self._outlets[spec.url], self._types) for spec in specs]
        self._say: Callable[[LogMessage], None] = lambda _: None
        self._alerts = {one.name: self._alert_worker(one) for one in channels}
        self._outbox = Outbox([*self._workers, *self._alerts.values()], self._dispatcher)
        self._sources = [self._source(spec) for spec in specs]
        self._shape: Sequence[tuple[object, ...]] = ()
        self._teller = Teller()

    @property
    def figures(self) -> tuple[SourceFigures, ...]:
        return tuple(
            msgspec.structs.replace(
                source.figures,
                out_state=worker.state[0],
                out_why=worker.state[1],
                out_some=worker.outlet.open and worker.state[0] is not SourceState.RUNNING,
                published=worker.published,
                pid=os.getpid(),
                manager=self._manager,
            )
            for source, worker in zip(self._sources, self._workers, strict=True)
        )

    async def run(self, end: socket.socket, opened: Opening | None = None) -> None:
        """Until the manager says drain, or is gone. `opened` returns when the store is open."""
        over = asyncio.Event()

        def hear(message: ToDelivery) -> None:
            match message:
                case TellMessage(channels, alert):
                    self._send_now(channels, alert)
                case _:
                    over.set()

        channel: Channel[ToDelivery, FromDelivery] = await Channel.over(end, delivery_codec(), hear, over.set)
        self._say, self.worn_out = channel.say, lambda why: channel.say(WornOutMessage(why))
        beating = asyncio.create_task(self._beat_to(channel)())
        # What the manager tells past the store goes out before the store is open.
        working = asyncio.create_task(self._work(channel, opened))
        await over.wait()
        for task in (beating, working):
            task.cancel()
        await asyncio.gather(beating, working, return_exceptions=True)
        channel.close()

    async def _work(self, channel: Channel[ToDelivery, FromDelivery], opened: Opening | None) -> None:
        if opened is not None:
            await opened(lambda text: channel.say(LogMessage("warning", text, about="the store")))
        channel.say(ReadyMessage(os.getpid()))
        work = [self._outbox.run]
        work += [outlet.run for outlet in self._outlets.values()] + [source.run for source in self._sources]
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(_lasting(one, lambda text: channel.say(LogMessage("error", text))))

    def _send_now(self, channels: Sequence[str], message: AlertMessage) -> None:
        for name in channels:
            if name in self._alerts:
                self._alerts[name].send_now(message)

    def _alert_worker(self, channel: ChannelSpec) -> AlertWorker:
        about = f"alert channel {channel.name}"
        return AlertWorker(
            channel,
            self._store.clock,
            tell=lambda text: self._say(LogMessage("warning", text, about)),
            well=lambda text: self._say(LogMessage("info", text, about)),
        )

    def _beat_to(self, channel: Channel[ToDelivery, FromDelivery]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def beat() -> None:
            while True:
                channel.say(HeartbeatMessage(0))
                self._tell_changes(channel)
                await asyncio.sleep(BEAT_SECONDS)

        return beat

    def _tell_changes(self, channel: Channel[ToDelivery, FromDelivery]) -> None:
        """Other hosts read the figures in the session. A new state does not wait for the next renewal."""
        figures = self.figures
        for line in (line for one in figures for line in self._teller.lines(one)):
            channel.say(line)
        shape = [(one.state, one.why, one.out_state, one.out_why) for one in figures]
        if shape != self._shape and self._outbox.dispatcher is not None:
            self._shape = shape
            self._outbox.dispatcher.renew_now()

    def _source(self, spec: SourceSpec) -> Source:
        divert = partial(self._outlets[spec.url].publish_dead, spec=spec)
        services = Services(self._store, self._types, self._make_id, divert, self._has_sibling)
        return Source(spec, self._brokers[spec.url], services, self._tries())

    async def _has_sibling(self, source: str) -> bool:
        own = self._outbox.dispatcher.session if self._outbox.dispatcher is not None else None
        try:
            sessions = await self._store.sessions()
        except StoreUnavailable:
            return True
        now = self._store.clock.now()
        return any(
            one.name == source and one.state in _CONSUMES
            for session, figures in live_sources(sessions, now)
            if own is None or session.number != own.number
            for one in figures
        )

    def _tries(self) -> Tries:
        return Tries(self._luck, self._wear_out)

    def _wear_out(self, why: str) -> None:
        """Once: every connection of this process counts its own tries. A process of which something is connected is not
        to blame, and its other sources must not be interrupted."""
        sources, outlets = self._sources, self._outlets.values()
        if any(source.connected for source in sources) or any(outlet.connected for outlet in outlets):
            return
        tell, self.worn_out = self.worn_out, lambda _why: None
        tell(why)

    def _dispatcher(self, lost: Callable[[], None]) -> Dispatcher:
        handlers = (*(spec.outbox for spec in self._specs), *(one.handler for one in self._alerts.values()))
        return Dispatcher(
            self._store,
            SessionInfo(host=socket.gethostname(), pid=os.getpid(), kind=KIND, handlers=handlers),
            clock=self._store.clock,
            luck=self._luck,
            policies=lambda handler: ALERT_POLICY if is_alert_handler(handler) else POLICY,
            snapshot=lambda: msgspec.json.encode(self.figures).decode(),
            on_lost=lost,
        )


class Teller:
    """Says what breaks, and when it is over; each once."""

    def __init__(self) -> None:
        self._malformed: dict[str, int] = {}
        self._requeued: dict[str, int] = {}
        self._known_failed: set[str] = set()
        self._known: dict[str, SourceState] = {}

    def lines(self, one: SourceFigures) -> Iterator[LogMessage]:
        before, self._malformed[one.name] = self._malformed.get(one.name, 0), one.malformed
        if one.malformed > before:
            more = counted(one.malformed - before, "malformed message")
            yield LogMessage("warning", f"source {one.name}: {more} for the dead-letter queue; {one.malformed_why}")
        if one.known_failed and one.name not in self._known_failed:
            self._known_failed.add(one.name)
            yield LogMessage("warning", f"source {one.name}: a message {KNOWN_FAILED}")
        returned, self._requeued[one.name] = self._requeued.get(one.name, 0), one.requeued
        if one.requeued > returned:
            more = counted(one.requeued - returned, "message was", "messages were")
            yield LogMessage("warning", f"source {one.name}: {more} given back to RabbitMQ; {COUNTS_RETURNS}")
        yield from self._line(one.name, _TAKES, one.state, one.why)
        yield from self._line(one.name, _PUBLISHES_SOME if one.out_some else _PUBLISHES, one.out_state, one.out_why)

    def _line(self, name: str, does: tuple[str, str], state: SourceState, why: str) -> Iterator[LogMessage]:
        about = f"source {name} {does[0]}"
        before = self._known.get(about, SourceState.STARTING)
        self._known[about] = state
        if state is before:
            return
        match state:
            case SourceState.RUNNING:
                again = "" if before is SourceState.STARTING else " again"
                yield LogMessage("info", f"{about}{again}", about)
            case SourceState.STANDBY:
                yield LogMessage("info", f"source {name} stands by: {why}", about)
            case SourceState.STARTING:
                pass
            case _:
                yield LogMessage("warning", f"source {name} {does[1]} ({state}): {why}", about)


async def _lasting(work: Callable[[], Coroutine[Any, Any, None]], tell: Callable[[str], None]) -> None:
    """Start broken work again: a source that has ended silently would look alive."""
    while True:
        try:
            return await work()
        except StoreUnavailable:
            await asyncio.sleep(BEAT_SECONDS)
        except Exception as error:
            tell(f"a fault of Pitboss itself in a source ({type(error).__name__}: {error}); it continues")
            await asyncio.sleep(_FAULT_SECONDS)
