"""One source: takes messages from a broker's queue, stores them as tasks, and then acknowledges them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from pitboss.engines.broker_protocol import Broker, BrokerError, Consuming, Message, OutMessage
from pitboss.engines.protocol import Store
from pitboss.model.errors import QueueFull, StoreFull, StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.source import SourceFigures, SourceSpec, SourceState
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.operate.task_types import TaskTypes
from pitboss.sources.connecting import Tries
from pitboss.sources.intake import Intake, Taken
from pitboss.sources.taking_back import Revived, run_again

# How long to wait before looking again whether a trouble of the queue, the handler or the store is over.
_LOOK_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
# How often to look for room in a full queue; seldom, if no task of it starts.
_ROOM_SECONDS = 0.2
_NO_ROOM_SECONDS = 1.0
# How often to ask how many messages wait in the broker's queue.
_READY_SECONDS = 5.0
# How long messages are held that cannot be stored. A queue with a delivery limit drops what comes back too often, so
# short troubles give nothing back. RabbitMQ takes back what is held past `consumer_timeout`, and ends the consumption:
# 30 minutes by default, one at least.
HOLD_SECONDS = 30.0
_REPEAT_SECONDS = 0.5
# How long a drain waits for the store.
_LAST_SECONDS = 2.0
# How long to wait for more messages of a window.
_GATHER_SECONDS = 0.05
# A process that did not tick for this long was stopped. RabbitMQ gives up a connection after two heartbeats of 5 s.
_TICK_SECONDS = 1.0
_STILL_SECONDS = 9.0
# How many messages, and bytes of them, are checked at once. Meanwhile nothing else runs, heartbeats neither.
_AT_ONCE = 1000
_BYTES_AT_ONCE = 4_000_000


class Services(NamedTuple):
    """What a source needs besides its broker. `divert` publishes a message that no store can take; it returns when the
    broker has confirmed it. `has_sibling`: whether another process of this store consumes for that source."""

    store: Store
    types: TaskTypes
    make_id: Callable[[], TaskId]
    divert: Callable[[OutMessage], Awaitable[None]]
    has_sibling: Callable[[str], Awaitable[bool]]


class _Stopped(Exception):
    """Consumption was ended by us, and begins again when the trouble is over."""


class Source:
    """Consumes until it is cancelled. `figures` tells how it is."""

    def __init__(self, spec: SourceSpec, broker: Broker, services: Services, tries: Tries) -> None:
        self.spec, self._broker, self._services, self._tries = spec, broker, services, tries
        self.figures = SourceFigures(name=spec.name, queue=spec.queue, handler=spec.handler)
        self.connected = False
        self._intake: Intake | None = None
        self._held: deque[Message] = deque()
        # How many messages were taken out of `_held` and are not acknowledged yet.
        self._in_hand = 0
        self._has_queues, self._in_use = False, False
        # Whether no more than one window of messages is consumed, and acknowledged at its end; the last tag to be so.
        self._one_window = False
        self._stored_upto: int | None = None
        # When the messages that are held must be given back; None while they can be stored.
        self._hold_until: float | None = None
        self._frozen, self._ticked_at = False, 0.0
        self._work = asyncio.Event()
        self._fault: BrokerError | None = None

    async def run(self) -> None:
        """Connect, and connect again; ends only when it is cancelled."""
        self._ticked_at = asyncio.get_running_loop().time()
        ticking = asyncio.create_task(self._tick())
        try:
            while True:
                try:
                    await self._connected()
                except BrokerError as error:
                    self._say(error.state, error)
                    await self._tries.pause(error.what)
        finally:
            ticking.cancel()

    async def _connected(self) -> None:
        """One connection, until it is lost."""
        self._fault, self._has_queues, self._frozen = None, False, False
        connection = await self._broker.consuming(self._lost)
        self.connected = True
        looking = asyncio.create_task(self._look_at_queue(connection))
        try:
            while True:
                await self._consume(connection)
        finally:
            self.connected = False
            looking.cancel()
            self.figures = msgspec.structs.replace(self.figures, ready=None)
            # Near the capacity, and in a drain: what is stored and not acknowledged would come again.
            if self._stored_upto is not None:
                with suppress(BrokerError):
                    connection.ack(self._stored_upto)
            await connection.close()

    async def _look_at_queue(self, connection: Consuming) -> None:
        """How many messages wait in the broker's queue, every few seconds."""
        while True:
            ready = None
            with suppress(BrokerError):
                ready = await connection.queue(self.spec.queue)
            self.figures = msgspec.structs.replace(self.figures, ready=ready)
            await asyncio.sleep(_READY_SECONDS)

    async def _consume(self, connection: Consuming) -> None:
        """From the first message until a trouble; returns when it is time to try again on the same connection."""
        try:
            if self._fault is not None and self._fault.state is not SourceState.AWAY:
                self._fault = None  # that of the consumption before
            await self._known_handler()
            await self._make_queues(connection)
            room = await self._room()
            self._held.clear()
            self._in_hand, self._fault, self._stored_upto, self._hold_until = 0, None, None, None
            self._one_window = room is not None and room < 2 * self.spec.prefetch
            window = self.spec.prefetch if room is None else min(self.spec.prefetch, room)
            await connection.consume(
                self.spec.queue,
                prefetch=window,
                exclusive=not self.spec.competing,
                heard=self._heard,
                ended=self._lost,
            )
            self._tries.succeeded()
            if self._one_window:
                await self._gather(window)
            else:
                self._say(SourceState.RUNNING)
            # A put that meets a full queue makes this the last window.
            while self._held or not self._one_window:
                await self._next(connection)
            await self._stop(connection)
        except _Stopped:
            return
        except BrokerError as error:
            if error.state is SourceState.AWAY:
                raise
            self._tries.succeeded()
            self._has_queues = self._has_queues and error.state is not SourceState.MISSING
            if error.state is SourceState.IN_USE:
                await self._say_in_use(error)
            else:
                self._say(error.state, error)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _say_in_use(self, error: BrokerError) -> None:
        """By another manager of this store, or by another program. A manager that has just begun to consume has not
        told it yet: so that is not said at the first look."""
        if await self._services.has_sibling(self.spec.name):
            self._say(SourceState.STANDBY, why="another manager of this store consumes from the queue")
        elif self.figures.state is SourceState.STARTING and not self._in_use:
            self._in_use = True
            await asyncio.sleep(_AGAIN_SECONDS)
            return
        else:
            self._say(error.state, error)
        await asyncio.sleep(_LOOK_SECONDS)

    async def _make_queues(self, connection: Consuming) -> None:
        """Once for each connection, or again if one is missing: a source that stands by looks every few seconds."""
        if not self._has_queues:
            await connection.queue(self.spec.dead_letter_queue, self.spec.create or "classic")
            await connection.queue(self.spec.queue, self.spec.create)
            self._has_queues = True

    def _heard(self, message: Message) -> None:
        self._held.append(message)
        self._work.set()

    def _lost(self, error: BrokerError) -> None:
        self._fault = self._fault or error
        self._work.set()

    async def _gather(self, window: int) -> None:
        """Near the capacity: take only as many messages as there is room for. They are acknowledged when consuming has
        ended, so that none comes that would have to go back: a queue may drop messages that come back too often."""
        before = -1
        while before < len(self._held) < window or not self._held:
            before = len(self._held)
            self._work.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience()):
                    await self._work.wait()
            self._check()
            if len(self._held) <= before:
                # All that waited are here.
                self._say(SourceState.RUNNING)

    def _patience(self) -> float | None:
        """How long to wait for more messages: for a moment, if some are here or it is not known that none wait."""
        known_empty = not self._held and self.figures.state is SourceState.RUNNING
        return None if known_empty else _GATHER_SECONDS

    def _check(self) -> None:
        """Raise what has ended the consumption."""
        if self._stood_still():
            what = "this process stood still for longer than RabbitMQ waits"
            raise BrokerError(SourceState.AWAY, what, why="what it held was given to another consumer by now")
        if self._fault is not None:
            raise self._fault

    async def _next(self, connection: Consuming) -> None:
        """Wait for messages; store what has come, and acknowledge it."""
        if not self._held:
            self._work.clear()
            if self._fault is None:
                await self._work.wait()
        self._check()
        intake = await self._known_handler(connection)
        taken, size = list[Taken](), 0
        while self._held and len(taken) < _AT_ONCE and size < _BYTES_AT_ONCE:
            message = self._held.popleft()
            size += len(message.body)
            taken.append(intake.take(message))
        await self._store(connection, taken)

    async def _store(self, connection: Consuming, taken: list[Taken]) -> None:
        """In their order: one that is too large for the store, or a dead letter, has its turn when all before it are
        stored."""
        self._count(received=len(taken))
        self._in_hand, group = len(taken), list[Taken]()
        for one in taken:
            if one.too_large is None and one.dead is None:
                group.append(one)
                continue
            await self._store_group(connection, group)
            group = []
            if one.too_large is not None:
                await self._divert(connection, one.too_large)
            elif one.dead is not None and not await self._run_again(connection, one.dead):
                group.append(one)
                continue
            self._done(connection, [one])
        await self._store_group(connection, group)

    async def _store_group(self, connection: Consuming, group: list[Taken]) -> None:
        """All of them, portion by portion if the queue of the tasks has no room for all."""
        pause = _ROOM_SECONDS
        while group:
            stored = await self._store_portion(connection, group)
            group = group[stored:]
            if group:
                # Another enqueuer was faster. Nothing is acknowledged from here on, so that no further messages come.
                self._one_window = True
                pause = _ROOM_SECONDS if stored else min(pause * 2, _NO_ROOM_SECONDS)
                await self._hold(connection, SourceState.FULL, self._no_room, pause)

    async def _store_portion(self, connection: Consuming, group: Sequence[Taken]) -> int:
        tasks = [one.task for one in group if one.task is not None]
        storing = asyncio.ensure_future(self._put(connection, tasks))
        try:
            stored = await asyncio.shield(storing)
        except asyncio.CancelledError:
            # A drain. What is stored and not acknowledged would come again.
            await asyncio.wait([storing], timeout=_LAST_SECONDS)
            storing.cancel()
            with suppress(asyncio.CancelledError, Exception):
                self._done(connection, group[: await storing])
            raise
        self._done(connection, group[:stored])
        return stored

    async def _divert(self, connection: Consuming, message: OutMessage) -> None:
        """Later acknowledgements include this message, so it must be published first."""
        while True:
            try:
                await self._services.divert(message)
            except BrokerError as error:
                await self._hold(connection, error.state, error.text, _LOOK_SECONDS)
            else:
                return self._stored()

    async def _run_again(self, connection: Consuming, task: TaskId) -> bool:
        """A dead letter of ours was moved back to the queue: its own task runs again. False if that is gone."""
        while True:
            try:
                revived = await run_again(self._services.store, self.spec.handler, task)
            except StoreUnavailable as error:
                await self._hold(connection, SourceState.STORE, error.what, _REPEAT_SECONDS)
                continue
            self._stored()
            if revived is not None:
                self._count(**({"retried": 1} if revived is Revived.RETRIED else {"duplicates": 1}))
            return revived is not None

    async def _hold(self, connection: Consuming, state: SourceState, why: str, pause: float) -> None:
        """Keep what was delivered, and wait before the next try. It is given back only after `HOLD_SECONDS`: each
        return counts as a delivery, and a quorum queue with a delivery limit drops what was delivered too often."""
        now = asyncio.get_running_loop().time()
        self._say(state, why=why)
        if self._hold_until is None:
            self._hold_until = now + HOLD_SECONDS
        if now >= self._hold_until:
            await self._give_back(connection, state, why)
        await asyncio.sleep(pause)
        self._check()

    def _done(self, connection: Consuming, done: Sequence[Taken]) -> None:
        self._in_hand -= len(done)
        bad = [one for one in done if one.malformed]
        if bad:
            self._count(malformed=len(bad))
            now = self._services.store.clock.now()
            self.figures = msgspec.structs.replace(self.figures, malformed_why=bad[-1].reason, malformed_at=now)
        if done:
            self._stored_upto = done[-1].tag
            if not self._one_window:
                connection.ack(done[-1].tag)

    async def _put(self, connection: Consuming, tasks: list[NewTask]) -> int:
        """Store as many as there is room for, from the first on; returns how many."""
        while tasks:
            try:
                await self._put_all(connection, tasks)
                return len(tasks)
            except QueueFull as full:
                # At least one less each time: another enqueuer may take the room meanwhile.
                tasks = tasks[: max(0, min(len(tasks) - 1, full.capacity - full.waiting))]
        return 0

    async def _put_all(self, connection: Consuming, tasks: list[NewTask]) -> None:
        """The same tasks again while the store is away: repeating a put is harmless, and new ids would be doubles."""
        while tasks:
            try:
                placed = await self._services.store.put(tasks)
            except StoreFull as error:
                await self._hold(connection, SourceState.STORE, f"{error.what}: {error.why}", _LOOK_SECONDS)
            except StoreUnavailable as error:
                await self._hold(connection, SourceState.STORE, error.what, _REPEAT_SECONDS)
            else:
                created = sum(one.created for one in placed)
                failed = sum(not one.created and one.state is State.FAILED for one in placed)
                self._count(stored=created, duplicates=len(placed) - created, known_failed=failed)
                self._stored()
                return

    def _stored(self) -> None:
        """What kept messages from being stored is over; but near the capacity, the queue counts as full until none
        waits any more, and what is stored is not acknowledged yet."""
        if not self._one_window:
            self._hold_until = None
        if self.figures.state is not SourceState.FULL or not self._one_window:
            self._say(SourceState.RUNNING)

    async def _give_back(self, connection: Consuming, state: SourceState, why: str) -> None:
        """Stop consuming; what is held goes back to the broker's queue."""
        self._say(state, why=why)
        await self._stop(connection)
        await asyncio.sleep(_LOOK_SECONDS)
        raise _Stopped

    async def _stop(self, connection: Consuming) -> None:
        self._count(requeued=len(self._held) + self._in_hand)
        self._held.clear()
        await connection.stop(self._stored_upto if self._one_window else None)
        self._held.clear()

    async def _room(self) -> int | None:
        """How many more tasks the queue takes; None: it has no capacity. Waits while that is few: the broker is the
        buffer until then."""
        assert self._intake is not None
        queue, pause, waiting = self._intake.kind.info.queue, _ROOM_SECONDS, -1
        while True:
            try:
                found = next((one for one in await self._services.store.queues() if one.name == queue), None)
            except StoreUnavailable as error:
                self._say(SourceState.STORE, why=error.what)
            else:
                if found is None or found.capacity is None:
                    return None
                room = found.capacity - found.waiting
                if room >= min(self.spec.prefetch, max(1, found.capacity // 10)):
                    return room
                self._say(SourceState.FULL, why=self._no_room)
                pause = min(pause * 2, _NO_ROOM_SECONDS) if found.waiting == waiting else _ROOM_SECONDS
                waiting = found.waiting
            await asyncio.sleep(pause)
            self._check()

    @property
    def _no_room(self) -> str:
        assert self._intake is not None
        return f'queue "{self._intake.kind.info.queue}" has no room; RabbitMQ keeps the messages'

    def _stood_still(self) -> bool:
        """Whether the process was stopped, or its machine, for so long that the broker has given up the connection."""
        now = asyncio.get_running_loop().time()
        self._frozen = self._frozen or now - self._ticked_at > _STILL_SECONDS
        return self._frozen

    async def _tick(self) -> None:
        while True:
            self._stood_still()
            self._ticked_at = asyncio.get_running_loop().time()
            await asyncio.sleep(_TICK_SECONDS)

    async def _known_handler(self, connection: Consuming | None = None) -> Intake:
        """The handler as it is registered now. While it is not, nothing is consumed."""
        while True:
            try:
                kind = (await self._services.types.all()).get(self.spec.handler)
            except StoreUnavailable as error:
                self._say(SourceState.STORE, why=error.what)
                if connection is not None and self._intake is not None:
                    return self._intake
            else:
                if kind is not None:
                    if self._intake is None or self._intake.kind is not kind:
                        self._intake = Intake(self.spec, kind, self._services.make_id)
                    return self._intake
                why = f'no app has registered the handler "{self.spec.handler}"; start the app that has it'
                if connection is not None:
                    await self._give_back(connection, SourceState.NO_HANDLER, why)
                self._say(SourceState.NO_HANDLER, why=why)
            await asyncio.sleep(_LOOK_SECONDS)

    def _say(self, state: SourceState, error: BrokerError | None = None, why: str = "") -> None:
        if error is not None:
            why = error.text
        if state is not self.figures.state:
            self.figures = msgspec.structs.replace(self.figures, since=self._services.store.clock.now())
        self.figures = msgspec.structs.replace(self.figures, state=state, why=why)

    def _count(self, **more: int) -> None:
        added = {key: getattr(self.figures, key) + number for key, number in more.items()}
        self.figures = msgspec.structs.replace(self.figures, **added)
