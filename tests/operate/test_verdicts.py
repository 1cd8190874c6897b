"""Seeded faults, of which the root cause must win over what follows from it; and a healthy load without an alarm."""

import re
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Any, NamedTuple

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, PoolRules, ResourceOutcome
from pitboss.model.snapshot import WorkerState
from pitboss.model.verdict import Health, Verdict, action, store_away
from pitboss.operate.status import read_status
from tests.cli.command_line import pitboss
from tests.operate.load_world import HEALTHY, World


class Fault(NamedTuple):
    """How it is seeded, and what the verdict must say: its code, words of its sentence and of its cause, a command that
    helps and what that is about. `hidden` is no line of its own: it follows from the cause."""

    seed: Callable[[World], Awaitable[Any]]
    cause: str
    sentence: str
    why: str
    command: str
    about: tuple[str, str]
    hidden: str = ""


async def no_manager(world: World) -> None:
    await world.run(60)
    await world.stop()
    await world.run(400)


async def unknown_handler(world: World) -> None:
    await world.store.put([world.store.new("stranger", queue="work")])
    await world.run(10)


async def failing(world: World) -> None:
    world.fails = 0.9
    await world.run(60)


async def no_pool_serves_it(world: World) -> None:
    world.pool = {"queues": ("other",)}
    await world.run(60)


async def rate_too_low(world: World) -> None:
    await world.store.change_queue("work", QueueChange(rate=rate("20/min")))
    await world.run(400)


async def too_few_workers(world: World) -> None:
    world.comes = 12.0
    await world.run(400)


async def slow_store(world: World) -> None:
    await world.run(60)
    await world.store.change_queue("work", QueueChange(paused=True))
    queues = world.store.queues

    async def slowly() -> Any:
        world.store.time.advance(3)
        return await queues()

    world.store.queues = slowly  # type: ignore[method-assign]


async def growing_because_a_pool_is_emptied(world: World) -> None:
    """Both: a queue that grows, and 6 of 10 proxies that were sent away."""
    world.handler = HandlerInfo(name="job", queue="work", resources="proxies")
    await world.store.declare_pool("proxies", PoolRules(cooldown=1800 * SECOND))
    await world.store.register([world.handler])
    await world.store.add_resources("proxies", [NewResource(name=f"p{n}") for n in range(10)])
    world.slots, world.comes, world.uses = 20, 4.0, ResourceOutcome.OK
    await world.run(120)
    world.refusals = 6
    await world.run(400)


async def paused_with_old_tasks(world: World) -> None:
    """Both: tasks that wait for long, and a pause."""
    await world.run(30)
    await world.store.change_queue("work", QueueChange(paused=True, by="ana", reason="the site is down"))
    await world.run(400)


async def dead_pool_with_a_backlog(world: World) -> None:
    """Both: tasks that wait, and workers of which none is alive."""
    await world.run(60)
    world.crashes = 4
    world.states = dict.fromkeys(range(world.slots), WorkerState.RESTARTING)
    world.running = []
    await world.run(400)


async def crash_loop_with_a_backlog(world: World) -> None:
    """Both: a queue that grows, and workers that crash again and again."""
    world.comes = 6.0
    world.crashes = 5
    world.states = dict.fromkeys(range(1, world.slots), WorkerState.RESTARTING)
    for place in range(8):
        await world.run(50)
        await world.store.crash(f"default-{place % 4 + 1}")


FAULTS = {
    "no manager": Fault(no_manager, "no-manager", "No manager is running", "", "pitboss up", ("manager", "")),
    "unknown handler": Fault(
        unknown_handler,
        "held",
        "no worker knows the handler: stranger",
        "",
        "pitboss tasks list",
        ("tasks", "state:held"),
    ),
    "failing": Fault(failing, "failing", "of the last 1h failed", "", "pitboss dead list", ("failures", "")),
    "unserved": Fault(
        no_pool_serves_it, "unserved", 'no worker pool serves queue "work"', "", "pitboss why", ("task", "")
    ),
    "rate": Fault(
        rate_too_low, "rate", "grows by", "its rate limit of 20 per 1m", "pitboss queues limit work", ("queue", "work")
    ),
    "too few workers": Fault(
        too_few_workers,
        "grows",
        "will not drain",
        "all 4 seats",
        "pitboss pools scale default",
        ("worker-pool", "default"),
    ),
    "slow store, and a pause": Fault(
        slow_store, "store-slow", "The store is slow: it took 3s", "waits for it", "pitboss doctor", ("store", "")
    ),
    "emptied pool, and a growing queue": Fault(
        growing_because_a_pool_is_emptied,
        "resources",
        'Queue "work" grows by',
        "6 of 10 proxies are away: 6 cooling",
        "pitboss resources show proxies",
        ("resource", "proxies"),
        "waited longer",
    ),
    "pause, and old tasks": Fault(
        paused_with_old_tasks,
        "paused",
        'Queue "work" is paused',
        "paused by ana",
        "pitboss queues resume work",
        ("queue", "work"),
        "waited longer",
    ),
    "dead pool, and a backlog": Fault(
        dead_pool_with_a_backlog,
        "no-worker",
        'Worker pool "default" has no live worker',
        "killed by SIGKILL (often the kernel, when memory runs out)",
        "pitboss pools restart default",
        ("worker-pool", "default"),
        "waited longer",
    ),
    "crash loop, and a backlog": Fault(
        crash_loop_with_a_backlog,
        "crash-loop",
        'Workers of pool "default" crash again and again',
        "was killed by SIGKILL",
        "pitboss ps --pool default",
        ("worker-pool", "default"),
        "grows by",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_a_fault_is_told_with_its_cause_and_what_helps(fault: Fault) -> None:
    world = World(comes=2.0, slots=4)
    await world.start()
    await fault.seed(world)
    found = (await world.status()).verdict
    assert found.cause == fault.cause, found
    assert found.health is not Health.HEALTHY
    assert fault.sentence in found.sentence
    assert fault.why in found.why
    helping = next((one for one in found.actions if one.command.startswith(fault.command)), None)
    assert helping is not None, found.actions
    assert (helping.kind, helping.name) == fault.about or helping.kind == "task"
    assert not fault.hidden or not any(fault.hidden in line for line in found.also)
    for one in found.actions:
        assert pitboss(*one.command.split()[1:], "--help").code == 0, f"{one.command} is no command"


async def test_crashes_are_counted_by_pool_and_not_by_worker() -> None:
    """Regression: ten workers with two crashes each were no crash loop."""
    world = World(comes=2.0, slots=10)
    await world.start()
    for number in range(20):
        await world.run(10)
        await world.store.crash(f"default-{number % 10 + 1}")
    found = (await world.status()).verdict
    assert found.sentence == 'Workers of pool "default" crash again and again: 20 crashes in 10m.'
    assert found.why.startswith("worker default-10 was killed by SIGKILL (")


async def test_the_pool_says_until_when_and_how_many_members_are_needed() -> None:
    world = World(slots=4)
    await world.start()
    await growing_because_a_pool_is_emptied(world)
    found = (await world.status()).verdict
    assert "; the queue needs " in found.why
    assert found.until is not None
    assert world.now < found.until < world.now + 1800 * SECOND
    assert found.until_note.startswith("when ")
    assert found.since is not None
    assert found.since < world.now - 300 * SECOND


async def test_other_causes_are_told_beside_the_worst() -> None:
    world = World(comes=1.0)
    await world.start()
    await world.add(5, queue="mail")
    await world.store.change_queue("mail", QueueChange(paused=True, by="ana"))
    await world.store.put([world.store.new("stranger", queue="work")])
    await world.run(5)
    found = (await world.status()).verdict
    assert found.cause == "held"
    assert any(line.startswith('Queue "mail" was paused by ana 5s ago') for line in found.also)


async def healthy(world: World) -> list[Verdict]:
    """Every verdict of a look each ten seconds for half an hour, but healthy ones."""
    await world.start()
    found = []
    for _ in range(180):
        await world.run(10)
        found.append((await read_status(world.store, world.now)).verdict)
    return [one for one in found if one.health is not Health.HEALTHY]


@pytest.mark.parametrize("load", HEALTHY)
async def test_no_false_alarm_in_half_an_hour(load: Callable[[World], Awaitable[None]]) -> None:
    world = World()
    await load(world)
    assert await healthy(world) == []


def test_an_action_says_what_it_is_about() -> None:
    found = action("pitboss queues resume mail")
    assert found is not None
    assert (found.label, found.kind, found.name, found.looks) == ("Resume mail", "queue", "mail", False)
    shown = action("pitboss resources show proxies")
    assert shown is not None
    assert (shown.label, shown.kind, shown.looks) == ("Open proxies", "resource", True)
    assert action("fix the cause") is None


def test_a_store_that_is_away_is_the_cause() -> None:
    found = store_away("the store cannot be reached", "connection refused", "start the server")
    assert (found.cause, found.sentence) == ("store-away", "The store cannot be reached.")
    assert (found.why, found.next, found.actions) == ("connection refused", "start the server", ())


async def test_tasks_that_never_end_are_the_cause_of_a_stall() -> None:
    """Regression: "No task of queue work has ended for 9m" was told without a cause."""
    world = World(comes=1.0, slots=3)
    await world.start()
    await world.run(120)
    world.hangs = True
    await world.run(600)
    found = (await world.status()).verdict
    assert found.cause == "stalled"
    assert re.fullmatch(r"3 × job run, the longest for \d+m\w* \(usual: unknown\)", found.why), found.why
    assert found.next == "pitboss tasks list 'state:running handler:job ran:>5m'"
    assert (found.actions[0].kind, found.actions[0].name) == ("tasks", "state:running handler:job ran:>5m")


async def test_the_command_of_a_crash_loop_works_without_logs_of_workers() -> None:
    world = World(comes=2.0, slots=4)
    await world.start()
    await crash_loop_with_a_backlog(world)
    assert (await world.status()).verdict.next == "pitboss logs manager"


@pytest.mark.parametrize("most", [0, 6])
async def test_a_pool_is_scaled_to_what_comes_and_no_further_than_its_maximum(most: int) -> None:
    world = World(comes=8.0, slots=4)
    world.pool = {"least": 1, "most": most} if most else {}
    await world.start()
    await world.run(400)
    status = await world.status()
    found, flow = status.verdict, status.forecasts["work"]
    needed = ceil(4 * flow.inflow / flow.outflow)
    assert needed > 6
    cut = f", but the pool has at most {most}" if most else ""
    assert found.why.endswith(f"{needed} workers would keep up{cut}")
    assert found.actions[0].args == ("default", str(most or needed))


async def test_a_queue_without_a_usable_member_is_as_bad_as_one_without_a_worker() -> None:
    """Regression: it needed attention only. Members that are back at once make it no worse."""
    world = World(comes=2.0, slots=4)
    world.handler = HandlerInfo(name="job", queue="work", resources="proxies")
    await world.store.declare_pool("proxies", PoolRules(cooldown=1800 * SECOND))
    await world.store.register([world.handler])
    await world.store.add_resources("proxies", [NewResource(name=f"p{n}") for n in range(4)])
    await world.start()
    world.uses = ResourceOutcome.OK
    await world.run(60)
    world.refusals = 4
    await world.run(200)
    found = (await world.status()).verdict
    assert (found.cause, found.health) == ("cooling", Health.UNHEALTHY)
    assert found.until_note.startswith("when ")
    assert " of 4 " in found.until_note
