"""Firing, declaring and publishing by many at once, in a caller's transaction, and with a crash at every place."""

import asyncio

import psycopg
import pytest
from msgspec.structs import replace

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader
from pitboss.model.event import NewEvent, Published, Subscription
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.schedule import Firing, Schedule, ScheduleChange, ScheduleSpec, firing
from pitboss.model.session import SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Task
from tests.engines.postgres.test_failpoints import Crash, Trap
from tests.engines.postgres.yard import Yard

pytestmark = pytest.mark.fresh_loop(limit=90)

_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def trap() -> Trap:
    return Trap()


@pytest.fixture
def yard(postgres_dsn: str, trap: Trap) -> Yard:
    return Yard(postgres_dsn, failpoint=trap)


def _every(name: str, seconds: int = 60) -> ScheduleSpec:
    return ScheduleSpec(name=name, handler="job", every=seconds * SECOND)


def _firing(schedule: Schedule) -> Firing:
    assert schedule.next_at is not None
    made = firing(schedule, None, schedule.next_at, {})
    assert made is not None
    return made


async def _firings(yard: Yard, number: int) -> list[Firing]:
    return [_firing(await yard.engine.put_schedule(_every(f"s{n:02}"))) for n in range(number)]


async def test_a_tick_is_fired_once_though_many_leaders_believe_in_their_term(yard: Yard) -> None:
    engines = await yard.open_many(4)
    first = await yard.engine.campaign(yard.session.number)
    made = await _firings(yard, 20)
    successor = await yard.engine.open_session(SessionInfo(host="there", ttl=60 * SECOND))

    async def fire(engine: PostgresEngine, term: int) -> list[bool] | NotLeader:
        try:
            return await engine.fire(made, term=term)
        except NotLeader as error:
            return error

    async def take_over() -> None:
        await yard.engine.end_session(yard.session.number)
        term = (await yard.engine.campaign(successor.number)).term
        assert term == first.term + 1
        await asyncio.gather(*(fire(engine, term) for engine in engines))

    answers = await asyncio.gather(*(fire(engine, first.term) for engine in engines), take_over())
    assert sum(sum(answer) for answer in answers if isinstance(answer, list)) in (0, 20)
    schedules = await yard.engine.schedules()
    assert [(one.fired, one.version) for one in schedules] == [(1, 2)] * 20
    assert (await yard.engine.count(EVERYTHING)).number == 20
    assert await yard.count(_DEADLOCKS) == 0
    await yard.assert_figures()


async def test_a_task_that_another_call_puts_meanwhile_is_met(yard: Yard, postgres_dsn: str) -> None:
    """A leader that was cut off put it, and its commit comes late."""
    lead = await yard.engine.campaign(yard.session.number)
    (made,) = await _firings(yard, 1)
    made = replace(made, tasks=tuple(replace(task, unique=None) for task in made.tasks))
    with psycopg.connect(postgres_dsn) as other:
        yard.engine.put_within(other, made.tasks)
        firing_now = asyncio.create_task(yard.engine.fire([made], term=lead.term))
        await _until_waiting(yard)
        other.commit()
    assert await firing_now == [True]
    (schedule,) = await yard.engine.schedules()
    assert (schedule.fired, schedule.skipped) == (0, 1)


async def _until_waiting(yard: Yard) -> None:
    for _ in range(2000):
        if await yard.count("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("no connection waits")


async def test_a_change_during_the_firing_is_not_lost(yard: Yard) -> None:
    lead = await yard.engine.campaign(yard.session.number)
    other = await yard.open()
    for number in range(20):
        name = f"n{number}"
        made = _firing(await yard.engine.put_schedule(_every(name)))
        (fired,), changed = await asyncio.gather(
            yard.engine.fire([made], term=lead.term), other.change_schedule(name, ScheduleChange(paused=True))
        )
        (schedule,) = await yard.engine.schedules([name])
        assert changed is not None
        assert (schedule.paused, schedule.fired, schedule.version) == (True, fired, 2 + fired)


async def test_declarations_at_once(yard: Yard) -> None:
    """Of several versions one counts as a whole, and apps that share queues and schedules do not wait in a circle."""
    engines = await yard.open_many(6)
    versions = [
        Declared(
            app=app,
            queues={f"q{(number + n) % 5}": QueueSettings(capacity=number) for n in range(3)},
            schedules=tuple(_every(f"{app}{n}", number + 1) for n in range(number)),
            subscriptions=(Subscription(handler="job", pattern=f"v{number}"),),
        )
        for number in range(1, 4)
        for app in ("a", "b")
    ]
    sessions = [await engine.open_session(SessionInfo(host="x", ttl=60 * SECOND)) for engine in engines]
    for _ in range(5):
        calls = zip(engines, versions, sessions, strict=True)
        await asyncio.gather(*(engine.declare(one, session=session.number) for engine, one, session in calls))
    schedules = await yard.engine.schedules()
    for declared in await yard.engine.declarations():
        number = len([one for one in schedules if one.app == declared.app])
        assert declared.subscriptions == (Subscription(handler="job", pattern=f"v{number}"),)
        assert {one.capacity for one in declared.queues.values()} == {number}
    assert await yard.count(_DEADLOCKS) == 0


async def test_declaring_beside_firing_and_putting(yard: Yard) -> None:
    """A put creates queues that the app declares, while the schedules that the app declares fire."""
    engines = await yard.open_many(3)
    lead = await yard.engine.campaign(yard.session.number)
    for number in range(15):
        specs = tuple(replace(_every(f"s{n}"), queue=f"q{number}-{n}", priority=number) for n in range(5))
        queues = {f"q{number}-{n}": QueueSettings(capacity=100) for n in range(5)}
        made = [_firing(one) for one in await yard.engine.schedules()]
        await asyncio.gather(
            engines[0].declare(Declared(app="a", schedules=specs, queues=queues), session=yard.session.number),
            engines[1].fire(made, term=lead.term),
            engines[2].put([yard.new(queue=f"q{number}-{n}") for n in (4, 2, 0, 1, 3)]),
        )
    assert await yard.count(_DEADLOCKS) == 0
    await yard.assert_figures()


async def _subscribe(yard: Yard, *subscriptions: Subscription) -> None:
    await yard.engine.register([HandlerInfo(name=one.handler) for one in subscriptions])
    assert await yard.engine.declare(Declared(app="a", subscriptions=subscriptions), session=yard.session.number)


def _event(yard: Yard, key: str | None = None) -> NewEvent:
    return NewEvent(id=yard.new().id, name="x", key=key)


async def test_an_event_that_many_publish_at_once_is_stored_once(yard: Yard) -> None:
    await _subscribe(yard, Subscription(handler="job", pattern="x"), Subscription(handler="b", pattern="*"))
    engines = await yard.open_many(6)
    events = [_event(yard) for _ in range(30)]
    orders = [events if number % 2 else events[::-1] for number in range(6)]
    answers = await asyncio.gather(*(one.publish(order) for one, order in zip(engines, orders, strict=True)))
    said = [published for answer in answers for published in answer]
    assert sum(one.created for one in said) == 30
    assert {one.handlers for one in said} == {("b", "job")}
    assert (await yard.engine.count(EVERYTHING)).number == 60
    assert await yard.count(_DEADLOCKS) == 0
    await yard.assert_figures()


async def test_a_large_publish_keeps_the_order_of_each_key(yard: Yard) -> None:
    await _subscribe(
        yard, Subscription(handler="job", pattern="x", ordered=True), Subscription(handler="b", pattern="x")
    )
    events = [_event(yard, key=f"k{number % 3}") for number in range(700)]
    assert all(one.created for one in await yard.engine.publish(events))
    assert (await yard.engine.count(by(task="job", state="pending"))).number == 3
    assert (await yard.engine.count(by(task="job", state="held"))).number == 697
    assert (await yard.engine.count(by(task="b", state="pending"))).number == 700
    assert [one.created for one in await yard.engine.publish([*events, _event(yard)])] == [False] * 700 + [True]


async def test_an_event_whose_tasks_outlived_it_meets_them(yard: Yard) -> None:
    await _subscribe(yard, Subscription(handler="job", pattern="x"))
    event = _event(yard)
    await yard.engine.publish([event])
    assert await yard.engine.prune_events(yard.engine.clock.now() + SECOND) == 1
    assert await yard.engine.publish([event]) == [Published(event.id, True, ("job",))]
    assert (await yard.engine.count(EVERYTHING)).number == 1


async def test_publishing_in_a_caller_s_transaction(yard: Yard) -> None:
    await _subscribe(yard, Subscription(handler="job", pattern="x", ordered=True))
    kept, dropped, later = _event(yard, "k"), _event(yard, "k"), _event(yard, "k")
    with psycopg.connect(yard.dsn) as connection:
        assert yard.engine.publish_within(connection, [kept]) == [Published(kept.id, True, ("job",))]
        assert await yard.engine.events([kept.id]) == []
        connection.commit()
        yard.engine.publish_within(connection, [dropped])
        connection.rollback()
    async with await psycopg.AsyncConnection.connect(yard.dsn) as connection:
        assert await yard.engine.publish_within(connection, [later, kept]) == [
            Published(later.id, True, ("job",)),
            Published(kept.id, False, ("job",)),
        ]
        await connection.commit()
    assert [one.id for one in await yard.engine.events()] == [later.id, kept.id]
    states = [task.state for event in (kept, later) for task in await _tasks(yard, event)]
    assert states == [State.PENDING, State.HELD]
    assert await yard.engine.wait(["default"], 5)


async def _tasks(yard: Yard, event: NewEvent) -> list[Task]:
    (stored,) = await yard.engine.events([event.id])
    return [task for task in await yard.engine.get(stored.task_ids()) if task is not None]


@pytest.mark.parametrize(("place", "done"), [("before", 0), ("commit", 0), ("after", 1)])
async def test_a_crash_leaves_all_of_a_call_or_nothing(yard: Yard, trap: Trap, place: str, done: int) -> None:
    engine = yard.engine
    lead = await engine.campaign(yard.session.number)
    (made,) = await _firings(yard, 1)
    trap.place = f"fire.{place}"
    with pytest.raises(Crash):
        await engine.fire([made], term=lead.term)
    assert [one.fired for one in await engine.schedules()] == [done]
    assert (await engine.count(EVERYTHING)).number == done
    trap.place = f"declare.{place}"
    with pytest.raises(Crash):
        await _subscribe(yard, Subscription(handler="b", pattern="x"))
    assert len(await engine.declarations()) == done
    await _subscribe(yard, Subscription(handler="b", pattern="x"))
    trap.place = f"publish.{place}"
    with pytest.raises(Crash):
        await engine.publish([_event(yard)])
    assert len(await engine.events()) == (await engine.count(by(task="b"))).number == done
