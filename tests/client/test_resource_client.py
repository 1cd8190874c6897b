"""Waiting until a member of a pool is free."""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any

import pytest

from pitboss.client.resource_client import ResourceClient
from pitboss.engines.memory.engine import MemoryEngine
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import BudgetSpent, TimedOutWaiting
from pitboss.model.limits import Window
from pitboss.model.resource import Limits, NewResource, PoolRules, Resource, Want
from pitboss.testing.clock import START, FakeClock
from pitboss.testing.virtual import run_virtual

POOL = "proxies"


class Pool:
    """A client at a store with one member; sleeping moves the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.client = ResourceClient(self.engine, self.clock)
        self.naps: list[Span] = []
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.naps.append(round(seconds * SECOND))
        self.clock.advance(seconds)

    async def open(self, every: Span) -> None:
        """Its member is in use, and may be used once in `every`."""
        limits = Limits(windows=(Window(1, every),), concurrency=9, use_within=0)
        await self.engine.declare_pool(POOL, PoolRules(limits=limits))
        await self.client.add(POOL, [NewResource(name="p1")])
        await self.acquired("first", wait=0)

    async def acquired(self, lease: str, wait: Span) -> Moment:
        """The moment at which it was acquired."""
        await self.client.acquire(POOL, Want(), lease=lease, hold=60 * SECOND, wait=wait)
        return self.clock.now()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    return Pool(monkeypatch)


async def test_those_who_wait_for_one_moment_do_not_wake_together(pool: Pool) -> None:
    await pool.open(SECOND)
    for number in range(8):
        await pool.acquired(f"lease-{number}", wait=10 * SECOND)
    late = [nap - SECOND for nap in pool.naps]
    assert len(late) == 8, "none of them woke too early"
    assert len(set(late)) > 4
    assert all(0 <= one < 20_000 for one in late)


async def test_the_same_lease_wakes_at_the_same_moment_whenever_it_is_asked(pool: Pool) -> None:
    await pool.open(SECOND)
    await pool.acquired("anna", wait=10 * SECOND)
    await pool.client.release("anna", None)
    await pool.acquired("anna", wait=10 * SECOND)
    assert pool.naps[0] == pool.naps[1]


async def test_a_short_nap_is_lengthened_by_a_part_of_itself_only(pool: Pool) -> None:
    await pool.open(8_000)
    for number in range(8):
        await pool.acquired(f"lease-{number}", wait=SECOND)
    assert all(8_000 <= nap <= 10_000 for nap in pool.naps)


async def test_spreading_waits_no_longer_than_it_may(pool: Pool) -> None:
    await pool.open(SECOND)
    began = pool.clock.now()
    assert await pool.acquired("in time", wait=SECOND) == began + SECOND
    with pytest.raises(TimedOutWaiting) as caught:
        await pool.acquired("late", wait=SECOND // 2)
    assert pool.clock.now() == began + SECOND + SECOND // 2
    assert not isinstance(caught.value, BudgetSpent)


async def test_a_use_that_comes_too_late_says_that_the_budget_is_spent(pool: Pool) -> None:
    await pool.open(SECOND)
    with pytest.raises(BudgetSpent, match="no member of proxies"):
        await pool.client.use("first", None, wait=SECOND // 2)
    assert await pool.client.use("first", None, wait=SECOND)


async def test_a_use_that_cannot_come_in_time_is_refused_at_once(pool: Pool) -> None:
    """Its task goes to another member instead of waiting for one that is away for an hour."""
    await pool.open(3600 * SECOND)
    began = pool.clock.now()
    with pytest.raises(BudgetSpent):
        await pool.client.use("first", None, wait=60 * SECOND)
    assert pool.clock.now() == began


class Slow:
    """A store that delays its answers about uses by these seconds, one after the other; later answers come at once."""

    def __init__(self, engine: MemoryEngine, *late: float) -> None:
        self._engine, self._late = engine, list(late)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def acquire(self, *arguments: Any, **named: Any) -> Any:
        return await self._later(self._engine.acquire(*arguments, **named))

    async def use(self, *arguments: Any, **named: Any) -> Any:
        return await self._later(self._engine.use(*arguments, **named))

    async def _later(self, work: Coroutine[Any, Any, Any]) -> Any:
        answer = await work
        await asyncio.sleep(self._late.pop(0) if self._late else 0)
        return answer


def slowly(*late: float) -> tuple[Moment, Resource]:
    """When a second use of a lease was granted, from the start of the test, and its member after that."""

    clock = FakeClock()

    async def work() -> tuple[Moment, Resource]:
        engine = MemoryEngine(clock=clock)
        client = ResourceClient(Slow(engine, *late), clock)
        limits = Limits(windows=(Window(9, 60 * SECOND),), concurrency=9, guard=50_000)
        await engine.declare_pool(POOL, PoolRules(limits=limits))
        await client.add(POOL, [NewResource(name="p1")])
        began = clock.now()
        leased = await client.acquire(POOL, Want(), lease="l", hold=60 * SECOND, wait=SECOND)
        used = await client.use("l", None, wait=SECOND, guard=leased.guard)
        (member,) = await client.members(POOL)
        return used.moment - began, member

    return run_virtual(work(), clock=clock)


def test_answers_in_time_are_made_use_of() -> None:
    used, member = slowly(0.02, 0.02)
    assert (used, member.record.uses) == (20_000, 2)


def test_a_lease_that_comes_late_is_used_from_then_on() -> None:
    used, member = slowly(0.2)
    assert (used, member.record.uses) == (200_000, 2)
    assert member.last_used_at == used + START


def test_a_use_that_is_answered_late_is_moved() -> None:
    used, member = slowly(0, 0.2, 0.1)
    assert (used, member.record.uses) == (300_000, 2)


def test_a_store_that_is_always_late_is_not_asked_forever() -> None:
    used, member = slowly(0, *[1] * 20)
    assert (used, member.record.uses) == (8_000_000, 2)


@pytest.mark.parametrize("late", [0, 0.2])
def test_a_lease_says_when_it_was_asked_for(late: float) -> None:
    """Its clients know by that how old its use is."""
    clock = FakeClock()

    async def work() -> float | None:
        engine = MemoryEngine(clock=clock)
        await engine.declare_pool(POOL, PoolRules(limits=Limits(windows=(Window(9, 60 * SECOND),), guard=50_000)))
        client = ResourceClient(Slow(engine, late), clock)
        await client.add(POOL, [NewResource(name="p1")])
        return (await client.acquire(POOL, Want(), lease="l", hold=60 * SECOND, wait=SECOND)).asked

    before = monotonic()
    asked = run_virtual(work(), clock=clock)
    assert asked is not None
    assert before <= asked <= monotonic()
