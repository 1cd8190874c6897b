"""A foreign producer feeds a queue of RabbitMQ while workers, manager, delivery process, broker and connections die.

The producer (Node) knows only the name of the queue. `judged` compares what the broker confirmed to it with what the
handlers wrote, with the ledger, and with the dead-letter queue.
"""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pika
import psutil

from pitboss.manager.delivery import MODULE
from pitboss.model.source import DeliverySpec, SourceSpec
from tests.faults.source_check import BROKER_FAULT, Far, Fault, Verdict, judged, sending_in
from tests.faults.source_producer import Journal, Pace, Producer
from tests.faults.source_shop import HANDLER
from tests.manager.cluster import Cluster, ManagerProcess, alive
from tests.servers.rabbit_facts import named_connections, queue_facts
from tests.servers.rabbitmq import RabbitServer
from tests.servers.relay import Relay

SHOP = str(Path(__file__).with_name("source_shop.py"))
QUEUE, DEAD = "orders", "orders_dlq"
PREFETCH = 500
RECOVERY_SECONDS = 60.0
END_SECONDS = 180.0
# Longer than two heartbeats, after which the broker closes the connection; shorter than a manager lets it be silent.
STOPPED_SECONDS = 15.0
# A burst lasts about as long as its messages take at the producer's rate; faults fall into it.
LATEST_IN_BURST = 0.8


class Scene:
    """A broker, a store, a manager with a source, and the producer."""

    def __init__(self, store: str, folder: Path, broker: RabbitServer, relay: Relay, pace: Pace) -> None:
        self.broker, self._relay = broker, relay
        self._declare()
        self.cluster = Cluster(store, folder, SHOP)
        # The source goes through the relay, the producer does not.
        spec = SourceSpec(
            name="orders",
            url=broker.url(port=relay.port),
            queue=QUEUE,
            handler=HANDLER,
            dead_letter_queue=DEAD,
            prefetch=PREFETCH,
        )
        self.cluster.delivery = DeliverySpec(store=store, sources=(spec,))
        self.producer = Producer(folder, broker.url(), QUEUE, pace)
        self.manager = self._start()

    def _declare(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.broker.url())) as connection:
            connection.channel().queue_declare(QUEUE, durable=True)

    def _start(self) -> ManagerProcess:
        manager = self.cluster.manager(workers=2, concurrency=8, ttl="5s")
        self.until(lambda: self.consumed, "the source consumes")
        return manager

    def until(self, condition: Callable[[], object], what: str, within: float = RECOVERY_SECONDS) -> None:
        self.cluster.until(condition, within=within, what=what)

    @property
    def consumed(self) -> bool:
        return queue_facts(self.broker, QUEUE).consumers > 0

    def delivery_process(self) -> psutil.Process:
        """The one of the present manager."""
        found: list[psutil.Process] = []

        def look() -> bool:
            with suppress(psutil.NoSuchProcess):  # or a zombie: it has just ended
                children = psutil.Process(self.manager.process.pid).children()
                found[:] = [one for one in children if MODULE in " ".join(one.cmdline())]
            return bool(found)

        self.until(look, "a delivery process")
        return found[0]

    # The faults. Each returns when its effect was seen, and the source consumes again.

    def worker_killed(self) -> None:
        victim = self.manager.workers()[0]
        victim.kill()
        self.until(lambda: not alive(victim.pid) and len(self.manager.workers()) == 2, "another worker")

    def source_killed(self) -> None:
        victim = self.delivery_process()
        victim.kill()
        self.until(lambda: not alive(victim.pid), "the end of the delivery process")
        self.until(lambda: self.consumed and self.delivery_process().pid != victim.pid, "another delivery process")

    def manager_killed(self) -> None:
        source = self.delivery_process()
        self.manager.signal(signal.SIGKILL)
        self.manager.process.wait()
        self.until(lambda: not alive(source.pid), "the end of the delivery process")
        self.manager = self._start()

    def broker_killed(self) -> None:
        before = self.broker.pid
        # For a moment it answers nothing, so that some messages are sent and not confirmed.
        self.broker.freeze()
        time.sleep(0.1)
        self.broker.kill9()
        self.broker.start()
        assert self.broker.pid != before
        self.until(lambda: self.consumed, "the source consumes again")

    def cut(self) -> None:
        """The network: both sides see the end of the stream."""
        self._disconnected(self._relay.cut)

    def closed_by_the_broker(self) -> None:
        """All connections, also that of the producer."""
        self._disconnected(self.broker.close_connections)

    def source_stopped(self) -> None:
        """For longer than the heartbeats allow; the source then finds its connections closed."""
        stopped = self.delivery_process()

        def pause() -> None:
            stopped.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            assert stopped.status() == psutil.STATUS_STOPPED
            assert not self.consumed, "the broker has not noticed"
            stopped.send_signal(signal.SIGCONT)

        self._disconnected(pause)

    def _disconnected(self, strike: Callable[[], None]) -> None:
        before = named_connections(self.broker)
        assert len(before) == 2, f"the source and its outbox have {len(before)} connections"
        strike()
        self.until(lambda: not before & named_connections(self.broker), "the end of the connections")
        self.until(lambda: self.consumed and len(named_connections(self.broker)) == 2, "new connections")

    # The end.

    def far(self) -> Far:
        self.until(lambda: self.producer.ended, "every message is confirmed", END_SECONDS)
        self.until(lambda: self._is_empty() and self._is_finished(), "the end of all tasks", END_SECONDS)
        # The source may hold a last group that is stored and not acknowledged.
        self.until(self._is_empty, "acknowledgements")
        tasks = [one for one in self.cluster.tasks() if one.handler == HANDLER]
        attempts = {one.id: self.cluster.attempts(one.id) for one in tasks if one.claim > 1}
        journal = Journal.read(self.producer.journal)
        return Far(self.producer.messages, journal, self.cluster.traced(), tasks, attempts, self._dead())

    def _is_empty(self) -> bool:
        facts = queue_facts(self.broker, QUEUE)
        return facts.ready == facts.held == 0

    def _is_finished(self) -> bool:
        """Also the tasks of the outbox."""
        return all(count == 0 or state.finished for state, count in self.cluster.counts().items())

    def _dead(self) -> list[int]:
        found = list[int]()
        with pika.BlockingConnection(pika.URLParameters(self.broker.url())) as connection:
            channel = connection.channel()
            while True:
                method, properties, body = channel.basic_get(DEAD, auto_ack=True)
                if method is None:
                    return found
                found.append(sending_in(properties.headers, body))

    def close(self) -> None:
        self.producer.close()
        self.cluster.close()


FAULTS: dict[str, Callable[[Scene], None]] = {
    "worker killed": Scene.worker_killed,
    "source killed": Scene.source_killed,
    "manager killed": Scene.manager_killed,
    BROKER_FAULT: Scene.broker_killed,
    "cut": Scene.cut,
    "closed by the broker": Scene.closed_by_the_broker,
    "source stopped": Scene.source_stopped,
}


def troubled(store: str, folder: Path, pace: Pace, kinds: Sequence[str], seed: int) -> tuple[Verdict, list[Fault]]:
    """Feed the source, and let the faults happen one after the other, each in the middle of a burst."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = Random(seed)
    with ExitStack() as stack:
        broker = stack.enter_context(RabbitServer())
        relay = stack.enter_context(Relay(broker.port))
        scene = Scene(store, folder, broker, relay, pace)
        stack.callback(scene.close)
        began = time.monotonic()
        scene.producer.start()
        faults = []
        for number, kind in enumerate(kinds):
            _wait_for_a_burst(scene, began + pace.seconds * number / len(kinds))
            time.sleep(rng.uniform(0.1, LATEST_IN_BURST) * pace.burst / pace.rate)
            faults.append(Fault(kind, scene.cluster.engine.clock.now()))
            FAULTS[kind](scene)
        far = scene.far()
        return judged(far, faults, PREFETCH), faults


def _wait_for_a_burst(scene: Scene, not_before: float) -> None:
    time.sleep(max(0.0, not_before - time.monotonic()))
    bursts = scene.producer.bursts()
    scene.until(lambda: scene.producer.bursts() > bursts or scene.producer.ended, "a burst")
