"""A manager declares what its app declares, for each session, and again while a newer version of the app runs."""

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from pitboss.engines.capabilities import check_needs
from pitboss.engines.memory import MemoryEngine
from pitboss.manager.announcer import Announcer
from pitboss.manager.declarer import AGAIN_SECONDS, Declarer, refuse_namesake, taken_schedules
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, StoreUnavailable, Unsupported
from pitboss.model.event import Subscription
from pitboss.model.partition import Partitioning
from pitboss.model.queue import QueueSettings
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.session import SessionInfo
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual

OLD = Declared(app="shop", queues={"q": QueueSettings(capacity=1)})
NEW = Declared(app="shop", queues={"q": QueueSettings(capacity=2)})


class Store(MemoryEngine):
    """Raises StoreUnavailable while it is down."""

    away = False

    async def declare(self, declared: Declared, *, session: int | None = None) -> bool:
        if self.away:
            raise StoreUnavailable("no answer")
        return await super().declare(declared, session=session)

    async def session(self) -> int:
        return (await self.open_session(SessionInfo(host="here", ttl=1000 * SECOND))).number

    async def capacity(self) -> int | None:
        return (await self.queues())[0].capacity


def test_the_newer_version_counts_until_it_ends() -> None:
    said: list[str] = []

    async def main() -> None:
        store = Store(clock=clock)
        old, new = (Declarer(store, declared, announcer=Announcer(said.append, FakeClock())) for declared in (OLD, NEW))
        await old.open(await store.session())
        newer = await store.session()
        await new.open(newer)
        # The old one is started again: that is no rollback.
        await old.open(await store.session())
        assert await store.capacity() == 2
        running = asyncio.create_task(old.run())
        await asyncio.sleep(5 * AGAIN_SECONDS)
        assert said[1:] == [
            "a newer version of this app runs: its schedules and subscriptions count",
            "queue q: what the newer version declares counts: capacity 2, not 1",
        ]
        await store.end_session(newer)
        store.away = True
        await asyncio.sleep(2 * AGAIN_SECONDS)
        store.away = False
        await asyncio.sleep(AGAIN_SECONDS)
        assert await store.capacity() == 1
        assert len(said) == 5
        assert "capacity 2 → 1" in said[4]
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    clock = FakeClock()
    run_virtual(main(), clock=clock, limit="1h")


def divided(partitions: Partitioning) -> Declared:
    return Declared(app="shop", queues={"q": QueueSettings(partitions=partitions)})


async def test_a_manager_is_told_that_its_partitions_do_not_count() -> None:
    """A manager in mode balanced beside a newer one in mode static worked by the table, and nothing said so."""
    said: list[str] = []
    store = Store(clock=FakeClock())
    balanced = divided(Partitioning(by="{state}", mode="balanced"))
    static = divided(Partitioning(by="{state}", mode="static", table={0: ("CA",), 1: ("TX",)}))
    swapped = divided(Partitioning(by="{state}", mode="static", table={0: ("TX",), 1: ("CA",)}))
    for declared in (balanced, static, swapped, balanced):
        await Declarer(store, declared, announcer=Announcer(said.append, FakeClock())).open(await store.session())
    by_table = "(by {state}, static: 2 slots, 2 keys; missing slots: hold)"
    assert said == [
        f"queue q: what this app declares changes its settings: partitions (by {{state}}, balanced) → {by_table}",
        f"queue q: what this app declares changes its settings: partitions {by_table} → with another table",
        "a newer version of this app runs: its schedules and subscriptions count",
        f"queue q: what the newer version declares counts: partitions {by_table}, not (by {{state}}, balanced)",
    ]


async def test_an_app_that_changes_a_queue_of_another_app_says_so() -> None:
    said: list[str] = []
    store = Store(clock=FakeClock())
    for declared in (OLD, replace(NEW, app="post")):
        await Declarer(store, declared, announcer=Announcer(said.append, FakeClock())).open(await store.session())
    assert said == ["queue q: what this app declares changes its settings: capacity 1 → 2"]


def test_a_reload_declares_what_the_new_code_says() -> None:
    said: list[str] = []

    async def main() -> None:
        store = Store(clock=FakeClock())
        declarer = Declarer(store, None, announcer=Announcer(said.append, FakeClock()))
        await declarer.open(await store.session())
        assert await store.queues() == []
        await declarer.change(OLD)
        assert await store.capacity() == 1
        assert said == []
        await declarer.change(NEW)
        assert await store.capacity() == 2
        assert said == ["queue q: what this app declares changes its settings: capacity 1 → 2"]

    asyncio.run(main())


def test_before_the_first_session_nothing_is_declared() -> None:
    async def main() -> None:
        store = Store(clock=FakeClock())
        await Declarer(store, OLD, announcer=Announcer(print, FakeClock())).change(NEW)
        assert await store.declarations() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    "running",
    [
        Declared(app="shop", subscriptions=(Subscription(handler="book", pattern="paid"),)),
        Declared(app="shop", schedules=(ScheduleSpec(name="nightly", handler="book", every=SECOND),)),
    ],
    ids=["subscription", "schedule"],
)
async def test_an_app_that_shares_only_its_name_with_a_running_one_is_refused(running: Declared) -> None:
    """It withdrew the schedules and subscriptions of the other app, as a newer version of it does."""
    store = Store(clock=FakeClock())
    info = SessionInfo(host="here", handlers=("book", "count"), ttl=1000 * SECOND)
    session = (await store.open_session(info)).number
    await store.declare(running, session=session)
    with pytest.raises(InvalidInput, match=r'another app named "shop"[\s\S]*book[\s\S]*App\(name='):
        await refuse_namesake(store, NEW, {"mail"})
    await refuse_namesake(store, NEW, {"mail", "book"})
    await refuse_namesake(store, Declared(app="post"), {"mail"})
    await store.end_session(session)
    await refuse_namesake(store, NEW, {"mail"})


class Bare:
    """A store without any of the optional protocols."""

    name = "bare"


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (Declared(app="a", queues={"mail": QueueSettings(capacity=1)}), "mail"),
        (Declared(app="a", schedules=(ScheduleSpec(name="nightly", handler="job", every=SECOND),)), "nightly"),
        (Declared(app="a", subscriptions=(Subscription(handler="greet", pattern="user.signup"),)), "greet"),
    ],
)
def test_an_app_that_declares_more_than_its_engine_keeps_is_refused(declared: Declared, named: str) -> None:
    with pytest.raises(Unsupported, match=named):
        check_needs(Bare(), [], [], declared)
    check_needs(MemoryEngine(clock=FakeClock()), [], [], declared)


def test_an_app_that_declares_nothing_runs_on_any_engine() -> None:
    check_needs(Bare(), [], [], Declared(app="a", queues={"default": QueueSettings()}))


async def test_a_schedule_that_two_apps_declare_is_named() -> None:
    store = Store(clock=FakeClock(0))
    tick = ScheduleSpec(name="tick", handler="tick", every=60 * SECOND)
    own = ScheduleSpec(name="own", handler="tick", every=60 * SECOND)
    await store.declare(Declared(app="first", schedules=(tick,)))
    second = Declared(app="second", schedules=(tick, own))
    assert await taken_schedules(store, second) == {"tick": "first"}
    await store.declare(second)
    assert await taken_schedules(store, second) == {}
