"""The store from inside a worker: open verbs go over the socket and come back as the same values and errors."""

import asyncio
from random import Random
from typing import Any, cast

import msgspec
import pytest

from pitboss import App
from pitboss.client.acting import act_of_code
from pitboss.client.client import Client
from pitboss.client.context import Context, current_context
from pitboss.client.events import EventClient
from pitboss.client.schedules import ScheduleClient
from pitboss.engines.batch_protocol import Batches
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import FullStore
from pitboss.engines.resource_protocol import Leases, Resources
from pitboss.engines.verbs import Verb, verbs
from pitboss.manager import answers, host
from pitboss.manager.answers import answer
from pitboss.model.access import AuditEntry
from pitboss.model.batch import BatchStatus, Cancel, Move, NewBatch, Pause
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, NotFound, StaleLease
from pitboss.model.event import Published, Subscription
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Failed
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import (
    Leased,
    NewResource,
    PoolRules,
    Report,
    ResourceChange,
    ResourceOutcome,
    Shortage,
    Want,
)
from pitboss.model.task import Claim, NewTask, Token
from pitboss.testing.clock import FakeClock
from pitboss.worker import store_proxy
from pitboss.worker.channel import AnswerMessage, AskMessage
from pitboss.worker.runner import Runner
from pitboss.worker.store_proxy import StoreProxy


class Wire:
    """A worker's store, and its manager's answers, without the socket."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.ids = IdMaker(self.clock.now, Random(1).getrandbits)
        self.proxy = StoreProxy(self._say)
        self.store = cast("FullStore", self.proxy)
        self._pending: set[asyncio.Task[None]] = set()

    def tasks(self, count: int) -> list[NewTask]:
        return [NewTask(id=self.ids(), handler="job") for _ in range(count)]

    def _say(self, ask: AskMessage) -> None:
        async def reply() -> None:
            self.proxy.hear(await answer(self.engine, ask, "worker w-1"))

        work = asyncio.create_task(reply())
        self._pending.add(work)
        work.add_done_callback(self._pending.discard)


async def connected() -> Wire:
    wire = Wire()
    await wire.engine.open()
    await wire.engine.register([HandlerInfo(name="job")])
    return wire


def test_what_is_open_to_workers_is_a_decision() -> None:
    assert sorted(name for name, verb in verbs().items() if verb.open_to_workers) == [
        "acquire",
        "act_on_batch",
        "add_resources",
        "batches",
        "bound",
        "cancel",
        "change_lane",
        "change_partition",
        "change_queue",
        "change_resources",
        "change_schedule",
        "change_tasks",
        "create_batch",
        "declarations",
        "declare",
        "end_use",
        "events",
        "extend",
        "find",
        "get",
        "handlers",
        "lanes",
        "partitions",
        "publish",
        "put",
        "put_schedule",
        "queues",
        "register",
        "release",
        "remember",
        "resource_pools",
        "resources",
        "schedules",
        "sessions",
        "slots",
        "tasks_before",
        "use",
    ]


async def test_a_worker_has_the_open_verbs_and_no_others() -> None:
    proxy = StoreProxy(lambda _: None)
    local = {"open", "close", "declare_pool", "limit_pool"}
    assert {name for name in verbs() if hasattr(proxy, name)} - local == {
        name for name, verb in verbs().items() if verb.open_to_workers
    }
    assert all(isinstance(proxy, protocol) for protocol in (Batches, Resources, Leases))


@pytest.mark.parametrize("verb", [*(name for name, one in verbs().items() if not one.open_to_workers), "name", "no"])
async def test_a_manager_refuses_what_is_closed_whatever_a_worker_sends(verb: str) -> None:
    """A worker runs foreign code: that its own proxy has no such verb proves nothing."""

    class Untouched:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was looked up")

    said = await answer(Untouched(), AskMessage(7, verb, msgspec.msgpack.encode([])), "w")
    assert said.number == 7
    assert said.error is not None
    assert said.error[:2] == ("invalid-input", f'a worker may not call "{verb}"')


@pytest.mark.parametrize(
    "verb", [verb for verb in verbs().values() if verb.open_to_workers], ids=lambda verb: verb.name
)
def test_every_open_verb_can_be_put_on_the_wire(verb: Verb) -> None:
    """A type that the decoder does not know would pass through it as whatever was sent."""
    known = repr([msgspec.inspect.type_info(kind) for kind in (verb._arguments.type, verb._answer.type)])
    assert "CustomType" not in known
    assert "GenericType" not in known


async def test_arguments_that_do_not_fit_the_signature_reach_no_engine() -> None:
    wire = await connected()
    said = await answer(wire.engine, AskMessage(1, "put", msgspec.msgpack.encode([["not a task"]])), "w")
    assert said.error is not None
    assert "ValidationError" in said.error[1]


async def test_a_worker_puts_reads_and_cancels_tasks() -> None:
    wire = await connected()
    (new,) = wire.tasks(1)
    (placed,) = await wire.store.put((new,))
    assert (placed.id, placed.created) == (new.id, True)
    assert await wire.store.get([new.id, wire.ids()]) == await wire.engine.get([new.id]) + [None]
    assert (await wire.store.cancel(by(id=new.id), reason="enough")).changed == 1
    assert [task.reason for task in (await wire.store.find(by(state="cancelled"))).tasks] == ["enough"]
    await wire.store.register(iter([HandlerInfo(name="other")]))
    assert {info.name for info in await wire.store.handlers()} == {"job", "other"}


async def test_a_worker_uses_resources() -> None:
    wire = await connected()
    store = wire.store
    await store.declare_pool("proxies", PoolRules())
    assert await store.resource_pools() == [], "the manager has declared them"
    assert await store.add_resources("proxies", [NewResource(name="p1", labels=("eu",))]) == [True]
    leased = await store.acquire("proxies", Want(labels=("eu",)), 60 * SECOND, lease="mine")
    assert isinstance(leased, Leased)
    assert (leased.name, leased.lease) == ("p1", "mine")
    short = await store.acquire("proxies", Want(), SECOND, lease="other")
    assert short == Shortage(pool="proxies", why="all busy")
    assert await store.use("mine") == wire.clock.now()
    assert await store.extend("mine", SECOND) == wire.clock.now() + SECOND
    assert await store.release("mine", Report(outcome=ResourceOutcome.OK)) is True
    assert await store.extend("mine", SECOND) is None
    with pytest.raises(StaleLease) as caught:
        await store.use("mine")
    assert str(caught.value) == str(StaleLease("mine"))
    assert await store.change_resources("proxies", None, ResourceChange(enabled=False)) == ["p1"]
    assert await store.resources("proxies", ["p1"]) == await wire.engine.resources("proxies")


async def test_an_engine_without_batches_says_so_to_a_worker() -> None:
    class Core:
        name = "core"

    said: AnswerMessage = await answer(Core(), AskMessage(1, "lanes", msgspec.msgpack.encode([])), "w")
    assert said.error is not None
    assert said.error[:2] == ("unsupported", "the core engine has no batches")


async def test_a_worker_makes_steers_and_reads_batches() -> None:
    wire = await connected()
    store = wire.store
    completion = NewTask(id=wire.ids(), handler="job")
    made = await store.create_batch(NewBatch(id=wire.ids(), name="a", on_complete=completion), wire.tasks(3))
    assert (made, made.total, made.on_complete) == ((await wire.engine.batches())[0], 3, completion)
    second = await store.create_batch(NewBatch(id=wire.ids()), wire.tasks(1))
    third = await store.create_batch(NewBatch(id=wire.ids()), wire.tasks(1))
    moved = await store.act_on_batch(third.id, Move("before", second.id))
    assert moved.batch is not None
    assert moved.batch.position == 1
    assert [batch.id for batch in await store.batches([second.id])] == [second.id]
    assert [batch.id for batch in await store.batches(statuses=[BatchStatus.QUEUED], limit=1)] == [third.id]
    assert (await store.change_lane("default", 2)).max_running == 2
    assert [lane.running for lane in await store.lanes()] == [2]
    page = await store.find(by(batch=made.id), limit=2, oldest_first=True)
    assert len(page.tasks) == 2
    assert page.next is not None
    done = await store.act_on_batch(made.id, Cancel("enough"), limit=2)
    assert (done.changed, done.more) == (2, True)


async def test_errors_are_the_same_as_at_the_store() -> None:
    wire = await connected()
    with pytest.raises(NotFound):
        await wire.store.act_on_batch(wire.ids(), Pause())
    made = await wire.store.create_batch(NewBatch(id=wire.ids()), [])
    with pytest.raises(InvalidInput):
        await wire.store.act_on_batch(made.id, Pause())


async def test_what_does_not_fit_one_message_is_refused_and_the_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = await connected()
    monkeypatch.setattr(store_proxy, "_LARGEST", 1000)
    with pytest.raises(InvalidInput, match="several portions"):
        await wire.store.create_batch(NewBatch(id=wire.ids()), wire.tasks(100))
    assert await Client(wire.store, wire.clock).put(wire.tasks(1))


async def test_an_answer_that_does_not_fit_one_message_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = await connected()
    made = await wire.store.create_batch(NewBatch(id=wire.ids()), wire.tasks(150))
    page = await wire.store.find(by(batch=made.id), limit=1000)
    assert len(page.tasks) == 100
    assert page.next is not None
    monkeypatch.setattr(answers, "_LARGEST", 1000)
    with pytest.raises(InvalidInput, match="ask for less"):
        await wire.store.find(by(batch=made.id))
    assert await wire.store.get([page.tasks[0].id])


async def test_a_worker_publishes_and_uses_schedules() -> None:
    wire = await connected()
    subscription = Subscription(handler="job", pattern="a.*", parameter="data")
    declared = Declared(app="shop", subscriptions=(subscription,))
    assert await wire.store.declare(Declared(app="shop")) is True
    assert await wire.store.declarations() == [], "the manager has declared it"
    await wire.engine.declare(declared)
    client = Client(wire.store, wire.clock)
    events = EventClient(client, wire.ids)
    published = await events.publish("a.b", {"x": 1}, key="k", idempotency_key="once")
    assert published == Published(published.id, True, ("job",))
    assert (await events.publish("a.b", {"x": 1}, key="k", idempotency_key="once")).created is False
    assert (await events.get(published.id)).event.key == "k"
    schedules = ScheduleClient(wire.store, wire.ids)
    added = await schedules.add("hourly", "job", cron="0 * * * *")
    assert await wire.engine.schedules() == [added]
    assert (await schedules.pause("hourly")).paused
    assert (await schedules.run("hourly")).created
    assert (await schedules.remove("hourly")).name == "hourly"


@pytest.mark.parametrize("call", ["publish", "enqueue"])
async def test_a_sync_call_in_an_async_handler_is_refused_at_once(call: str) -> None:
    """It blocked the loop through which its answer comes, and so froze the worker."""
    wire = await connected()
    app = App("memory://")
    app.use(wire.store)

    @app.task(name="job")
    def job() -> None: ...

    def calls() -> None:
        _ = app.publish("paid") if call == "publish" else job.enqueue()

    async def acalls() -> None:
        _ = await (app.apublish("paid") if call == "publish" else job.aenqueue())

    @app.task
    def sync_handler() -> None:
        calls()

    @app.task
    async def async_handler(wrongly: bool) -> None:
        calls() if wrongly else await acalls()

    async def outcome(handler: str, params: str = "{}") -> object:
        claim = Claim(id=wire.ids(), handler=handler, queue="q", params=params, token=Token(1, 1), attempt=1)
        return (await Runner(app.handlers).run(claim)).outcome

    async def stored() -> int:
        return len(await wire.engine.events()) + (await wire.engine.count(EVERYTHING)).number

    refused = await outcome("async_handler", '{"wrongly":true}')
    assert isinstance(refused, Failed)
    assert (refused.error.type, refused.error.retryable) == ("InvalidInput", False)
    assert "await app.apublish(" in refused.error.message
    assert "await task.aenqueue(" in refused.error.message
    assert await stored() == 0
    assert isinstance(await outcome("async_handler", '{"wrongly":false}'), Completed)
    assert isinstance(await outcome("sync_handler"), Completed)
    assert await stored() == 2
    app.close()


async def test_an_act_of_a_task_is_in_the_audit_log_under_its_own_name() -> None:
    wire = await connected()
    (task,) = wire.tasks(1)
    await wire.engine.put([task])
    entry = AuditEntry(id=wire.ids(), who=f"task {task.id}", act="tasks cancel", target=task.id, source="forged")
    await Client(wire.store, wire.clock).audited(entry).cancel(task.id)
    await wire.store.change_queue("default", QueueChange(paused=True))
    (found,) = await wire.engine.audit_log()
    assert (found.who, found.act, found.source) == (entry.who, "tasks cancel", f"worker w-1 on {host.name()}")


async def test_the_task_that_runs_is_who_acts() -> None:
    claim = Claim(id="t1", token=Token(1, 1), handler="job", queue="default", attempt=1, params="{}")
    current_context.set(Context(claim))
    assert act_of_code("id", "queues pause", "mail", {"by": None, "n": 1, "why": object}).who == "task t1"
