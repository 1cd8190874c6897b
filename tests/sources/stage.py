"""Sources in the test's own event loop: a real store and a real broker, and the code of the delivery process."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import msgspec
import pika

from pitboss import wiring
from pitboss.client.client import Client
from pitboss.client.messages import out_message, outbox_task
from pitboss.dispatch.settler import settlement_of
from pitboss.engines.amqp import AmqpBroker
from pitboss.engines.amqp.consuming import AmqpConsuming
from pitboss.engines.amqp.publishing import AmqpPublishing
from pitboss.engines.broker_protocol import Broker, Message, OutMessage, Properties
from pitboss.engines.protocol import Store
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import decide
from pitboss.model.queue import QueueChange
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.source import DeliverySpec, SourceFigures, SourceSpec, SourceState
from pitboss.model.source_findings import KIND
from pitboss.model.task import Task
from pitboss.operate.status import read_status
from pitboss.sources.process import DeliveryProcess
from pitboss.testing.failpoints import Failpoints
from pitboss.testing.plugin import InLoop
from pitboss.worker.channel import FromDelivery, LogMessage, WornOutMessage, from_delivery_codec
from pitboss.worker.runner import Runner
from tests.servers.rabbitmq import RabbitServer
from tests.sources.shop import app

SECONDS = 20.0
# Within this a state is named, and over.
TOLD_SECONDS = 5.0
QUEUE, DLQ = "in", "in_dlq"


async def until(condition: Callable[[], object], *, within: float = SECONDS, what: str = "") -> None:
    async def holds() -> object:
        return condition()

    await until_true(holds, within=within, what=what)


async def until_true(condition: Callable[[], Awaitable[object]], *, within: float = SECONDS, what: str = "") -> None:
    limit = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < limit, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.01)


class Running:
    """One delivery process, which runs here."""

    def __init__(self, process: DeliveryProcess, store: Store) -> None:
        self.process, self.store = process, store
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._raw = b""
        self._work = asyncio.create_task(process.run(theirs))
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while got := await asyncio.get_running_loop().sock_recv(self._ours, 65536):
            self._raw += got

    @property
    def heard(self) -> list[FromDelivery]:
        """What it has told its manager."""
        return list(from_delivery_codec().feed(self._raw))

    @property
    def worn_out(self) -> list[str]:
        return [one.why for one in self.heard if isinstance(one, WornOutMessage)]

    @property
    def lines(self) -> list[str]:
        """What the manager shows."""
        return [one.text for one in self.heard if isinstance(one, LogMessage)]

    def figures(self, name: str = "one") -> SourceFigures:
        return next(one for one in self.process.figures if one.name == name)

    def state(self, name: str = "one", *, out: bool = False) -> SourceState:
        figures = self.figures(name)
        return figures.out_state if out else figures.state

    async def until(self, state: SourceState, name: str = "one", *, out: bool = False, within: float = SECONDS) -> None:
        """Wait for the state of the source, or of its outbox."""
        try:
            await until(lambda: self.state(name, out=out) is state, within=within)
        except AssertionError:
            raise AssertionError(f"not {state} within {within:g} s: {self.figures(name)}") from None

    async def told(self, state: SourceState, name: str = "one", *, out: bool = False) -> str:
        """Wait until `pitboss status` names the state; returns the sentence. It has 5 seconds."""
        found = ""

        async def named() -> bool:
            nonlocal found
            lines = await findings(self.store)
            some = self.figures(name).out_some
            publishes = "cannot publish some messages" if some else "publishes nothing"
            does = publishes if out else "takes no messages"
            found = next((one for one in lines if f'source "{name}" {does} ({state})' in one), "")
            return bool(found)

        await until_true(named, within=TOLD_SECONDS, what=f"{state} in {await findings(self.store)}")
        return found

    async def well(self) -> None:
        """Wait until `pitboss status` has no trouble of a source left. It has 5 seconds."""

        async def fine() -> bool:
            lines = await findings(self.store)
            return bool(lines) and all("of messages:" in one for one in lines)

        await until_true(fine, within=TOLD_SECONDS, what=f"no trouble in {await findings(self.store)}")

    async def stop(self) -> None:
        """As a manager lets it drain: its socket ends."""
        self._ours.shutdown(socket.SHUT_WR)
        await self._work
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._ours.close()


async def findings(store: Store) -> list[str]:
    status = await read_status(store, store.clock.now())
    return [one.what for one in status.findings if one.check == "sources"]


class Stage(InLoop):
    """A store, a virtual host of the broker, and the processes of the test; all of them end with it."""

    def __init__(self, store_url: str, rabbit: RabbitServer, vhost: str) -> None:
        self.store_url, self.rabbit, self.vhost = store_url, rabbit, vhost
        self.url = rabbit.url(vhost)
        self.failpoints = Failpoints(pause=time.sleep)
        self.new_id = IdMaker(wiring.SystemClock().now, wiring.randbits())
        self._stores: list[Store] = []
        self.processes: list[Running] = []
        self._children: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self._runner = Runner(app.handlers)
        self.store: Store
        self.producer: AmqpPublishing
        self.reader: AmqpConsuming

    async def __aenter__(self) -> Self:
        self.store = await self.open_store()
        await self.store.register(app.describe())
        await self.connect()
        await self.producer.queue(QUEUE, "classic")
        return self

    async def connect(self) -> None:
        """As a producer, and as one who looks into queues."""
        broker = AmqpBroker(self.url)
        self.producer = await broker.publishing(lambda _: None, lambda _: None)
        self.reader = await broker.consuming(lambda _: None)

    async def __aexit__(self, *exc: object) -> None:
        for running in self.processes:
            await running.stop()
        for child, end in self._children:
            child.kill()
            child.wait()
            end.close()
        await self.reader.close()
        await self.producer.close()
        for store in self._stores:
            await store.close()

    async def open_store(self) -> Store:
        """Another connection to the same store, with the failpoints of the test."""
        store = wiring.make_engine(self.store_url, failpoint=self.failpoints)
        await store.open()
        self._stores.append(store)
        return store

    def spec(self, handler: str = "work", name: str = "one", **options: Any) -> SourceSpec:
        usual = {"url": self.url, "queue": QUEUE, "dead_letter_queue": DLQ}
        return SourceSpec(name=name, handler=handler, **{**usual, **options})

    async def start(
        self,
        *specs: SourceSpec,
        store: Store | None = None,
        make_broker: Callable[[str], Broker] = AmqpBroker,
        running: bool = True,
    ) -> Running:
        """A delivery process with these sources. Returns when all of them run, unless told otherwise."""
        specs = specs or (self.spec(),)
        store = store or self.store
        await store.register([one.outbox_info("shop") for one in specs])
        process = DeliveryProcess(specs, store, make_broker=make_broker, make_id=self.new_id, luck=lambda: 0.0)
        started = Running(process, store)
        self.processes.append(started)
        for one in specs if running else ():
            await started.until(SourceState.RUNNING, one.name)
            await started.until(SourceState.RUNNING, one.name, out=True)
        return started

    async def stop(self, running: Running) -> None:
        self.processes.remove(running)
        await running.stop()

    async def start_child(self, *specs: SourceSpec, killed_at: str = "") -> subprocess.Popen[bytes]:
        """A real process, which kills itself when its store comes to this failpoint."""
        specs = specs or (self.spec(),)
        await self.store.register([one.outbox_info("shop") for one in specs])
        ours, theirs = socket.socketpair()
        spec = msgspec.json.encode(DeliverySpec(store=self.store_url, sources=specs, manager=os.getpid())).decode()
        child = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "tests.sources.child", spec, str(theirs.fileno()), killed_at],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._children.append((child, ours))
        return child

    async def killed(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until the child has killed itself, and do what a leader does when its session has expired."""
        await until(lambda: child.poll() is not None, what="the child reaches its failpoint")
        assert child.returncode == -9
        for session in await self.store.sessions():
            if session.info.kind == KIND and session.info.pid == child.pid:
                await self.store.end_session(session.number)
        await self.store.reclaim()

    async def send(
        self, *bodies: bytes | Mapping[str, Any], queue: str = QUEUE, exchange: str = "", **properties: Any
    ) -> None:
        """Messages of a foreign producer, confirmed by the broker."""
        for body in bodies:
            raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
            known = Properties(**properties)
            await self.producer.publish(OutMessage(routing_key=queue, exchange=exchange, body=raw, properties=known))

    async def send_numbers(self, count: int, first: int = 0, *, ids: bool = True, queue: str = QUEUE) -> None:
        await asyncio.gather(
            *(
                self.send({"number": number}, queue=queue, message_id=f"m{number}" if ids else None)
                for number in range(first, first + count)
            )
        )

    async def publish(self, queue: str, message: Any, source: str | None = None) -> str:
        """As `app.publish_to` does; returns the id of the outbox task."""
        made = out_message(queue, message, exchange="", headers=None, message_id=None)
        client = Client(self.store, self.store.clock)
        task = await outbox_task(client, made, source, self.new_id(), None)
        await self.store.put([task])
        return task.id

    async def limit(self, queue: str, capacity: int | None) -> None:
        await self.store.change_queue(queue, QueueChange(capacity=capacity))

    async def tasks(self, handler: str = "work", **fields: Any) -> list[Task]:
        """In the order in which they were put."""
        found = await self.store.find(by(task=handler, **fields), limit=100_000, oldest_first=True)
        return list(found.tasks)

    async def numbers(self, handler: str = "work", **fields: Any) -> list[int]:
        return [from_json(task.params)["number"] for task in await self.tasks(handler, **fields)]

    async def stored(self, count: int, handler: str = "work") -> list[Task]:
        """Wait for that many tasks."""

        async def enough() -> bool:
            return len(await self.tasks(handler)) >= count

        await until_true(enough, what=f"{count} tasks of {handler}")
        return await self.tasks(handler)

    async def taken_in(self, queue: str = QUEUE) -> None:
        """Wait until every message of the queue is acknowledged."""

        async def empty() -> bool:
            return await self.ready(queue) == 0 and self.unsettled(queue) == 0

        await until_true(empty, what=f"all messages of {queue} are acknowledged")

    async def ran(self, most: int = 10_000) -> list[Task]:
        """Run tasks that wait, with the handlers of the app; returns them as they ended."""
        info = SessionInfo(host="elsewhere", pid=9, handlers=tuple(app.handlers), ttl=60 * SECOND)
        session = (await self.store.open_session(info)).number
        ended: list[str] = []
        while len(ended) < most:
            slots = (Slot(free=min(100, most - len(ended))),)
            claims = (
                await self.store.claim(
                    ClaimRequest(session=session, slots=slots, handlers=frozenset(app.handlers)),
                )
            ).claims
            if not claims:
                break
            for claim in claims:
                outcome, report, use_end = await self._runner.run(claim)
                transition = decide(claim, outcome, app.handlers[claim.handler].policy, self.store.clock.now(), 0.5)
                await self.store.settle([settlement_of(claim, transition, report=report, use_end=use_end)])
                ended.append(claim.id)
        await self.store.end_session(session)
        return [task for task in await self.store.get(ended) if task is not None]

    def declare(self, queue: str, arguments: Mapping[str, Any]) -> None:
        """Make a queue as another program does."""
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            connection.channel().queue_declare(queue, durable=True, arguments=dict(arguments))

    async def ready(self, queue: str = QUEUE) -> int:
        """How many messages the broker keeps, without those that a consumer holds."""
        return await self.producer.queue(queue)

    def unsettled(self, queue: str = QUEUE) -> int:
        """How many messages the broker keeps, also for consumers that hold them."""
        lookup = f'rabbit_amqqueue:lookup(rabbit_misc:r(<<"{self.vhost}">>, queue, <<"{queue}">>))'
        return int(self.rabbit.evaluate(f"{{ok, Q}} = {lookup}, [{{_, N}}] = rabbit_amqqueue:info(Q, [messages]), N"))

    async def dead(self, count: int, queue: str = DLQ) -> list[Message]:
        """Take that many messages out of a queue, and see that there are no more."""
        found: list[Message] = []

        async def enough() -> bool:
            message = await self.reader.get(queue)
            if message is not None:
                self.reader.ack(message.tag, multiple=False)
                found.append(message)
            return len(found) == count

        if count:
            await until_true(enough, what=f"{count} messages in {queue}")
        assert await self.reader.get(queue) is None, f"more than {count} messages in {queue}"
        return found
