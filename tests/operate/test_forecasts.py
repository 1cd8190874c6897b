"""What becomes of a queue, in ten shapes of load that are simulated: what it says comes true."""

import msgspec
import pytest

from pitboss.cli.status import running_text
from pitboss.model.duration import SECOND
from pitboss.model.gates import Gate
from pitboss.model.limits import rate
from pitboss.model.queue import HandlerInfo, Queue, QueueChange
from pitboss.model.queue_forecast import QueueFlow, QueueForecast, Trend, pinched, spoken_forecast
from pitboss.model.resource import Limits, NewResource, PoolRules, ResourceOutcome
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from pitboss.operate.status_documents import forecast_document
from tests.operate.load_world import World

# A time that is said may be wrong by this share.
CLOSE = 0.25


async def assert_comes_true(world: World, found: QueueForecast) -> None:
    assert found.likely is not None
    said = found.likely / SECOND
    took = await world.until_clear()
    assert said == pytest.approx(took, rel=CLOSE), spoken_forecast(found, str)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
async def test_a_backlog_that_clears(seed: int) -> None:
    world = World(comes=5.0, slots=12, takes=1.0, seed=seed)
    await world.start()
    await world.add(2000)
    await world.run(180)
    found = await world.forecast()
    assert found.trend is Trend.CLEARS
    assert found.pinch.cause == "workers"
    await assert_comes_true(world, found)


async def test_slow_tasks_that_clear() -> None:
    world = World(slots=4, takes=60)
    await world.start()
    await world.add(200)
    await world.run(1200)
    found = await world.forecast()
    assert found.trend is Trend.CLEARS
    await assert_comes_true(world, found)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_queue_that_grows(seed: int) -> None:
    world = World(comes=6.0, slots=4, takes=1.0, seed=seed)
    await world.start()
    await world.run(300)
    found = await world.forecast()
    assert found.trend is Trend.GROWS
    before = await world.waiting()
    await world.run(120)
    grew = (await world.waiting() - before) / 120
    assert found.inflow - found.outflow == pytest.approx(grew, rel=CLOSE)
    assert found.since is not None
    assert world.now - found.since > 300 * SECOND
    assert found.pinch.said == "all 4 seats of its workers are busy"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_queue_that_keeps_up(seed: int) -> None:
    world = World(comes=3.0, slots=6, takes=1.0, seed=seed)
    await world.start()
    for _ in range(60):
        await world.run(10)
        assert (await world.forecast()).trend is Trend.KEEPS_UP
    world.comes = 0.0
    await world.run(330)
    assert (await world.forecast()).trend is Trend.IDLE


async def test_it_stands_still_without_a_worker() -> None:
    world = World(comes=2.0, slots=4)
    await world.start()
    await world.run(120)
    await world.stop()
    stopped = world.now
    await world.run(180)
    found = await world.forecast()
    assert found.trend is Trend.STALLED
    assert found.pinch.cause == "no-manager"
    assert found.since == pytest.approx(stopped, abs=20 * SECOND)
    assert forecast_document(found)["text"].startswith("stalled since ")


async def test_it_is_paused() -> None:
    world = World(comes=2.0)
    await world.start()
    await world.run(60)
    await world.store.change_queue("work", QueueChange(paused=True, by="ann", reason="maintenance"))
    paused = world.now
    await world.run(120)
    found = await world.forecast()
    assert (found.trend, found.since, found.pinch.cause) == (Trend.PAUSED, paused, "paused")


async def with_pool(world: World, members: int, **rules: object) -> None:
    world.handler = HandlerInfo(name="job", queue="work", resources="proxies")
    await world.store.declare_pool("proxies", PoolRules(**rules))  # type: ignore[arg-type]
    await world.store.register([world.handler])
    await world.store.add_resources("proxies", [NewResource(name=f"p{n}") for n in range(members)])
    world.uses = ResourceOutcome.OK


async def test_it_stands_still_while_a_pool_is_empty() -> None:
    world = World(comes=2.0, slots=8)
    await with_pool(world, 4, cooldown=900 * SECOND)
    await world.start()
    await world.run(120)
    world.uses = ResourceOutcome.RATE_LIMITED
    await world.run(120)
    found = await world.forecast()
    assert (found.trend, found.pinch.cause) == (Trend.STALLED, "resources")
    assert found.pinch.said == "4 of 4 proxies are away: 4 cooling"
    assert found.until is not None
    assert 700 * SECOND < found.until - world.now < 900 * SECOND


async def test_a_pool_limits_how_fast_it_clears() -> None:
    world = World(slots=40)
    await with_pool(world, 5, limits=Limits(windows=rate("30/min")))
    await world.start()
    await world.add(3000)
    await world.run(300)
    found = await world.forecast()
    assert (found.trend, found.pinch.cause) == (Trend.CLEARS, "resources")
    await assert_comes_true(world, found)


async def test_a_rate_limit_holds_it_back() -> None:
    world = World(slots=8)
    world.coming = lambda second: int(second % 5 == 0)
    await world.start()
    await world.store.change_queue("work", QueueChange(rate=rate("30/min")))
    await world.add(300)
    await world.run(240)
    found = await world.forecast()
    assert (found.trend, found.pinch.cause) == (Trend.CLEARS, "rate")
    await assert_comes_true(world, found)
    world.coming = lambda second: 1 + second % 2
    await world.run(300)
    found = await world.forecast()
    assert (found.trend, found.pinch.said) == (Trend.GROWS, "its rate limit of 30 per 1m")


@pytest.mark.parametrize("after", [3, 45, 90])
async def test_bursts_are_a_part_of_the_backlog_and_no_rate(after: int) -> None:
    world = World(slots=5)
    world.coming = lambda second: 600 if second % 300 == 0 else 0
    await world.start()
    await world.run(1200 + after)
    found = await world.forecast()
    assert found.trend is Trend.CLEARS
    await assert_comes_true(world, found)


async def test_after_a_restart_the_gap_is_no_speed() -> None:
    world = World(comes=1.0, slots=6)
    await world.start()
    await world.run(600)
    await world.stop()
    await world.run(900)
    await world.start()
    world.states = dict.fromkeys(range(1, 6), WorkerState.STARTING)
    await world.run(1)
    assert (await world.forecast()).trend is Trend.UNKNOWN
    world.states = {}
    await world.run(59)
    found = await world.forecast()
    assert found.trend is Trend.CLEARS
    await assert_comes_true(world, found)


@pytest.mark.parametrize("takes", [4.0, 20.0])
async def test_after_a_restart_it_knows_at_once_how_long_tasks_take(takes: float) -> None:
    world = World(comes=1.0 / takes, slots=6, takes=takes)
    await world.start()
    await world.run(300)
    await world.sample()
    await world.stop()
    await world.run(900 * round(takes))
    await world.start()
    # The workers have not run anything yet, and most of them start.
    world.states = dict.fromkeys(range(1, 6), WorkerState.STARTING)
    found = await world.forecast()
    assert found.trend is Trend.CLEARS
    assert found.outflow == pytest.approx(6 / takes, rel=0.1)
    world.states = {}
    await assert_comes_true(world, found)


async def test_tasks_that_do_not_end_are_not_expected_to_for_long() -> None:
    world = World(slots=4, takes=1.0)
    await world.start()
    await world.add(20)
    await world.run(10)
    await world.sample()
    await world.stop()
    world.takes = 10_000
    await world.start()
    await world.add(200)
    await world.run(5)
    assert (await world.forecast()).trend is Trend.CLEARS
    await world.run(30)
    assert (await world.forecast()).trend is Trend.UNKNOWN


async def test_workers_that_serve_two_queues_have_half_their_time_for_each() -> None:
    world = World(slots=4, takes=1.0)
    await world.start()
    world.usual = {"job": SECOND}
    await world.add(200)
    await world.add(200, queue="other")
    await world._tell()
    assert (await world.forecast()).outflow == 2


async def test_a_nearly_empty_queue_keeps_up() -> None:
    world = World(slots=1, takes=2)
    world.coming = lambda second: int(second % 20 == 0)
    await world.start()
    for _ in range(40):
        await world.run(7)
        assert (await world.forecast()).trend is Trend.KEEPS_UP


async def test_tasks_that_are_claimed_and_have_not_begun_are_not_at_work() -> None:
    """Regression: "63 running" with 32 seats."""
    world = World(slots=3, takes=60)
    await world.start()
    await world.add(9)
    await world.second()
    assert world.session is not None
    await world.store.claim(ClaimRequest(session=world.session, slots=(Slot(free=4),)))
    status = await world.status()
    queue = next(one for one in status.queues if one.name == "work")
    assert running_text(queue, status.forecasts["work"]) == "7 (3 at work)"


def test_what_limits_a_queue_does_not_change_with_each_look() -> None:
    """The oldest task finds its key full at one moment and the rate used up at another: only the rate binds."""
    queue = Queue(name="q", rate=rate("60/min"), max_per_key=2, counts={State.PENDING: 500})
    full = Gate(name="partition", what="", says="", passed=False, cause="max-per-key", sentence="its key is full")
    spent = Gate(name="rate", what="", says="", passed=False, cause="rate", sentence="the rate is used up")
    flow = QueueFlow(queue=queue, now=0, mean=SECOND, seats=8, busy=2, free=6)
    looks = [(gate, out) for gate in (full, spent, None) for out in (0.0, 0.95)]
    assert {pinched(msgspec.structs.replace(flow, gate=gate), out).cause for gate, out in looks} == {"rate"}
    slow = msgspec.structs.replace(flow, gate=full, mean=60 * SECOND)
    assert pinched(slow, 0.1).cause == "max-per-key"
