"""All rules that are on by default, with their own windows, on loads that run second by second."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pitboss.model.alert import Phase
from pitboss.model.alert_look import read_notes
from pitboss.model.alert_message import AlertMessage, ChannelSpec, Kind, read_message
from pitboss.model.alert_rules import AlertsSpec, rules_of
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.figures import HandlerFigures, Sample, bucket
from pitboss.model.filter import by
from pitboss.model.snapshot import WorkerState
from pitboss.upkeep.alerts import ALERT_SECONDS, Alerter
from tests.operate.load_world import HEALTHY, World

CHANNELS = tuple(ChannelSpec(name=name, type="webhook", url="https://example.org") for name in ("ops", "second"))
MINUTES = 60


class Watched(World):
    """Its manager leads and looks at alerts. `fired` are the names of all that have fired. `each` is what else
    happens at a second."""

    def __init__(self, **load: Any) -> None:
        super().__init__(**load)
        self.spec = AlertsSpec(rules=rules_of({}), channels=CHANNELS)
        self.fired = set[str]()
        self.term = 0
        self.each: Callable[[int], Awaitable[None]] | None = None

    async def start(self) -> None:
        await self.store.register([one.info("app") for one in CHANNELS])
        await self._ran_before()
        await super().start()
        await self.lead()

    async def lead(self) -> None:
        assert self.session is not None
        self.term = (await self.store.campaign(self.session)).term
        self.alerter = Alerter(self.store, self.store, lambda: self.spec, self.store.clock, log=lambda _: None)

    async def second(self) -> None:
        await super().second()
        if self.each is not None:
            await self.each(self.seconds)
        if self.term and self.session is not None and self.seconds % ALERT_SECONDS == 0:
            await self.sample()
            await self.alerter.look(self.term)
            notes = read_notes((await self.store.alert_board()).notes)
            self.fired |= {name for name, one in notes.alerts.items() if one.phase is Phase.FIRING}

    async def told(self, channel: str) -> list[AlertMessage]:
        sent = await self.store.find(by(task=f"pitboss.alerts.{channel}"), oldest_first=True, limit=1000)
        return [read_message(one.params) for one in sent.tasks]

    async def _ran_before(self) -> None:
        """Some hours ago tasks took as long as they take now, so that rules about what is usual judge."""
        figures = HandlerFigures(self.queue, "job")
        for _ in range(100):
            figures.run.add(round(self.takes * SECOND))
            figures.memory.add(100_000_000)
        at = bucket(self.now - 3 * 3600 * SECOND, 10 * SECOND)
        await self.store.add_samples([Sample(at=at, session=1, covered=10, handlers=[figures])])


async def test_2500_failures_in_a_minute_are_two_messages_and_one_that_it_is_over() -> None:
    world = Watched(comes=2.0, slots=200, takes=0.5)
    await world.start()
    await world.run(10 * MINUTES)
    assert world.fired == set()
    world.fails, world.coming = 1.0, lambda _: 43
    await world.run(MINUTES)
    world.fails, world.coming = 0.0, lambda _: 2
    await world.run(30 * MINUTES)
    failed = [one for one in await world.store.flows(0, world.now, span=3600 * SECOND) if one.failed]
    assert sum(one.failed for one in failed) >= 2500
    assert world.fired == {"dead_letter_rate"}
    for channel in CHANNELS:
        *first, last = [one.kind for one in await world.told(channel.name)]
        assert 1 <= len(first) <= 2
        assert (first[0], last, first.count(Kind.RESOLVED)) == (Kind.ALERT, Kind.RESOLVED, 0)


async def some_failures(world: Watched) -> None:
    """One of fifty fails, and completed tasks are deleted at once."""
    world.comes, world.slots, world.fails = 3.0, 6, 0.02

    async def each(_: int) -> None:
        await world.store.prune(by(state="completed"), limit=1000)

    world.each = each


async def retried_letters(world: Watched) -> None:
    """Dead letters of three days ago are retried, and succeed."""
    world.slots, world.fails = 300, 1.0
    await World.start(world)
    await world.add(300)
    await world.run(5)
    await world.stop()
    world.store.time.advance(3 * 24 * 3600)
    world.comes, world.slots, world.fails = 1.0, 6, 0.0

    async def each(second: int) -> None:
        if second == 10 * MINUTES:
            assert (await world.store.retry(by(state="failed"))).changed == 300

    world.each = each


async def deploys(world: Watched) -> None:
    """The manager is replaced, and tasks wait meanwhile."""
    world.comes, world.slots = 1.0, 6

    async def each(second: int) -> None:
        if second % (10 * MINUTES) == 300:
            await world.stop()
        elif second % (10 * MINUTES) == 330:
            await world.start()

    world.each = each


async def night_batch(world: Watched) -> None:
    """A batch is as old as it is, and its items run beside the usual tasks."""
    world.comes, world.slots = 1.0, 10
    await world.store.register([world.handler])
    items = [world.store.new("job", queue="work") for _ in range(1500)]
    await world.store.create_batch(NewBatch(id=world.store.new_id()), items)
    world.store.time.advance(2 * 3600)


async def crashes_now_and_then(world: Watched) -> None:
    """A worker crashes twice in half an hour, and is started again."""
    world.comes, world.slots, world.crashes = 2.0, 6, 1

    async def each(second: int) -> None:
        down = second % (15 * MINUTES) in range(300, 320)
        world.states = {0: WorkerState.RESTARTING} if down else {}

    world.each = each


LOADS: tuple[Callable[[Watched], Awaitable[None]], ...] = (
    *HEALTHY,
    some_failures,
    retried_letters,
    deploys,
    night_batch,
    crashes_now_and_then,
)


@pytest.mark.parametrize("load", LOADS)
async def test_30_healthy_minutes_are_no_alert(load: Callable[[Watched], Awaitable[None]]) -> None:
    world = Watched()
    await load(world)
    await world.start()
    await world.run(30 * MINUTES)
    assert world.fired == set()
    assert [await world.told(one.name) for one in CHANNELS] == [[], []]
    assert world.processed > 50
