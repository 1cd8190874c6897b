"""A queue of the store that is full for longer than RabbitMQ lets a consumer hold a message (`consumer_timeout`)."""

import time
from contextlib import ExitStack
from pathlib import Path

import pika
from pika.exceptions import ChannelClosedByBroker

from pitboss.model.queue import QueueChange
from tests.faults.source_check import Verdict, judged
from tests.faults.source_kills import PREFETCH, QUEUE, Scene
from tests.faults.source_producer import Pace
from tests.faults.source_shop import QUEUE as TASKS
from tests.servers.rabbit_facts import named_connections, queue_facts
from tests.servers.rabbitmq import RabbitServer
from tests.servers.relay import Relay

CAPACITY = 200
MESSAGES = 4000
HELD = "held"


def full_for_long(store: str, folder: Path, timeout: float, seconds: float) -> Verdict:
    """No task runs for `seconds`, so the queue is full all that time. `timeout`: the broker's, in seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        broker = stack.enter_context(RabbitServer({"consumer_timeout": str(round(timeout * 1000))}))
        relay = stack.enter_context(Relay(broker.port))
        scene = Scene(store, folder, broker, relay, Pace(MESSAGES, MESSAGES, 1.0))
        stack.callback(scene.close)
        holder = stack.enter_context(pika.BlockingConnection(pika.URLParameters(broker.url())))
        connections = named_connections(broker)
        _change(scene, QueueChange(paused=True, capacity=CAPACITY))
        scene.producer.start()
        scene.until(lambda: scene.producer.ended and not scene.consumed, "the source stops consuming")
        wrong = _stays_full(scene, holder, seconds)
        if named_connections(broker) != connections:
            wrong.append("the connections of the source were closed")
        _change(scene, QueueChange(paused=False, capacity=None))
        verdict = judged(scene.far(), [], PREFETCH)
        return verdict._replace(faults=wrong + verdict.faults)


def _change(scene: Scene, change: QueueChange) -> None:
    scene.cluster.do(scene.cluster.engine.change_queue(TASKS, change))


def _stays_full(scene: Scene, holder: pika.BlockingConnection, seconds: float) -> list[str]:
    """Another consumer holds a message all that time. The broker must close its channel, or the test shows nothing."""
    channel = holder.channel()
    channel.queue_declare(HELD)
    channel.basic_publish("", HELD, b"{}")
    channel.basic_get(HELD)
    wrong, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        facts = queue_facts(scene.broker, QUEUE)
        if facts.held or facts.consumers:
            wrong.append(f"a source without room holds messages: {facts}")
            break
        if channel.is_open:
            try:
                holder.process_data_events(1.0)
            except ChannelClosedByBroker:
                continue
        else:
            time.sleep(1.0)
    if channel.is_open:
        wrong.append("the broker did not close the channel of a consumer that held a message: its time-out is not set")
    return wrong
