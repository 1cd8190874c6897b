"""Pitboss with a source on RabbitMQ: `pitboss up` with two workers and otherwise its defaults.

With the variant "ids" every message has an id, which is remembered so that a redelivery starts no second task.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from benchmarks.peers.base import TEXT, Peer, store, tool, variant
from benchmarks.peers.rabbitmq import PlainProducer, broker_url
from benchmarks.tally import mark
from pitboss import App, wiring
from pitboss.engines.broker_protocol import OutMessage
from pitboss.model.filter import by
from pitboss.model.message import stored
from pitboss.model.queue import QueueChange
from pitboss.model.source import outbox
from pitboss.model.states import State
from pitboss.model.task import NewTask

SOURCE, QUEUE, TASKS, RESULTS = "bench", "bench_in", "bench", "bench_out"
AT_ONCE = 500
_GLANCE = 0.02
app = App(store())


@app.task(queue=TASKS)
async def noop(n: int, text: str) -> None:
    mark(n)


class PitbossSource(Peer):
    packages = ("pitboss", "pika")
    slow_publishers = frozenset({"publish_to, one by one"})

    def __init__(self) -> None:
        self._runner, self._engine = asyncio.Runner(), wiring.make_engine(store())
        self._producer = PlainProducer()
        for key, value in (("URL", broker_url()), ("QUEUE", QUEUE), ("HANDLER", "noop")):
            os.environ[f"PITBOSS_SOURCES__{SOURCE.upper()}__{key}"] = value

    def prepare(self) -> None:
        self._runner.run(self._engine.open())
        self._producer.declare(QUEUE)
        self._producer.declare(RESULTS)

    def one(self, first: int, count: int) -> None:
        for n in range(first, first + count):
            self.best(n, 1)

    def best(self, first: int, count: int) -> None:
        """Without confirms, for a backlog: how it came into the queue is not measured."""
        ids = variant() == "ids"
        self._producer.fill(QUEUE, ((_body(n), f"m{n}" if ids else None) for n in range(first, first + count)))

    def publishers(self) -> dict[str, Callable[[int, int], None]]:
        return {
            "raw": self._raw,
            "outbox": self._outbox,
            "publish_to, many": self._many,
            "publish_to, one by one": self._one_by_one,
        }

    def _raw(self, first: int, count: int) -> None:
        """The driver of the outbox alone: confirmed, with as many under way as the outbox has."""
        self._runner.run(self._publish(first, count))

    async def _publish(self, first: int, count: int) -> None:
        publishing = await wiring.make_broker(broker_url()).publishing(_ignore, _ignore)
        messages = (OutMessage(routing_key=RESULTS, body=_body(n)) for n in range(first, first + count))
        await _at_once(publishing.publish(message) for message in messages)
        await publishing.close()

    def _outbox(self, first: int, count: int) -> None:
        """Stored a thousand at a time, and published by the delivery process; until all are confirmed, and noted so."""
        name = outbox(SOURCE)
        for begin in range(first, first + count, 1000):
            numbers = range(begin, min(begin + 1000, first + count))
            messages = [OutMessage(routing_key=RESULTS, body=_body(n)) for n in numbers]
            tasks = [NewTask(id=app.new_id(), handler=name, queue=name, params=stored(one)) for one in messages]
            self._runner.run(self._engine.put(tasks))
        self._until_published()

    def _one_by_one(self, first: int, count: int) -> None:
        """Each is stored before the next; until the broker has confirmed all of them."""
        for n in range(first, first + count):
            app.publish_to(RESULTS, {"n": n, "text": TEXT}, source=SOURCE)
        self._until_published()

    def _many(self, first: int, count: int) -> None:
        numbers = range(first, first + count)
        messages = (app.apublish_to(RESULTS, {"n": n, "text": TEXT}, source=SOURCE) for n in numbers)
        self._runner.run(_at_once(messages))
        self._until_published()

    def _until_published(self) -> None:
        while self._unfinished():
            time.sleep(_GLANCE)

    def hold(self) -> None:
        """Let tasks be stored, and not run."""
        self._runner.run(self._engine.change_queue(TASKS, QueueChange(paused=True)))

    def stored(self) -> int:
        return int(self._runner.run(self._engine.count(by(queue=[TASKS]))).number)

    def workers(self) -> list[list[str]]:
        return [[tool("pitboss"), "up", f"{__name__}:app", "--workers", "2", "--quiet"]]

    def left(self) -> int:
        return self._producer.count(QUEUE) + self._unfinished()

    def _unfinished(self) -> int:
        unfinished = by(state=[state for state in State if not state.finished])
        return int(self._runner.run(self._engine.count(unfinished)).number)

    def close(self) -> None:
        self._producer.close()
        app.close()
        self._runner.run(self._engine.close())
        self._runner.close()


async def _at_once(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """All of them, `AT_ONCE` side by side."""
    waiting = iter(work)

    async def one_after_the_other() -> None:
        for each in waiting:
            await each

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))


def _body(n: int) -> bytes:
    return json.dumps({"n": n, "text": TEXT}).encode()


def _ignore(_: object) -> None:
    """The call that meets the fault raises it."""


def make() -> Peer:
    return PitbossSource()
