"""The outbox: publishes the tasks of reserved handlers to their brokers, until each is confirmed.

They are ordinary tasks, claimed by a session of this process. While a broker takes nothing, nothing is claimed for it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.broker_protocol import Broker, BrokerError, OutMessage, Publishing
from pitboss.model.canonical import from_json
from pitboss.model.errors import StoreUnavailable
from pitboss.model.message import dead_letter, read_stored, takes_whole
from pitboss.model.outcome import Completed, Released, Retry
from pitboss.model.source import SourceSpec, SourceState
from pitboss.model.task import Claim, TaskError
from pitboss.model.text import counted
from pitboss.operate.task_types import TaskTypes
from pitboss.sources.connecting import Tries

# How many messages may be on their way to one broker.
IN_FLIGHT = 500
_DEAD = "dead"
# How long a state of trouble stays after the last message that met it.
_FORGET_SECONDS = 6.0
# Before another session is opened.
_STORE_SECONDS = 1.0


class Outlet:
    """The way to one broker: a connection that is kept open, for all sources that have its address."""

    def __init__(self, broker: Broker, tries: Tries) -> None:
        self._broker, self._tries = broker, tries
        self._connection: Publishing | None = None
        self._fault: BrokerError | None = None
        self._changed = asyncio.Event()
        self.state, self.why = SourceState.STARTING, ""
        self._watchers: list[Callable[[], None]] = []

    def on_change(self, told: Callable[[], None]) -> None:
        """Call this when it opens or closes."""
        self._watchers.append(told)

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def open(self) -> bool:
        """Whether it takes messages now."""
        return self._connection is not None and self._fault is None and self._connection.blocked is None

    async def run(self) -> None:
        """Connect, and connect again; ends only when it is cancelled."""
        while True:
            try:
                self._connection = await self._broker.publishing(self._lost, self._blocked)
                self._tries.succeeded()
                self._say(SourceState.RUNNING)
                self._blocked(self._connection.blocked)
                await self._until_lost()
            except BrokerError as error:
                self._say(error.state, error.text)
                await self._tries.pause(error.what)

    async def _until_lost(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            while self._fault is None:
                self._changed.clear()
                await self._changed.wait()
            raise self._fault
        finally:
            self._connection, self._fault = None, None
            self._tell()
            await connection.close()

    def _lost(self, error: BrokerError) -> None:
        self._fault = error
        self._changed.set()

    def _blocked(self, reason: str | None) -> None:
        if reason is None:
            self._say(SourceState.RUNNING)
        else:
            self._say(SourceState.BLOCKED, f"RabbitMQ has raised an alarm and takes no messages: {reason}")
        self._tell()

    def _tell(self) -> None:
        for told in self._watchers:
            told()

    async def publish(self, message: OutMessage) -> None:
        """Returns when the broker has confirmed it."""
        if self._connection is None:
            raise BrokerError(SourceState.AWAY, "the broker is not connected", why=self.why)
        await self._connection.publish(message)

    async def publish_dead(self, message: OutMessage, spec: SourceSpec) -> None:
        """As `publish`, for the dead-letter queue, which is ours to make, also if it was deleted."""
        try:
            await self.publish(message)
        except BrokerError as error:
            if error.state is not SourceState.UNROUTABLE or self._connection is None:
                raise
            await self._connection.queue(message.routing_key, spec.create or "classic")
            await self.publish(message)

    def _say(self, state: SourceState, why: str = "") -> None:
        self.state, self.why = state, why


class _Trouble(NamedTuple):
    """Of one target, from the first message that met it to the last."""

    began: float
    at: float
    state: SourceState
    why: str


class OutboxWorker:
    """Publishes the tasks of one source: a worker of the dispatcher, without a process."""

    capacity = IN_FLIGHT
    silence = 0.0

    def __init__(self, spec: SourceSpec, outlet: Outlet, types: TaskTypes) -> None:
        self.id = self.name = self.queue = spec.outbox
        self.on_change = outlet.on_change
        self.spec, self.outlet, self._types = spec, outlet, types
        self.dispatcher: Dispatcher | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        # By where the message should go: that others reach their queues does not end it.
        self._troubles: dict[tuple[str, str], _Trouble] = {}
        self.published = 0

    @property
    def open(self) -> bool:
        return self.outlet.open

    def start(self, claim: Claim) -> None:
        work = self._running[claim.id] = asyncio.create_task(self._run(claim))
        work.add_done_callback(lambda _: self._running.pop(claim.id, None))

    def stop(self, claim: Claim) -> None:
        """A message that is on its way cannot be stopped."""

    def recall(self) -> None:
        """Nothing waits in here: what was started is on its way."""

    @property
    def state(self) -> tuple[SourceState, str]:
        """How publishing goes, and what is wrong."""
        if self.outlet.state is not SourceState.RUNNING:
            return self.outlet.state, self.outlet.why
        recent = asyncio.get_running_loop().time() - _FORGET_SECONDS
        self._troubles = {target: one for target, one in self._troubles.items() if one.at > recent}
        if not self._troubles:
            return SourceState.RUNNING, ""
        # The oldest, not the last that was met: with two of them, the state would change all the time.
        oldest, others = min(self._troubles.values()), len(self._troubles) - 1
        more = f". And {counted(others, 'other target')} of messages: pitboss tasks list queue:{self.name}"
        return oldest.state, f"{oldest.why}{more if others else ''}"

    async def _run(self, claim: Claim) -> None:
        target = "", ""
        try:
            message = await self._message(claim)
            target = message.exchange, message.routing_key
            await self._publish(message)
        except BrokerError as error:
            self._failed(claim, target, error)
        except Exception as error:
            # A fault here must not end the session: the message stays, and the fault is shown with it.
            text = f"{type(error).__name__}: {error}"
            self._finish(claim, Retry(error=TaskError(category="fault", message=text, type=type(error).__name__)))
        else:
            self.published += 1
            self._troubles.pop(target, None)
            self._finish(claim, Completed())

    async def _message(self, claim: Claim) -> OutMessage:
        params: Mapping[str, object] = from_json(claim.params)
        dead = params.get(_DEAD)
        if not isinstance(dead, dict):
            return read_stored(claim.params)
        kind = (await self._types.all()).get(dead["handler"])
        return dead_letter(
            dead,
            claim.meta,
            source=self.spec.name,
            queue=self.spec.dead_letter_queue,
            task=claim.id,
            whole=kind is not None and takes_whole(kind.info.schema),
        )

    async def _publish(self, message: OutMessage) -> None:
        if not message.exchange and message.routing_key == self.spec.dead_letter_queue:
            await self.outlet.publish_dead(message, self.spec)
        else:
            await self.outlet.publish(message)

    def _failed(self, claim: Claim, target: tuple[str, str], error: BrokerError) -> None:
        if not self.outlet.open:
            # It is claimed again when there is a connection.
            self._finish(claim, Released(started=True))
            return
        # An alarm is over if the way is open.
        if error.state is not SourceState.BLOCKED:
            self._note(target, error)
        told = TaskError(category=error.state.value, message=error.text, type="BrokerError")
        self._finish(claim, Retry(error=told))

    def _note(self, target: tuple[str, str], error: BrokerError) -> None:
        now = asyncio.get_running_loop().time()
        before = self._troubles.get(target)
        began = before.began if before is not None and before.state is error.state else now
        self._troubles[target] = _Trouble(began, now, error.state, error.text)

    def _finish(self, claim: Claim, outcome: Completed | Released | Retry) -> None:
        if self.dispatcher is not None:
            self.dispatcher.finish(claim, outcome, worker=self.name)


class Sender(Protocol):
    """A worker of the dispatcher that sends the tasks of reserved queues."""

    @property
    def open(self) -> bool:
        """Whether it can send now."""

    id: str
    name: str
    queue: str
    capacity: int
    dispatcher: Dispatcher | None

    @property
    def silence(self) -> float: ...

    def start(self, claim: Claim) -> None: ...

    def stop(self, claim: Claim) -> None: ...

    def recall(self) -> None: ...

    def on_change(self, told: Callable[[], None]) -> None:
        """Call this when it can send again, or cannot any more."""


class Outbox:
    """All senders of this process, under one session."""

    def __init__(
        self,
        workers: Sequence[Sender],
        make_dispatcher: Callable[[Callable[[], None]], Dispatcher],
    ) -> None:
        self._workers, self._make_dispatcher = workers, make_dispatcher
        self.dispatcher: Dispatcher | None = None
        for worker in workers:
            worker.on_change(partial(self._follow, worker))

    async def run(self) -> None:
        """One session after the other; ends only when it is cancelled."""
        while True:
            lost = asyncio.Event()
            dispatcher = self._make_dispatcher(lost.set)
            try:
                await dispatcher.start()
                self.dispatcher = dispatcher
                for worker in self._workers:
                    worker.dispatcher = dispatcher
                    self._follow(worker)
                    dispatcher.add_worker(worker, pool=worker.name, queues=(worker.queue,))
                await lost.wait()
            except StoreUnavailable:
                pass
            finally:
                self.dispatcher = None
                await dispatcher.stop()
            await asyncio.sleep(_STORE_SECONDS)

    def _follow(self, worker: Sender) -> None:
        """Claim nothing for a broker that takes nothing."""
        if self.dispatcher is not None:
            self.dispatcher.set_paused(worker.name, not worker.open)
