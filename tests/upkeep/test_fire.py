"""Firing in virtual time, on the memory engine: once per tick, whatever happens to leaders and clocks."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from pitboss.engines.memory import MemoryEngine
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.meta import read_meta
from pitboss.model.queue import HandlerInfo
from pitboss.model.schedule import Catchup, Firing, Overlap, ScheduleChange, ScheduleSpec
from pitboss.model.session import SessionInfo
from pitboss.model.task import Task
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.duties import Duty, repeat
from pitboss.upkeep.fire import LOOK_SECONDS, Firer

MINUTE = 60 * SECOND
LONG = 1000 * 86_400 * SECOND
# Soon after the full second, so that no tick falls on a look.
PART = 0.3


class Store(MemoryEngine):
    """Notes when it was asked, and what was fired."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.looks = self.registry_reads = 0
        self.acts: list[int] = []
        self.away = False

    async def due_schedules(self, limit: int = 1000) -> Any:
        self.looks += 1
        if self.away:
            raise StoreUnavailable("no answer")
        return await super().due_schedules(limit)

    async def fire(self, firings: Sequence[Firing], *, term: int) -> list[bool]:
        self.acts.append(len(firings))
        return await super().fire(firings, term=term)

    async def handlers(self) -> list[HandlerInfo]:
        self.registry_reads += 1
        return await super().handlers()


class World:
    """A store, and leaders one after the other."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.store = clock, Store(clock)
        self.said: list[str] = []
        self._leaders: list[asyncio.Task[None]] = []

    async def lead(self) -> int:
        """Another manager takes the lead; its term."""
        session = await self.store.open_session(SessionInfo(host="here", handlers=("job",), ttl=LONG))
        leader = await self.store.leader()
        if leader is not None:
            await self.store.resign(leader.session)
        return (await self.store.campaign(session.number)).term

    @contextmanager
    def firing(self, term: int, store: MemoryEngine | None = None) -> Iterator[None]:
        """A manager that believes to lead under this term."""
        used = store or self.store
        firer = Firer(used, used, self.clock, warn=self.said.append)
        duty = Duty("fire", LOOK_SECONDS, firer.fire)
        work = asyncio.create_task(repeat(duty, term=lambda: term, warn=self.said.append))
        try:
            yield
        finally:
            work.cancel()

    async def add(self, name: str = "s", **options: Any) -> Moment:
        """Its first tick. By default it ticks every minute, and neither skips nor drops any."""
        usual: dict[str, Any] = {"overlap": Overlap.ALLOW, "catchup": Catchup.ALL}
        timed = {"cron", "every", "at"} & options.keys()
        spec = ScheduleSpec(**{"name": name, "handler": "job"} | ({} if timed else {"every": MINUTE}) | usual | options)
        return (await self.store.put_schedule(spec)).next_at or 0

    async def tasks(self) -> list[Task]:
        return list((await self.store.find(EVERYTHING, limit=100_000, oldest_first=True)).tasks)

    async def ticks(self, name: str = "s") -> list[Moment]:
        marks = [read_meta(task.meta).tick for task in await self.tasks()]
        return sorted(mark.scheduled_for for mark in marks if mark is not None and mark.schedule == name)

    async def late(self) -> float:
        """The seconds between the newest tick and its task."""
        task = max(await self.tasks(), key=lambda task: task.created_at)
        mark = read_meta(task.meta).tick
        assert mark is not None
        return (task.created_at - mark.scheduled_for) / SECOND


def play(scene: Callable[[World], Awaitable[None]], start: Moment | None = None) -> None:
    clock = FakeClock() if start is None else FakeClock(start)

    async def main() -> None:
        world = World(clock)
        await world.store.register([HandlerInfo(name="job", queue="jobs")])
        await scene(world)

    run_virtual(main(), clock=clock, limit="400d")


def every(first: Moment, count: int, period: int = MINUTE) -> list[Moment]:
    return [first + n * period for n in range(count)]


def test_a_tick_is_fired_on_time_in_the_queue_of_its_handler() -> None:
    async def scene(world: World) -> None:
        first = await world.add()
        with world.firing(await world.lead()):
            await asyncio.sleep(60 + PART)
            (task,) = await world.tasks()
            assert (task.queue, await world.ticks()) == ("jobs", [first])
            assert await world.late() < 0.01

    play(scene)


def test_every_second_each_tick_comes_on_time() -> None:
    async def scene(world: World) -> None:
        first = await world.add(every=SECOND)
        with world.firing(await world.lead()):
            await asyncio.sleep(PART)
            for _ in range(100):
                await asyncio.sleep(1)
                assert await world.late() < 0.05
            assert await world.ticks() == every(first, 100, SECOND)

    play(scene)


def test_a_schedule_that_is_added_meanwhile_is_noticed() -> None:
    async def scene(world: World) -> None:
        await world.add(every=3600 * SECOND)
        with world.firing(await world.lead()):
            await asyncio.sleep(10.5)
            at = world.clock.wall() + 200_000
            await world.add("once", at=at)
            await asyncio.sleep(1.2)
            assert await world.ticks("once") == [at]

    play(scene)


def test_looking_costs_one_read_a_second() -> None:
    async def scene(world: World) -> None:
        await world.add(every=3600 * SECOND)
        with world.firing(await world.lead()):
            await asyncio.sleep(100.5)
            assert 95 <= world.store.looks <= 105

    play(scene)


def test_leaders_follow_each_other_and_no_tick_is_doubled_or_missed() -> None:
    async def scene(world: World) -> None:
        first = await world.add(every=SECOND)
        for number in range(10):
            with world.firing(await world.lead()):
                await asyncio.sleep(5.35 + number / 10)
            await asyncio.sleep(2.6)
        with world.firing(await world.lead()):
            await asyncio.sleep(1.5)
        ticks = await world.ticks()
        assert ticks == every(first, len(ticks), SECOND)
        assert ticks[-1] > world.clock.wall() - 2 * SECOND

    play(scene)


def test_a_leader_of_an_old_term_fires_nothing() -> None:
    async def scene(world: World) -> None:
        await world.add()
        old = await world.lead()
        new = await world.lead()
        with world.firing(old):
            await asyncio.sleep(200)
            assert await world.tasks() == []
            assert world.store.acts
            with world.firing(new):
                await asyncio.sleep(200)
        counted = Counter(await world.ticks())
        assert len(counted) == 6
        assert set(counted.values()) == {1}
        assert world.said == []

    play(scene)


@pytest.mark.parametrize(
    ("catchup", "away", "made", "missed"),
    [
        (Catchup.ALL, "1h", 60, 0),
        (Catchup.LAST, "1h", 1, 59),
        (Catchup.NONE, "1h", 1, 59),
        # The newest tick of an hourly schedule is 30 minutes old by then: too old for "none".
        (Catchup.NONE, "150m", 0, 2),
        (Catchup.LAST, "150m", 1, 1),
        (Catchup.ALL, "150m", 2, 0),
    ],
)
def test_what_becomes_of_ticks_while_no_manager_ran(catchup: Catchup, away: str, made: int, missed: int) -> None:
    async def scene(world: World) -> None:
        period = MINUTE if away == "1h" else 60 * MINUTE
        await world.add(every=period, catchup=catchup)
        world.clock.advance(away)
        with world.firing(await world.lead()):
            await asyncio.sleep(2)
            assert len(await world.tasks()) == made
            (schedule,) = await world.store.schedules()
            assert (schedule.fired, schedule.missed) == (made, missed)
            assert schedule.next_at is not None
            assert schedule.next_at > world.clock.wall()

    play(scene)


def test_a_day_of_missed_seconds_is_made_up_for_in_one_go() -> None:
    async def scene(world: World) -> None:
        first = await world.add(every=10 * SECOND)
        world.clock.advance("1d")
        with world.firing(await world.lead()):
            await asyncio.sleep(1.5)
        ticks = await world.ticks()
        assert ticks == every(first, 8640, 10 * SECOND)

    play(scene)


def moment(text: str) -> Moment:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def test_a_skipped_and_a_repeated_hour() -> None:
    """In Prague, 02:30 does not exist on 29 March 2026, and exists twice on 25 October 2026."""

    async def scene(world: World) -> None:
        await world.add("night", cron="30 2 * * *", tz="Europe/Prague")
        await world.add("often", cron="*/30 * * * *", tz="Europe/Prague")
        with world.firing(await world.lead()):
            await asyncio.sleep(42 * 3600 + PART)
        days = [tick // (86_400 * SECOND) for tick in await world.ticks("night")]
        assert len(days) == len(set(days)) == 2
        often = await world.ticks("often")
        assert often == every(often[0], 84, 30 * MINUTE)

    play(scene, moment("2026-03-28T12:00:00"))
    play(scene, moment("2026-10-24T12:00:00"))


def test_a_paused_one_waits() -> None:
    async def scene(world: World) -> None:
        await world.add()
        await world.store.change_schedule("s", ScheduleChange(paused=True))
        with world.firing(await world.lead()):
            await asyncio.sleep(300 + PART)
            assert await world.tasks() == []
            await world.store.change_schedule("s", ScheduleChange(paused=False))
            await asyncio.sleep(60)
            assert len(await world.tasks()) == 1

    play(scene)


def test_a_wall_clock_that_is_set_ahead_is_noticed_within_a_second() -> None:
    async def scene(world: World) -> None:
        first = await world.add(every=3600 * SECOND)
        with world.firing(await world.lead()):
            await asyncio.sleep(5 + PART)
            world.clock.set_wall("1h")
            await asyncio.sleep(1)
            assert await world.ticks() == [first]

    play(scene)


def test_ticks_do_not_come_again_when_the_wall_clock_is_set_back() -> None:
    async def scene(world: World) -> None:
        first = await world.add()
        with world.firing(await world.lead()):
            await asyncio.sleep(300 + PART)
            world.clock.set_wall("200s", back=True)
            await asyncio.sleep(200)
            assert await world.ticks() == every(first, 5)
            await asyncio.sleep(60)
            assert await world.ticks() == every(first, 6)

    play(scene)


def test_thousands_that_are_due_at_once_fire_a_thousand_at_a_time() -> None:
    async def scene(world: World) -> None:
        at = world.clock.wall() + 60 * SECOND
        for number in range(2500):
            await world.add(f"s{number}", at=at)
        with world.firing(await world.lead()):
            await asyncio.sleep(60 + PART)
        assert world.store.acts == [1000, 1000, 500]
        assert len(await world.tasks()) == 2500
        assert world.store.registry_reads == 1

    play(scene)


def test_broken_ones_are_named_once_and_stop_no_other() -> None:
    """More of them than one act takes: they stay due, and are the first in line."""

    async def scene(world: World) -> None:
        for number in range(1200):
            name = f"broken{number}"
            await world.add(name, cron="* * * * *")
            row = world.store.tables.schedules[name]
            world.store.tables.schedules[name] = replace(row, declared=replace(row.declared, tz="Mars/Olympus"))
        first = await world.add("sound", every=61 * SECOND)
        with world.firing(await world.lead()):
            await asyncio.sleep(300)
            assert await world.ticks("sound") == every(first, 4, 61 * SECOND)
            assert len(world.said) == 1200
            assert "broken7" in "".join(world.said)
            assert "Mars/Olympus" in world.said[0]
            # Repaired by an operator, it fires.
            await world.store.change_schedule("broken7", ScheduleChange(changes={"tz": "UTC"}))
            await asyncio.sleep(61)
            assert await world.ticks("broken7")

    play(scene)


class Refusing(Store):
    """Cannot take the firings of one schedule."""

    refused: str | None = "bad"

    async def fire(self, firings: Sequence[Firing], *, term: int) -> list[bool]:
        if self.refused in [one.name for one in firings]:
            raise ValueError("a number too large\nfor its column")
        return await super().fire(firings, term=term)


def test_one_that_the_store_cannot_take_is_named_once_and_stops_no_other() -> None:
    """All schedules are put in one act: one that the store did not take stopped every other."""

    async def scene(world: World) -> None:
        store = world.store = Refusing(world.clock)
        await store.register([HandlerInfo(name="job")])
        first, _, _ = [await world.add(name) for name in ("a", "bad", "c")]
        with world.firing(await world.lead()):
            await asyncio.sleep(180 + PART)
            assert await world.ticks("a") == await world.ticks("c") == every(first, 3)
            assert await world.late() < 0.1
            assert await world.ticks("bad") == []
            assert world.said == [
                'the schedule "bad" is skipped (ValueError: a number too large; for its column)',
            ]
            # Repaired by an operator, it fires.
            store.refused = None
            await store.change_schedule("bad", ScheduleChange(changes={"priority": 1}))
            await asyncio.sleep(2)
            assert await world.ticks("bad") == every(first, 3)

    play(scene)


def test_a_handler_that_is_registered_later_is_found() -> None:
    async def scene(world: World) -> None:
        with world.firing(await world.lead()):
            await world.add("old", every=SECOND)
            await asyncio.sleep(3.5)
            await world.store.register([HandlerInfo(name="new", queue="elsewhere")])
            await world.add("new", handler="new", every=SECOND)
            await world.add("unknown", handler="unknown", every=SECOND)
            await asyncio.sleep(2)
        tasks = {task.handler: task.queue for task in await world.tasks()}
        assert tasks == {"job": "jobs", "new": "elsewhere", "unknown": "default"}

    play(scene)


def test_the_registry_is_read_every_few_seconds_only() -> None:
    async def scene(world: World) -> None:
        await world.add(every=SECOND)
        with world.firing(await world.lead()):
            await asyncio.sleep(20.5)
        assert 4 <= world.store.registry_reads <= 6

    play(scene)


def test_a_success_is_known_at_the_next_tick() -> None:
    async def scene(world: World) -> None:
        first = await world.add(overlap=Overlap.SKIP)
        with world.firing(await world.lead()):
            await asyncio.sleep(60 + PART)
            await world.store.cancel(by(state="pending"))
            await asyncio.sleep(60)
            (schedule,) = await world.store.schedules()
            assert (schedule.fired, schedule.last_success) == (2, None)
            assert [tick for tick, _ in schedule.open] == [first + MINUTE]

    play(scene)


def test_a_store_that_was_away_is_asked_again() -> None:
    async def scene(world: World) -> None:
        first = await world.add()
        with world.firing(await world.lead()):
            world.store.away = True
            await asyncio.sleep(150)
            world.store.away = False
            await asyncio.sleep(1 + PART)
            assert await world.ticks() == every(first, 2)
            assert world.said == []

    play(scene)


class Changing(Store):
    """An operator changes the schedule just before each of the first three firings."""

    changes = 3

    async def fire(self, firings: Sequence[Firing], *, term: int) -> list[bool]:
        if self.changes:
            self.changes -= 1
            await self.change_schedule(firings[0].name, ScheduleChange(changes={"priority": self.changes + 1}))
        return await super().fire(firings, term=term)


def test_a_change_at_the_moment_of_firing_delays_the_tick_only_a_little() -> None:
    async def scene(world: World) -> None:
        world.store = Changing(world.clock)
        await world.store.register([HandlerInfo(name="job")])
        await world.add()
        with world.firing(await world.lead()):
            await asyncio.sleep(60 + PART)
            (task,) = await world.tasks()
            assert task.priority == 1
            assert await world.late() < 0.1

    play(scene)
