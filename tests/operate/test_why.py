"""Why nothing runs: every face gives one answer. Each situation is seeded on every engine."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import pytest

from pitboss.client.batch_handle import ended_batch
from pitboss.client.client import Client
from pitboss.engines.memory import MemoryEngine
from pitboss.manager.host_memory import HostMemory
from pitboss.manager.trouble_log import TroubleLog
from pitboss.model import leasing, resource_gates
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotFound, TimedOutWaiting
from pitboss.model.filter import Filter, by
from pitboss.model.health import Vital, judge
from pitboss.model.limits import Window, rate
from pitboss.model.outcome import NO_KEY, Failed, Transition, decide
from pitboss.model.partition import PartitionChange, Partitioning
from pitboss.model.placement import NO_MEMORY
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.resource import (
    Limits,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    ResourceOutcome,
    Strategy,
    Want,
)
from pitboss.model.sealed import MissingKey
from pitboss.model.session import Slot
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.states import State
from pitboss.model.task import Claim, Token
from pitboss.model.waiting import Why, spoken_start
from pitboss.operate.batches import read_batch
from pitboss.operate.status import check_store, read_status
from pitboss.operate.tasks import read_task
from pitboss.operate.why import explain, read_troubles
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import Bench, Subject
from pitboss.testing.conformance.bench import BROKEN
from pitboss.testing.virtual import run_virtual

GIGA = 1024**3
FETCH = HandlerInfo(name="job", queue="fetching", resources="proxies")


async def shot(
    bench: Bench, *states: WorkerState, running: int = 0, why: str = "", mean: int = 0, **given: Any
) -> None:
    """The manager publishes one pool of these workers, each with one slot."""
    workers = tuple(
        WorkerFigures(name=f"web-{number}", pool="web", state=state, running=running, why=why, mean=mean)
        for number, state in enumerate(states, 1)
    )
    pool = PoolFigures(**{"name": "web", "concurrency": 1, "wanted": len(states)} | given.pop("pool", {}))
    told = Snapshot(pools=(pool,), workers=workers, **given)
    await bench.renew(bench.me, msgspec.json.encode(told).decode())


async def pool(bench: Bench, *members: str | NewResource, **rules: Any) -> None:
    await bench.store.declare_pool("proxies", PoolRules(**rules))
    await bench.store.register([FETCH])
    new = [NewResource(name=one) if isinstance(one, str) else one for one in members]
    await bench.store.add_resources("proxies", new)


async def fetch(bench: Bench, **options: Any) -> str:
    return (await bench.add(queue="fetching", **options)).id


async def used(bench: Bench, outcome: ResourceOutcome, **options: Any) -> None:
    """One task uses a member, with this outcome."""
    claim = await bench.started(queue="fetching", **options)
    await bench.report(claim, Failed(msgspec.structs.replace(BROKEN, retryable=False)), report=Report(outcome=outcome))


async def no_manager(bench: Bench) -> str:
    task = await bench.add()
    await bench.end(bench.me)
    return task.id


async def paused_queue(bench: Bench) -> str:
    await bench.change("default", paused=True, by="ann")
    bench.clock.advance("3m")
    return (await bench.add()).id


async def unknown_handler(bench: Bench) -> str:
    return (await bench.add(handler="stranger")).id


async def handler_of_nobody(bench: Bench) -> str:
    await bench.register("other")
    return (await bench.add(handler="other")).id


async def unserved_queue(bench: Bench) -> str:
    await shot(bench, WorkerState.IDLE, pool={"queues": ("mail",)})
    return (await bench.add()).id


async def paused_worker_pool(bench: Bench) -> str:
    await shot(bench, WorkerState.IDLE, pool={"paused": True})
    return (await bench.add()).id


async def draining_manager(bench: Bench) -> str:
    await shot(bench, WorkerState.IDLE, draining=True)
    return (await bench.add()).id


async def workers_given_up(bench: Bench) -> str:
    await shot(bench, WorkerState.CRASHED, WorkerState.CRASHED, why="it crashed 6 times")
    return (await bench.add()).id


async def workers_that_start(bench: Bench) -> str:
    await shot(bench, WorkerState.STARTING, WorkerState.CRASHED)
    return (await bench.add()).id


async def too_low_memory_limit(bench: Bench) -> str:
    found = judge(Vital(age=SECOND, ready=False, memory=2 * GIGA), PoolSpec(memory=GIGA))
    assert found is not None
    await shot(bench, WorkerState.CRASHED, why=f"worker web-1 {found.text}")
    return (await bench.add()).id


async def no_workers_wanted(bench: Bench) -> str:
    await shot(bench, pool={"least": 1, "most": 4})
    return (await bench.add()).id


async def scaled_to_zero(bench: Bench) -> str:
    await shot(bench, pool={"most": 4})
    return (await bench.add()).id


async def empty_pool(bench: Bench) -> str:
    await pool(bench)
    return await fetch(bench)


async def missing_label(bench: Bench) -> str:
    await pool(bench, "p1", NewResource(name="p2", labels=("us",)))
    return await fetch(bench, want=Want(labels=("eu", "fast")))


async def missing_key(bench: Bench) -> str:
    await pool(bench, NewResource(name="p1", secrets={"password": "s1.aaaaaaaa.x"}))
    await shot(bench, WorkerState.IDLE, missing_keys=(MissingKey("proxies", "aaaaaaaa", 1),))
    return await fetch(bench)


async def disabled_members(bench: Bench) -> str:
    await pool(bench, "p1", NewResource(name="p2", labels=("eu",)))
    await bench.store.change_resources("proxies", ["p2"], ResourceChange(enabled=False))
    return await fetch(bench, want=Want(labels=("eu",)))


async def cooling_members(bench: Bench) -> str:
    await pool(bench, NewResource(name="p1", labels=("eu",)), "p2", cooldown=252 * SECOND)
    await used(bench, ResourceOutcome.RATE_LIMITED, want=Want(labels=("eu",)))
    return await fetch(bench, want=Want(labels=("eu",)))


async def blacklisted_member(bench: Bench) -> str:
    await pool(bench, "p1", "p2", max_failures=1, blacklist=600 * SECOND, max_ejected=1.0)
    await used(bench, ResourceOutcome.RESOURCE_ERROR)
    await bench.store.change_resources("proxies", ["p2"], ResourceChange(enabled=False))
    return await fetch(bench)


async def busy_members(bench: Bench) -> str:
    await pool(bench, "p1")
    await bench.started(queue="fetching")
    return await fetch(bench)


async def resting_members(bench: Bench) -> str:
    await pool(bench, "p1", limits=Limits(windows=(Window(1, 60 * SECOND),), use_within=0))
    await used(bench, ResourceOutcome.OK)
    return await fetch(bench)


async def sticky_key(bench: Bench) -> str:
    await pool(bench, "p1", "p2", strategy=Strategy.STICKY, cooldown=252 * SECOND)
    await used(bench, ResourceOutcome.RATE_LIMITED, want=Want(key="ann"))
    return await fetch(bench, want=Want(key="ann"))


async def sticky_key_in_use(bench: Bench) -> str:
    await pool(bench, "p1", "p2", strategy=Strategy.STICKY)
    await bench.started(queue="fetching", want=Want(key="ann"))
    return await fetch(bench, want=Want(key="ann"))


async def sticky_key_of_a_disabled_member(bench: Bench) -> str:
    await pool(bench, "p1", "p2", strategy=Strategy.STICKY)
    await used(bench, ResourceOutcome.OK, want=Want(key="ann"))
    await bench.store.change_resources("proxies", ["p1"], ResourceChange(enabled=False))
    return await fetch(bench, want=Want(key="ann"))


async def used_up_rate(bench: Bench) -> str:
    await bench.change("default", rate=rate("1/min"))
    await bench.started()
    bench.clock.advance("52s")
    return (await bench.add()).id


async def no_memory(bench: Bench) -> str:
    claim = await bench.started()
    await bench.write(
        claim, Transition(state=State.SCHEDULED, outcome="released", delay=2 * SECOND, reason=NO_MEMORY, recorded=False)
    )
    await shot(bench, WorkerState.IDLE, budget=2 * GIGA, in_use=GIGA, needs={"job": 3 * GIGA // 2})
    return claim.id


async def due_later(bench: Bench) -> str:
    return (await bench.add(delay=90 * SECOND)).id


async def waiting_retry(bench: Bench) -> str:
    claim = await bench.started(max_attempts=3)
    await bench.report(claim, Failed(BROKEN))
    return claim.id


async def expired(bench: Bench) -> str:
    task = await bench.add(expires_in=SECOND)
    bench.clock.advance(2)
    return task.id


async def batch_in_line(bench: Bench) -> str:
    for _ in range(2):
        await bench.create(bench.new())
    item = bench.new()
    await bench.create(item, id="0198c1a0-0000-7000-8000-00000000beef")
    return item.id


async def paused_batch(bench: Bench) -> str:
    item = bench.new()
    await bench.create(item, paused=True, id="0198c1a0-0000-7000-8000-00000000beef")
    return item.id


async def busy_workers(bench: Bench) -> str:
    await shot(bench, WorkerState.PROCESSING, WorkerState.PROCESSING, running=1)
    return (await bench.add()).id


async def busy_chosen_workers(bench: Bench) -> str:
    await shot(bench, WorkerState.PROCESSING, WorkerState.PROCESSING, running=1, pool={"only": (2, 3)})
    return (await bench.add()).id


STATES = {0: ("CA", "MT"), 1: ("TX",)}


async def states(bench: Bench, **options: Any) -> None:
    """A queue whose tasks are divided by state, and slot 1 of two."""
    settings = QueueSettings(partitions=Partitioning(**{"by": "{state}", "mode": "static", "table": STATES} | options))
    await bench.store.declare(Declared(app="app", queues={"states": settings}), session=bench.me.number)
    await bench.store.take_slots(bench.me.number, "web", "here", [1])


async def lead(bench: Bench, **owners: str) -> None:
    term = (await bench.store.campaign(bench.me.number)).term
    await bench.store.assign("states", owners, term=term)


async def state(bench: Bench, name: str) -> str:
    return (await bench.add(queue="states", params=f'{{"state":"{name}"}}')).id


async def slot_without_a_worker(bench: Bench) -> str:
    await states(bench)
    await lead(bench, CA="web/0", TX="web/1")
    return await state(bench, "CA")


async def slot_of_another_manager_that_left(bench: Bench) -> str:
    await states(bench)
    other = await bench.session("job")
    await bench.store.take_slots(other.number, "web", "there", [0])
    await lead(bench, CA="web/0")
    await bench.end(other)
    return await state(bench, "CA")


async def key_in_no_table(bench: Bench) -> str:
    await states(bench)
    await lead(bench)
    return await state(bench, "ZZ")


async def key_without_a_leader(bench: Bench) -> str:
    await states(bench)
    return await state(bench, "TX")


async def key_that_the_leader_has_not_seen(bench: Bench) -> str:
    await states(bench, mode="balanced", table={})
    await lead(bench)
    return await state(bench, "TX")


async def missing_slot_that_is_replaced(bench: Bench) -> str:
    await states(bench, on_missing="reassign")
    await lead(bench, CA="web/0")
    return await state(bench, "CA")


async def key_that_moves(bench: Bench) -> str:
    await states(bench)
    await lead(bench, TX="web/1")
    await state(bench, "TX")
    await bench.ask(Slot(free=1, pool="web", number=1, queues=("states",)))
    await bench.store.change_partition("states", "TX", PartitionChange(owner="web/0"))
    return await state(bench, "TX")


async def busy_owner(bench: Bench) -> str:
    await shot(bench, WorkerState.IDLE, WorkerState.PROCESSING, running=1, pool={"concurrency": 1})
    await states(bench)
    await lead(bench, TX="web/1")
    return await state(bench, "TX")


async def full_key(bench: Bench) -> str:
    await states(bench, mode="affinity", table={})
    await bench.change("states", max_per_key=2)
    for _ in range(2):
        await state(bench, "CA")
    await bench.ask(Slot(free=2, queues=("states",)))
    return await state(bench, "CA")


async def tasks_before_it(bench: Bench) -> str:
    first = await bench.add()
    await bench.add(priority=-1)
    await bench.add()
    return first.id


class Situation(NamedTuple):
    """`sentence` is all of it; `helps` is the first thing to do; `starts` is when it starts."""

    seed: Callable[[Bench], Awaitable[str]]
    cause: str
    sentence: str
    helps: str = ""
    starts: str = "not before that is changed"


SITUATIONS = (
    Situation(no_manager, "no-manager", "no manager is running on this store", "pitboss up"),
    Situation(
        paused_queue, "queue-paused", 'queue "default" was paused by ann 3m ago', "pitboss queues resume default"
    ),
    Situation(unknown_handler, "handler", 'no live worker knows the handler "stranger"', "start the app that has it"),
    Situation(handler_of_nobody, "handler", 'no live worker knows the handler "other"', "start the app that has it"),
    Situation(unserved_queue, "unserved", 'no worker pool serves queue "default"', "add default to the queues"),
    Situation(paused_worker_pool, "pool-paused", "worker pool web is paused", "pitboss pools resume web"),
    Situation(
        draining_manager,
        "draining",
        "every manager with worker pool web is draining: it takes no tasks",
        "pitboss drain --undo --manager 1",
    ),
    Situation(
        workers_given_up,
        "given-up",
        "every worker of pool web was given up: it crashed 6 times",
        "pitboss pools restart web",
    ),
    Situation(
        workers_that_start,
        "not-ready",
        "no worker of pool web is ready: 1 crashed, 1 starting",
        starts="unknown",
    ),
    Situation(
        too_low_memory_limit,
        "memory-limit",
        "the memory limit of pool web is too low: worker web-1 used 2.0 GB of memory, more than its limit of 1.0 GB",
        "raise memory of the pool web",
    ),
    Situation(no_workers_wanted, "no-workers", "worker pool web has no workers", "pitboss pools scale web 1"),
    Situation(scaled_to_zero, "not-ready", "no worker of pool web runs; one is started", starts="unknown"),
    Situation(
        empty_pool, "no-members", 'resource pool "proxies" has no members', "pitboss resources add proxies NAME …"
    ),
    Situation(
        missing_label,
        "labels",
        'resource pool "proxies" has no member with labels eu, fast',
        "pitboss resources add proxies NAME --label eu --label fast",
    ),
    Situation(
        missing_key,
        "missing-key",
        "no running manager has the key aaaaaaaa (1 member of proxies), which its secrets are sealed with",
        "put the key back",
    ),
    Situation(
        disabled_members,
        "disabled",
        'resource pool "proxies" has no enabled member with label eu',
        "pitboss resources enable proxies p2",
    ),
    Situation(
        cooling_members,
        "cooling",
        "it waits for a resource with label eu: proxies: 1 cooling, next in 4m12s",
        "pitboss resources show proxies",
        "in 4m12s",
    ),
    Situation(
        blacklisted_member,
        "blacklisted",
        "it waits for a resource: proxies: 1 blacklisted, 1 disabled, next in 10m",
        "pitboss resources show proxies",
        "in 10m",
    ),
    Situation(
        busy_members,
        "busy",
        "it waits for a resource: proxies: 1 busy",
        "pitboss resources add proxies NAME …",
        "unknown",
    ),
    Situation(
        resting_members,
        "resting",
        "it waits for a resource: proxies: 1 resting, next in 1m",
        "pitboss resources add proxies NAME …",
        "in 1m",
    ),
    Situation(
        sticky_key,
        "key-cooling",
        'its key "ann" is bound to proxies/p1, which is cooling; back in 4m12s',
        "pitboss resources show proxies",
        "in 4m12s",
    ),
    Situation(
        sticky_key_in_use,
        "key-busy",
        'its key "ann" is bound to proxies/p1, which is busy',
        starts="unknown",
    ),
    Situation(
        sticky_key_of_a_disabled_member,
        "key-disabled",
        'its key "ann" is bound to proxies/p1, which is disabled',
        "pitboss resources enable proxies p1",
    ),
    Situation(
        used_up_rate,
        "rate",
        'queue "default" starts at most 1 per 1m; next in 8s',
        "pitboss queues limit default --rate …",
        "in 8s",
    ),
    Situation(
        no_memory,
        "memory",
        "it waits for memory on here: 1.0 GB of 2.0 GB in use; it needs 1.5 GB",
        starts="in 2s",
    ),
    Situation(due_later, "scheduled", "it is due in 1m30s", starts="in 1m30s"),
    Situation(
        waiting_retry, "retry", "attempt 1 failed (connection reset), and the next one is due in 5s", starts="in 5s"
    ),
    Situation(expired, "expired", "it is past its expiry: the next manager that meets it cancels it", starts="unknown"),
    Situation(
        batch_in_line,
        "batch-queued",
        'its batch waits for its turn in lane "default": place 2 of 2',
        "pitboss batches move 00000000beef top",
        "unknown",
    ),
    Situation(
        paused_batch,
        "batch-paused",
        "its batch is paused until an operator resumes it",
        "pitboss batches resume 00000000beef",
    ),
    Situation(
        busy_chosen_workers,
        "busy",
        "every worker is busy: 2 seats of pool web run tasks",
        "start a manager for other workers: pitboss up --only N, or one without --only",
        "unknown",
    ),
    Situation(
        busy_workers,
        "busy",
        "every worker is busy: 2 seats of pool web run tasks",
        "pitboss pools scale web 3",
        "unknown",
    ),
    Situation(
        slot_without_a_worker,
        "slot-missing",
        "its key CA belongs to slot web/0, which no worker has; start it, or set on_missing",
        "pitboss up starts more workers, which take free slots; pitboss up --only 0 starts this one alone",
    ),
    Situation(
        slot_of_another_manager_that_left,
        "slot-away",
        "its key CA belongs to slot web/0, whose worker has just gone; the slot is kept for its return",
        starts="unknown",
    ),
    Situation(
        key_in_no_table,
        "not-in-table",
        "its key ZZ is owned by no slot: it is not in the table of partitions",
        "add it to the partitions of queue states",
    ),
    Situation(
        key_without_a_leader,
        "no-leader",
        "its key TX is owned by no slot yet: no manager leads; one does within seconds",
        starts="unknown",
    ),
    Situation(
        key_that_the_leader_has_not_seen,
        "unassigned",
        "its key TX is owned by no slot yet: the leader gives it to one in a moment",
        starts="unknown",
    ),
    Situation(
        missing_slot_that_is_replaced,
        "slot-missing",
        "its key CA belongs to slot web/0, which no worker has; the leader gives it to another slot",
        starts="unknown",
    ),
    Situation(key_that_moves, "key-moves", "its key TX moves to web/0 when 1 running task ends", starts="unknown"),
    Situation(
        busy_owner,
        "slot-busy",
        "its key TX belongs to slot web/1, whose worker web-2 is busy",
        starts="unknown",
    ),
    Situation(
        full_key,
        "max-per-key",
        "2 tasks of its key CA run, as many as may (max_per_key)",
        "pitboss queues limit states --max-per-key …",
        starts="unknown",
    ),
    Situation(tasks_before_it, "ready", "it is ready; 1 task is before it", starts="unknown"),
)


class TestSituations(Subject):
    async def test_a_task_whose_key_is_full_does_not_start_at_once(self, bench: Bench) -> None:
        """The pace of the free workers was taken for its own."""
        task = await full_key(bench)
        await shot(bench, WorkerState.IDLE, mean=SECOND)
        why = (await explain(bench.store, task, bench.now)).why
        assert (why.cause, spoken_start(why)) == ("max-per-key", "unknown")

    async def test_a_manager_that_has_just_started_remembers_how_long_tasks_take(self, bench: Bench) -> None:
        for _ in range(10):
            await bench.add()
        last = (await bench.add()).id
        await shot(bench, WorkerState.IDLE)
        assert spoken_start((await explain(bench.store, last, bench.now)).why) == "unknown"
        await shot(bench, WorkerState.IDLE, usual={"job": 60 * SECOND})
        assert spoken_start((await explain(bench.store, last, bench.now)).why).startswith("in about 10m")

    @pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.seed.__name__)
    async def test_its_cause_what_to_do_and_every_face_says_the_same(self, bench: Bench, situation: Situation) -> None:
        task = await situation.seed(bench)
        why = (await explain(bench.store, task, bench.now)).why
        assert (why.cause, why.sentence) == (situation.cause, situation.sentence)
        assert ([*why.helps, ""][0]).startswith(situation.helps)
        assert bool(why.helps) >= bool(situation.helps)
        assert spoken_start(why) == situation.starts
        assert why.stuck is (situation.starts == "not before that is changed")
        await assert_faces_agree(bench, task, why)
        if why.cause != "no-manager":
            await assert_the_engine_agrees(bench, task, why)


async def assert_faces_agree(bench: Bench, task: str, why: Why) -> None:
    assert (await read_task(bench.store, task, bench.now)).why == why
    with pytest.raises(TimedOutWaiting) as late:
        await Client(bench.store, bench.clock).finished(task, timeout=0)
    assert why.sentence in late.value.why
    status = await read_status(bench.store, bench.now)
    (found,) = await bench.store.get([task])
    assert found is not None
    if why.stuck:
        assert found.batch is not None or status.verdict.health != "healthy"
    if why.stuck and found.state is State.PENDING and why.cause != "no-manager":
        (trouble,) = (await read_troubles(bench.store, bench.now)).troubles
        assert trouble.sentence == why.sentence
        assert status.verdict.cause == ("paused" if why.cause == "queue-paused" else why.cause)
        said = [one.what for one in await check_store(bench.store, bench.clock, "")]
        assert any(why.sentence in one for one in said)


async def assert_the_engine_agrees(bench: Bench, task: str, why: Why) -> None:
    """A claim by a worker that could take everything gets the task, or one gate that the engine keeps is shut."""
    kept = {"batch", "time", "queue", "handler", "resource", "rate", "memory", "partition"}
    free = not any(gate.shut and gate.name in kept for gate in why.gates)
    claimed = await bench.ask(Slot(free=50), handlers=["job"])
    assert (task in [claim.id for claim in claimed.claims]) is free


class TestGates(Subject):
    async def test_every_gate_is_listed_in_order_with_its_figure(self, bench: Bench) -> None:
        await pool(bench, NewResource(name="p1", labels=("eu",)), "p2")
        await shot(bench, WorkerState.IDLE, WorkerState.PROCESSING, budget=2 * GIGA, in_use=GIGA, needs={"job": GIGA})
        await bench.change("fetching", rate=rate("5/min"), capacity=100)
        item = bench.new(queue="fetching", want=Want(labels=("us",)))
        await bench.create(item, name="night run")
        await fetch(bench, priority=-1)
        why = (await explain(bench.store, item.id, bench.now)).why
        assert [(gate.passed, gate.what, gate.says, gate.figure) for gate in why.gates] == [
            (True, "Batch night run", "is running", ""),
            (True, "Its own time", "is due", "attempt 1"),
            (True, "Queue fetching", "is open", "2 wait, room for 100"),
            (True, "Manager", "1 manager on here", ""),
            (True, "Handler job", "is known by 2 workers", "2 workers"),
            (True, "Workers", "2 ready workers of pool web serve queue fetching", "2 ready workers"),
            (False, "Resource proxies, label us", "has no member with label us", "0 of 2 with label us"),
            (True, "Rate 5 per 1m", "allows a start now", ""),
            (True, "Memory", "is enough on here", "1.0 GB of 2.0 GB in use; it needs 1.0 GB"),
            (True, "Free worker", "there is one", "2 of 2 seats free"),
        ]

    async def test_the_line_counts_priority_then_age_and_those_with_the_same_need(self, bench: Bench) -> None:
        await shot(bench, WorkerState.IDLE)
        await bench.add(want=Want(labels=("eu",)))
        await bench.add()
        mine = await bench.add(want=Want(labels=("eu",)))
        await bench.add()
        await bench.add(priority=-5)
        why = (await explain(bench.store, mine.id, bench.now)).why
        assert why.gates[-1].says == "3 before it (1 with the same need), 5 in the whole queue"
        assert why.sentence == "it is ready; 3 tasks are before it"

    async def test_a_rate_and_the_line_give_an_estimate(self, bench: Bench) -> None:
        await bench.change("default", rate=rate("1/min"))
        await bench.started()
        *_, last = [await bench.add() for _ in range(4)]
        why = (await explain(bench.store, last.id, bench.now)).why
        assert spoken_start(why) == "in about 4m, give or take 45s"

    async def test_running_and_finished_tasks_say_so(self, bench: Bench) -> None:
        claim = await bench.started()
        bench.clock.advance(5)
        running = (await explain(bench.store, claim.id, bench.now)).why
        assert (running.sentence, running.gates) == ("it runs for 5s on here", ())
        await bench.complete(claim)
        ended = (await explain(bench.store, claim.id, bench.now)).why
        assert (ended.sentence, ended.cause) == ("it has ended: completed", "completed")

    async def test_a_task_gets_a_member_again_that_it_failed_with_if_the_others_are_away(self, bench: Bench) -> None:
        await pool(bench, "p1", "p2", max_failures=1)
        await shot(bench, WorkerState.IDLE)
        claim = await bench.started(queue="fetching")
        failed = Failed(BROKEN)
        await bench.report(claim, failed, report=Report(outcome=ResourceOutcome.TASK_ERROR))
        await used(bench, ResourceOutcome.RESOURCE_ERROR)
        bench.clock.advance(10)
        await bench.store.reclaim()
        assert (await bench.task(claim.id)).tried == ("p1",)
        why = (await explain(bench.store, claim.id, bench.now)).why
        assert why.cause == "ready", why.sentence
        await assert_the_engine_agrees(bench, claim.id, why)

    async def test_a_running_task_whose_manager_is_gone_says_so(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.store.end_session(claim.token.session)
        gone = (await explain(bench.store, claim.id, bench.now)).why
        assert gone.sentence == "its manager is gone; it runs again when a manager starts"
        assert (gone.cause, gone.stuck, gone.helps) == ("manager-gone", True, ("pitboss up",))

    async def test_a_key_may_leave_a_member_that_is_away(self, bench: Bench) -> None:
        await pool(bench, "p1", "p2", strategy=Strategy.STICKY, away="rebind")
        await bench.started(queue="fetching", want=Want(key="ann"))
        assert (await explain(bench.store, await fetch(bench, want=Want(key="ann")), bench.now)).why.cause == "ready"

    async def test_a_member_that_failed_the_task_is_not_waited_for(self, bench: Bench) -> None:
        await pool(bench, "p1", "p2", cooldown=0)
        claim = await bench.started(queue="fetching")
        assert claim.leased is not None
        back = Transition(state=State.PENDING, outcome="rotated", rotated=True)
        await bench.write(claim, back, report=Report(outcome=ResourceOutcome.RESOURCE_ERROR))
        await bench.started(queue="fetching", priority=-1)
        why = (await explain(bench.store, claim.id, bench.now)).why
        assert why.cause in ("ready", "busy")

    async def test_an_unknown_id_is_neither_task_nor_batch(self, bench: Bench) -> None:
        with pytest.raises(NotFound, match="no task or batch"):
            await explain(bench.store, "abcdef012345", bench.now)


class TestBatches(Subject):
    async def test_a_batch_says_what_its_items_wait_for(self, bench: Bench) -> None:
        await pool(bench)
        batch = await bench.create(bench.new(queue="fetching"), bench.new(queue="fetching"))
        said = 'resource pool "proxies" has no members'
        assert (await read_batch(bench.store, batch.id, bench.now)).reading.waiting == said
        assert (await explain(bench.store, batch.id[-12:], bench.now)).why.sentence == said
        await bench.store.add_resources("proxies", [NewResource(name="p1")])
        assert (await read_batch(bench.store, batch.id, bench.now)).reading.waiting is None
        going = (await explain(bench.store, batch.id, bench.now)).why
        assert going.sentence == "it makes progress: 0 items running, 0 of 2 ended"

    async def test_a_batch_in_line_says_its_place(self, bench: Bench) -> None:
        await bench.create(bench.new())
        second = await bench.create(bench.new())
        why = (await explain(bench.store, second.id, bench.now)).why
        assert why.sentence == 'it waits for its turn in lane "default": place 1 of 1'


class TestTroubles(Subject):
    async def test_a_whole_queue_that_stands_still_is_unhealthy_and_one_task_is_not(self, bench: Bench) -> None:
        await pool(bench, "p1")
        first = await fetch(bench, want=Want(labels=("eu",)))
        status = await read_status(bench.store, bench.now)
        assert (status.verdict.health, status.verdict.cause) == ("unhealthy", "labels")
        assert status.verdict.sentence == (
            '1 task of queue "fetching" cannot start: resource pool "proxies" has no member with label eu.'
        )
        assert status.next == "pitboss resources add proxies NAME --label eu"
        await fetch(bench)
        status = await read_status(bench.store, bench.now)
        assert status.verdict.health == "attention"
        assert status.verdict.sentence.startswith('At least 1 task of queue "fetching" cannot start')
        await bench.cancel(first)
        assert (await read_status(bench.store, bench.now)).verdict.health == "healthy"

    async def test_a_worker_that_was_given_up_is_not_healthy(self, bench: Bench) -> None:
        await shot(bench, WorkerState.IDLE, WorkerState.CRASHED, why="it crashed 6 times")
        status = await read_status(bench.store, bench.now)
        assert status.verdict.health == "attention"
        assert status.verdict.sentence.startswith("Worker web-2 on here was given up")

    async def test_items_that_no_claim_draws_are_not_healthy(self, bench: Bench) -> None:
        await shot(bench, WorkerState.IDLE, pool={"paused": True})
        await bench.create(bench.new(), bench.new())
        status = await read_status(bench.store, bench.now)
        assert (status.verdict.health, status.next) == ("attention", "pitboss pools resume web")
        assert status.verdict.sentence == '2 tasks of queue "default" cannot start: worker pool web is paused.'

    async def test_late_tasks_name_their_cause(self, bench: Bench) -> None:
        await bench.change("default", rate=rate("1/h"))
        await bench.started()
        await bench.add()
        bench.clock.advance("6m")
        status = await read_status(bench.store, bench.now)
        assert status.verdict.sentence == (
            '1 task waited longer than 5m: queue "default" starts at most 1 per 1h; next in 54m.'
        )

    async def test_a_full_queue_is_a_warning(self, bench: Bench) -> None:
        await bench.change("default", capacity=1)
        await bench.add()
        said = [one.what for one in (await read_status(bench.store, bench.now)).findings if one.check == "capacity"]
        assert said == ['queue "default" is full: 1 of 1 tasks wait in it']

    async def test_a_manager_tells_each_cause_once_and_its_end_once(self, bench: Bench) -> None:
        said: list[str] = []
        log = TroubleLog(bench.store, bench.clock, begun=said.append, ended=said.append)
        await pool(bench)
        for _ in range(3):
            await fetch(bench)
            await log.look()
        await bench.store.add_resources("proxies", [NewResource(name="p1")])
        for _ in range(2):
            await log.look()
        assert said == [
            '1 task of queue "fetching" cannot start: resource pool "proxies" has no members; '
            "what helps: pitboss resources add proxies NAME …",
            'tasks of queue "fetching" no longer wait for this: resource pool "proxies" has no members',
        ]

    async def test_a_trouble_that_was_not_looked_at_again_is_not_said_to_be_over(self, bench: Bench) -> None:
        bench.watching = False
        said: list[str] = []
        log = TroubleLog(bench.store, bench.clock, begun=said.append, ended=said.append)
        await pool(bench, NewResource(name="p1", labels=("eu",)))
        stuck = await fetch(bench, want=Want(labels=("us",)), priority=1)
        await log.look()
        assert len(said) == 1
        for queue in range(20):
            await bench.put(*(bench.new(queue=f"full{queue}") for _ in range(3)))
        await log.look()
        await bench.put(*(bench.new(queue="fetching") for _ in range(2100)))
        await log.look()
        assert said[1:] == [], "of the queue, other tasks were looked at"
        await bench.store.cancel(by(queue="fetching", priority="0"), limit=3000)
        another = await fetch(bench, want=Want(labels=("us",)))
        await bench.store.cancel(by(id=stuck))
        await log.look()
        assert said[1:] == [], "no task of the queue was looked at"
        await bench.store.cancel(by(id=another))
        await log.look()
        assert said[1:] == [
            'tasks of queue "fetching" no longer wait for this: resource pool "proxies" has no member with label us'
        ]

    async def test_members_are_read_only_where_it_matters_which_are_ready(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.watching = False
        await pool(bench, NewResource(name="p1", labels=("eu",)), "p2")
        read, fit, resources = list[str](), list[str](), bench.store.resources

        async def counted(pool: str, names: Any = None) -> Any:
            read.append(pool)
            return await resources(pool, names)

        monkeypatch.setattr(bench.store, "resources", counted)
        await fetch(bench)
        assert (await read_troubles(bench.store, bench.now)).troubles == []
        assert read == []
        for _ in range(5):
            await fetch(bench, want=Want(labels=("us",)))

        def fits(one: Resource, want: Want) -> bool:
            fit.append(one.name)
            return leasing.fits(one, want)

        monkeypatch.setattr(resource_gates, "fits", fits)
        (trouble,) = (await read_troubles(bench.store, bench.now)).troubles
        assert (trouble.cause, trouble.tasks) == ("labels", 5)
        assert read == ["proxies"]
        assert sorted(fit) == ["p1", "p1", "p2", "p2"], "once for each need, however many tasks have it"

    async def test_tasks_that_are_held_for_their_handler_are_told_and_hide_no_others(self, bench: Bench) -> None:
        await shot(bench, WorkerState.IDLE)
        await pool(bench)
        await fetch(bench)
        held = await bench.add(handler="stranger")
        (empty, unknown) = (await read_troubles(bench.store, bench.now)).troubles
        assert (empty.cause, unknown.cause) == ("no-members", "handler")
        assert unknown.said == '1 task of queue "default" cannot start: no live worker knows the handler "stranger"'
        verdict = (await read_status(bench.store, bench.now)).verdict
        assert verdict.cause == "held"
        assert verdict.sentence.endswith("no worker knows the handler: stranger; and 1 more: pitboss doctor.")
        gates = (await explain(bench.store, held.id, bench.now)).why.gates
        assert [gate.says for gate in gates if gate.name == "workers"] == ["none knows its handler"]

    async def test_a_task_that_was_given_back_for_a_missing_key_cannot_start(self, bench: Bench) -> None:
        await pool(bench, NewResource(name="p1", secrets={"password": "s1.aaaaaaaa.x"}))
        claim = await bench.started(queue="fetching")
        await bench.write(claim, decide(claim, NO_KEY, Policy(), bench.now, 0.5))
        await shot(bench, WorkerState.IDLE, missing_keys=(MissingKey("proxies", "aaaaaaaa", 1),))
        assert (await explain(bench.store, claim.id, bench.now)).why.cause == "missing-key"
        (trouble,) = (await read_troubles(bench.store, bench.now)).troubles
        assert (trouble.cause, trouble.tasks) == ("missing-key", 1)
        verdict = (await read_status(bench.store, bench.now)).verdict
        assert (verdict.health, verdict.cause) == ("unhealthy", "missing-key")

    async def test_a_worker_pool_that_an_operator_stopped_is_no_problem(self, bench: Bench) -> None:
        for stop in (paused_worker_pool, draining_manager, no_workers_wanted):
            await stop(bench)
            found = [one for one in await check_store(bench.store, bench.clock, "") if one.check == "waiting"]
            assert [one.grade for one in found] == ["warning"], stop.__name__

    async def test_a_paused_batch_is_told_and_its_items_count_as_waiting(self, bench: Bench) -> None:
        await shot(bench, WorkerState.IDLE)
        await bench.create(bench.new(), bench.new())
        verdict = (await read_status(bench.store, bench.now)).verdict
        assert verdict.sentence == "Healthy: 1 manager, 0 running, 2 waiting."
        paused = await bench.create(bench.new(), paused=True)
        verdict = (await read_status(bench.store, bench.now)).verdict
        assert verdict.sentence == "Healthy: 1 manager, 0 running, 3 waiting, 1 of them in 1 paused batch."
        with pytest.raises(TimedOutWaiting) as late:
            await ended_batch(Client(bench.store, bench.clock), paused.id, 0)
        assert late.value.fix == f"pitboss batches resume {paused.id[-12:]}"

    async def test_reading_costs_the_same_however_many_tasks_wait(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.watching = False
        await shot(bench, WorkerState.IDLE)
        await bench.put(*(bench.new() for _ in range(2100)))
        asked: list[tuple[str, int]] = []
        find = bench.store.find

        async def counted(wanted: Filter, *, limit: int = 50, **options: Any) -> Any:
            asked.append((wanted.terms[-1].field, limit))
            return await find(wanted, limit=limit, **options)

        monkeypatch.setattr(bench.store, "find", counted)
        await read_troubles(bench.store, bench.now)
        (newest,) = (await find(by(state="pending"), limit=1)).tasks
        why = (await explain(bench.store, newest.id, bench.now)).why
        assert asked == [("queue", 10), ("priority", 500)], "an index gives the oldest of each priority"
        assert why.gates[-1].says == "at least 500 before it, 2,100 in the whole queue"


def test_looks_that_take_long_are_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = FakeClock(), list[int]()
    store = MemoryEngine(clock=clock)
    queues = store.queues

    async def slow() -> Any:
        looks.append(clock.now())
        await asyncio.sleep(1)
        return await queues()

    monkeypatch.setattr(store, "queues", slow)

    async def main() -> None:
        log = TroubleLog(store, clock, begun=print, ended=print)
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                await log.run()

    run_virtual(main(), clock=clock)
    assert [(at - looks[0]) // SECOND for at in looks] == [0, 21, 42]


def test_a_manager_publishes_memory_only_while_a_handler_is_heavy() -> None:
    token = Token(1, 1)
    claim = Claim(id="t", token=token, handler="job", queue="q", params="{}", attempt=1)
    memory = HostMemory(16 * GIGA, lambda: [claim])
    memory.learn(msgspec.structs.replace(claim, handler="small"), 1)
    assert memory.published() == (0, 0, {})
    memory.learn(claim, 4 * GIGA)
    budget, in_use, needs = memory.published()
    assert (budget, in_use) == (16 * GIGA, needs["job"])
    assert round(needs["job"] / GIGA) == 4
