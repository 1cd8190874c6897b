"""The delivery process of a manager: killed, worn out, reloaded, and beside managers without sources."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pika
import psutil
import pytest

from pitboss import wiring
from pitboss.manager import delivery, host
from pitboss.manager.announcer import Announcer
from pitboss.manager.delivery import DeliveryKeeper, register_reserved
from pitboss.model.facts import AnyFact, RestartRequired
from pitboss.model.session import SessionInfo
from pitboss.model.source import DeliverySpec, SourceSpec, outbox
from pitboss.model.source_findings import KIND
from pitboss.model.states import State
from pitboss.testing.plugin import InLoop
from tests.manager.cluster import Cluster, ManagerProcess, alive, pool
from tests.operate.bench import Bench
from tests.servers.postgres import free_port
from tests.servers.rabbitmq import RabbitServer

WORN_OUT = "tests.manager.worn_out_source"


def spec(url: str, name: str = "one", handler: str = "quick") -> SourceSpec:
    return SourceSpec(name=name, url=url, queue="in", handler=handler, dead_letter_queue="in_dlq", create="classic")


class Kept(InLoop):
    """A keeper of a delivery process, and everything that it told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.told: list[str] = []
        self.facts: list[AnyFact] = []
        self.keeper: DeliveryKeeper

    async def __aexit__(self, *_: object) -> None:
        await self.keeper.stop(5)

    def start(self, *specs: SourceSpec, store: str = "") -> None:
        announcer = Announcer(self.told.append, wiring.SystemClock())
        announcer.publish = self.facts.append
        told = DeliverySpec(store=store or self.url, sources=specs)
        self.keeper = DeliveryKeeper(told, clock=wiring.SystemClock(), announcer=announcer)
        self.keeper.start()

    async def until(self, condition: Callable[[], object], within: float = 20.0) -> None:
        limit = time.monotonic() + within
        while not condition():
            assert time.monotonic() < limit, f"{self.keeper.figures}\n{self.told}"
            await asyncio.sleep(0.01)

    @property
    def pid(self) -> int:
        assert self.keeper.figures is not None
        return self.keeper.figures.pid


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(f"sqlite:///{tmp_path}/store.db")


async def test_a_worn_out_process_is_replaced_again_and_again_and_told_as_a_fact(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MODULE", WORN_OUT)
    store = wiring.make_engine(kept.url)
    await store.open()
    kept.start(spec(f"amqp://127.0.0.1:{free_port()}"), spec(f"amqp://127.0.0.1:{free_port()}", "two"))
    pids = set[int]()

    def replaced(times: int) -> bool:
        pids.add(kept.pid)
        return len(pids - {0}) > times

    # More often than a process may crash before it is given up.
    await kept.until(lambda: replaced(7))
    figures = kept.keeper.figures
    assert figures is not None
    assert (figures.why, figures.restarts) == ("", 0)
    facts = [one for one in kept.facts if isinstance(one, RestartRequired)]
    assert facts[0].process == "delivery process"
    assert "10 tries to reach the broker have failed: RabbitMQ at 127.0.0.1" in facts[0].why
    # One fact for each process, though all of its connections are worn out.
    assert len(facts) <= len(pids - {0})
    # The log has each trouble once (regression: eight lines a minute).
    assert len([line for line in kept.told if "is replaced" in line]) == 1
    for name in ("one", "two"):
        assert len([line for line in kept.told if f"source {name} takes no messages (away)" in line]) <= 1
    await store.close()


async def test_a_store_that_is_away_when_the_process_starts_is_waited_for(kept: Kept) -> None:
    """Regression: the process said that it was broken, and the manager gave it up for good."""
    port = free_port()
    kept.start(spec("amqp://127.0.0.1:1"), store=f"postgresql://ann@127.0.0.1:{port}/none")
    await kept.until(lambda: any("waits for the store" in line for line in kept.told))
    figures = kept.keeper.figures
    assert figures is not None
    assert (figures.why, alive(figures.pid)) == ("", True)


async def test_outboxes_of_other_managers_are_kept() -> None:
    """Regression: a manager without sources made the app forget those of another one, whose tasks then failed without a
    dead letter."""
    store = Bench()
    one, two = spec("amqp://a", "one"), spec("amqp://a", "two")
    told = DeliverySpec(store="", sources=(one, two))

    async def known() -> list[str]:
        return [info.name for info in await store.handlers()]

    await register_reserved(store, told, "app.py")
    live = SessionInfo(host="elsewhere", pid=7, kind=KIND, handlers=(one.outbox, two.outbox))
    session = await store.open_session(live)
    await register_reserved(store, None, "app.py")
    assert await known() == [one.outbox, two.outbox]
    await store.end_session(session.number)
    await register_reserved(store, None, "other.py")
    assert await known() == [one.outbox, two.outbox]
    await register_reserved(store, msgspec.structs.replace(told, sources=(one,)), "app.py")
    assert await known() == [one.outbox]
    await register_reserved(store, None, "app.py")
    assert await known() == []


async def test_a_source_that_is_removed_by_a_reload_is_forgotten_though_its_process_still_runs() -> None:
    store = Bench()
    one = spec("amqp://a", "one")
    await register_reserved(store, DeliverySpec(store="", sources=(one,)), "app.py")
    own = SessionInfo(host=host.name(), pid=7, kind=KIND, handlers=(one.outbox,))
    await store.open_session(own)
    await register_reserved(store, None, "app.py", own=7)
    assert await store.handlers() == []


class Shop:
    """A cluster whose managers have a source."""

    def __init__(self, cluster: Cluster, url: str, handler: str = "quick") -> None:
        self.cluster, self.url = cluster, url
        cluster.delivery = DeliverySpec(store=cluster.url, sources=(spec(url, handler=handler),))

    def send(self, *bodies: bytes) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number, body in enumerate(bodies):
                channel.basic_publish("", "in", body, pika.BasicProperties(message_id=f"{body!r}{number}"))

    def waiting(self, queue: str) -> int:
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            return int(connection.channel().queue_declare(queue, passive=True).method.message_count)

    def delivery_process(self, manager: ManagerProcess) -> psutil.Process | None:
        for child in psutil.Process(manager.process.pid).children():
            with suppress(psutil.Error):
                if delivery.MODULE in child.cmdline():
                    return child
        return None

    def running(self, manager: ManagerProcess) -> psutil.Process:
        self.cluster.until(lambda: manager.said("source one takes messages"), what="the source runs")
        found = self.delivery_process(manager)
        assert found is not None
        return found


@pytest.fixture
def shop(cluster: Cluster, rabbit_server: RabbitServer, rabbit_vhost: str) -> Shop:
    return Shop(cluster, rabbit_server.url(rabbit_vhost))


def test_a_killed_process_is_replaced_at_once_and_loses_nothing(shop: Shop) -> None:
    cluster = shop.cluster
    manager = cluster.manager(pool(workers=1))
    first = shop.running(manager)
    assert not any(shop.url in word for word in first.cmdline()), "everyone on the host can read it"
    shop.send(*(b'{"number": %d}' % number for number in range(20)), b"nonsense")
    first.send_signal(signal.SIGKILL)
    shop.send(*(b'{"number": %d}' % number for number in range(20, 40)))
    cluster.until(lambda: len([one for one in cluster.tasks() if one.handler == "quick"]) >= 40)
    cluster.until(lambda: shop.waiting("in_dlq") >= 1, what="the malformed message")
    assert manager.said("the delivery process was killed by SIGKILL")
    second = shop.delivery_process(manager)
    assert second is not None
    assert second.pid != first.pid
    cluster.until(lambda: cluster.counts().get(State.PENDING, 0) == 0)
    done = {task.result for task in cluster.tasks() if task.handler == "quick"}
    assert done == {str(number) for number in range(40)}
    assert manager.end() == 0
    assert not alive(second.pid)


def test_a_reload_without_sources_ends_the_process_and_forgets_the_outbox(shop: Shop) -> None:
    cluster = shop.cluster
    manager = cluster.manager(pool(workers=1))
    process = shop.running(manager)
    assert outbox("one") in {one.name for one in cluster.do(cluster.engine.handlers())}
    manager.reload(msgspec.structs.replace(manager.plan, delivery=None))
    cluster.until(lambda: not alive(process.pid), what="the delivery process ends")
    cluster.until(lambda: manager.said("reloaded"))
    assert outbox("one") not in {one.name for one in cluster.do(cluster.engine.handlers())}


def test_handlers_publish_from_their_workers(
    tmp_path: Path, rabbit_server: RabbitServer, rabbit_vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coroutines and threads. A message of a failed attempt is published too: it was stored at once."""
    monkeypatch.setenv("TRACES", str(tmp_path / "traces"))
    target = str(Path(__file__).with_name("publisher.py"))
    cluster = Cluster(f"sqlite:///{tmp_path}/shop.db", tmp_path, target)
    try:
        shop = Shop(cluster, rabbit_server.url(rabbit_vhost), "answer")
        manager = cluster.manager(pool(workers=1))
        shop.running(manager)
        shop.send(b'{"number": 1}', b'{"number": 2}')
        cluster.put("answer_in_thread", number=3)
        cluster.until(lambda: shop.waiting("in_dlq") == 3, what="three answers")
        assert manager.end() == 0
    finally:
        cluster.close()
