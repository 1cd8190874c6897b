"""The delivery process of a manager, beside the workers: takes messages from brokers and publishes to them, and sends
alerts through their channels."""

import os
from collections.abc import Callable, Iterable

import msgspec

from pitboss.engines.protocol import Clock, Store
from pitboss.manager import host
from pitboss.manager.announcer import Announcer
from pitboss.manager.side_process import Program, SideProcess, SideState
from pitboss.manager.store_alert import StoreAlert
from pitboss.model.alert_message import AlertMessage
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.facts import RestartRequired
from pitboss.model.pool import PoolSpec
from pitboss.model.queue import HandlerInfo
from pitboss.model.snapshot import DeliveryFigures
from pitboss.model.source import DeliverySpec, is_sent
from pitboss.model.source_findings import KIND
from pitboss.worker.channel import (
    FromDelivery,
    LogMessage,
    TellMessage,
    ToDelivery,
    WornOutMessage,
    from_delivery_codec,
)

MODULE = "pitboss.cli.delivery_process"
DRAIN_SECONDS = 5.0
# While it is silent no messages are taken, and it has no code of users that could keep it busy.
_RULES = PoolSpec(name="delivery", unresponsive=20 * SECOND)
_NAME = "delivery process"


class DeliveryKeeper:
    """Keeps the delivery process running as the settings say; without sources and channels there is none."""

    def __init__(self, spec: DeliverySpec | None, *, clock: Clock, announcer: Announcer) -> None:
        self._spec, self._clock, self._announcer = _with_manager(spec), clock, announcer
        self._started = False
        # What was said last about each thing, without the reason.
        self._told: dict[str, str] = {}
        program = Program(
            _NAME,
            MODULE,
            self._spec or DeliverySpec(store=""),
            from_delivery_codec,
            broken="it cannot start",
            secret=True,
            at_once=True,
        )
        self._process: SideProcess[FromDelivery, ToDelivery] = SideProcess(
            program, rules=_RULES, clock=clock, tell=announcer.warn, heard=self._hear
        )

    def start(self) -> None:
        """Run it from now on."""
        self._started = True
        if self._spec is not None:
            self._process.restart(self._spec)

    def change(self, spec: DeliverySpec | None) -> None:
        """Continue with these settings. The same ones change nothing, unless the process was given up."""
        before, self._spec = self._spec, _with_manager(spec)
        if not self._started:
            return
        if self._spec is None:
            self._process.retire()
        elif self._spec != before or self._process.status.state in (SideState.CRASHED, SideState.STOPPED):
            self._process.restart(self._spec)

    def store_alert(self, spec: Callable[[], AlertsSpec | None]) -> StoreAlert:
        """Tells the channels when the store is away."""
        return StoreAlert(spec, self.tell, self._clock)

    def tell(self, channels: tuple[str, ...], message: AlertMessage) -> None:
        """Send it through these channels past the store."""
        self._process.say(TellMessage(channels, message))

    async def stop(self, within: float = DRAIN_SECONDS) -> None:
        await self._process.stop(within)

    @property
    def figures(self) -> DeliveryFigures | None:
        """What other hosts see; None if there are no sources."""
        if self._spec is None:
            return None
        status = self._process.status
        names = tuple(one.name for one in self._spec.sources)
        return DeliveryFigures(
            names=names,
            channels=tuple(one.name for one in self._spec.channels),
            state=status.state.value,
            pid=status.pid,
            restarts=status.restarts,
            why=status.why,
            worn_out=_NAME in self._told,
        )

    def _hear(self, message: FromDelivery, _: Callable[[ToDelivery], None]) -> None:
        match message:
            case LogMessage(level, text, about):
                if self._is_news(text, about):
                    (self._announcer.say if level == "info" else self._announcer.warn)(text)
                if about and level == "info":
                    self._told.pop(_NAME, None)
            case WornOutMessage(why) if self._spec is not None:
                if self._is_news(f"replaced: {why}", _NAME):
                    self._announcer.warn(f"the {_NAME} is replaced: {why}; and again, while nothing is connected")
                self._announcer.publish(
                    RestartRequired(process=_NAME, why=why, host=host.name(), at=self._clock.wall(), pool="")
                )
                self._process.restart(self._spec)

    def _is_news(self, text: str, about: str) -> bool:
        """A process that takes the place of a worn-out one meets the same trouble: it is told once."""
        state = text.partition(": ")[0]
        known = about and self._told.get(about) == state
        if about:
            self._told[about] = state
        return not known


async def register_reserved(store: Store, spec: DeliverySpec | None, app: str, own: int = 0) -> None:
    """Register the reserved handlers of this app's sources and channels, and forget those of what it has no more.

    Another manager may have other settings, and another app the same name: what its delivery process serves is kept, or
    its tasks would fail without a dead letter. `own` is the process of this manager, which is about to change.
    """
    wanted = spec.reserved(app) if spec is not None else []
    known = [one for one in await store.handlers() if is_sent(one.name)]
    gone = _gone(known, app, {one.name for one in wanted})
    if gone:
        served = await _served(store, own)
        gone = [name for name in gone if name not in served]
    if gone:
        await store.forget(gone)
    if wanted:
        await store.register(wanted)


def _gone(known: Iterable[HandlerInfo], app: str, kept: set[str]) -> list[str]:
    return [one.name for one in known if one.name not in kept and from_json(one.about).get("app") == app]


async def _served(store: Store, own: int) -> set[str]:
    """The reserved handlers of other live delivery processes."""
    now, this = store.clock.now(), (host.name(), own)
    others = [one for one in await store.sessions() if one.info.kind == KIND and one.alive(now)]
    return {name for one in others if (one.info.host, one.info.pid) != this for name in one.info.handlers}


def _with_manager(spec: DeliverySpec | None) -> DeliverySpec | None:
    return (
        None
        if spec is None or not (spec.sources or spec.channels)
        else msgspec.structs.replace(spec, manager=os.getpid())
    )
