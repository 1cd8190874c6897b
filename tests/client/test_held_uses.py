"""The uses of a held member: which are open, when they end, and which may have come too late."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from time import monotonic

import httpx
import pytest

from pitboss import App, Lease, Resources
from pitboss.client import held_uses, standstill
from pitboss.client.held_uses import HeldUses, caller
from pitboss.client.resource_client import Grant
from pitboss.client.standstill import Standstill
from pitboss.model.duration import SECOND
from pitboss.model.resource import Resource, UseEnd
from pitboss.testing.clock import FakeClock
from pitboss.testing.sandbox import sandbox

OPEN = 10 * SECOND


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(clock: FakeClock) -> Iterator[App]:
    app = App("sqlite:///never-opened.db")
    with sandbox(app, clock=clock):
        yield app


def one(app: App, **limits: object) -> Resources:
    pool = app.resources("proxies", **limits)  # type: ignore[arg-type]
    pool.add("p1")
    return pool


def member(pool: Resources) -> Resource:
    (found,) = pool.members()
    return found


def test_a_lease_that_is_given_back_ends_its_use(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="1/10s")
    with pool.lease() as lease:
        assert lease.use_end() == UseEnd(clock.now() + OPEN)
        assert member(pool).last_used_at == clock.now() + OPEN
        clock.advance(1)
    assert member(pool).last_used_at == clock.now()


@pytest.mark.parametrize("limits", [{}, {"rate": "1/10s", "guard": "1s"}, {"rate": "1/10s", "use_within": 0}])
def test_without_limits_that_look_back_and_with_a_guard_no_use_is_open(app: App, limits: dict[str, object]) -> None:
    pool = one(app, **limits)
    with pool.lease() as lease:
        assert lease.use_end() is None
        assert lease.leased.open_for == 0


def test_a_further_use_ends_the_one_before(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="9/10s", min_delay="1s")
    with pool.lease() as lease:
        clock.advance(3)
        # The sandbox moves its clock when limits say: wait. Ten seconds would pass if the first use were still open.
        assert lease.use_sync() == clock.now()
        began = clock.now()
        assert member(pool).last_used_at == began + OPEN
    assert member(pool).record.uses == 2


def test_a_use_that_was_not_made_yet_moves(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="1/10s")
    with pool.lease() as lease:
        clock.advance(30)
        assert lease.use_from_now_sync() == clock.now()
        assert lease.use_end() == UseEnd(clock.now() + OPEN)
    assert member(pool).record.uses == 1


async def both(lease: Lease) -> list[int]:
    """Two coroutines, each of which sends its request a while after its use was granted."""
    order: list[int] = []

    async def visit(number: int, granted: asyncio.Event, other: asyncio.Event) -> None:
        await lease.use()
        granted.set()
        await other.wait()
        order.append(number)

    first, second = asyncio.Event(), asyncio.Event()
    await asyncio.gather(visit(1, first, second), visit(2, second, first))
    return order


def test_a_use_of_another_coroutine_is_not_ended(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="9/10s")
    with pool.lease() as lease:
        clock.advance(1)
        asyncio.run(both(lease))
        ends = [use.at for use in lease.uses._open]
        assert len(ends) == 2, "both requests may still be on their way"
        assert min(ends) >= clock.now() + OPEN


def test_a_coroutine_of_the_handler_does_not_end_the_use_that_came_with_the_lease(app: App) -> None:
    pool = one(app, rate="9/10s")

    async def handler() -> int:
        async with pool.lease() as lease:
            held = HeldUses(pool, lease.leased, lease.id or "", None)
            await held.add(0, caller())
            return len(held._open)

    async def child() -> int:
        async with pool.lease() as lease:
            held = HeldUses(pool, lease.leased, lease.id or "", None)

            async def asks() -> None:
                await held.add(0, caller())

            await asyncio.create_task(asks())
            return len(held._open)

    assert asyncio.run(handler()) == 1, "the handler asks itself"
    assert asyncio.run(child()) == 2, "another coroutine may have sent the first request"


@pytest.mark.parametrize("error", [TimeoutError(), httpx.ReadTimeout("late"), asyncio.CancelledError()])
def test_a_request_that_may_be_on_its_way_keeps_its_use_open(app: App, error: BaseException) -> None:
    pool = one(app, rate="1/10s")
    lease = pool.acquire()
    open_until = member(pool).last_used_at
    pool.give_back(lease, error)
    assert member(pool).last_used_at == open_until


@pytest.mark.parametrize("error", [None, ValueError(), httpx.ConnectError("refused")])
def test_a_request_that_was_answered_or_never_sent_ends_its_use(
    app: App, clock: FakeClock, error: BaseException | None
) -> None:
    pool = one(app, rate="1/10s")
    lease = pool.acquire()
    clock.advance(1)
    pool.give_back(lease, error)
    assert member(pool).last_used_at == clock.now()


def test_a_request_without_an_answer_keeps_its_use_open(app: App) -> None:
    pool = one(app, rate="9/10s")
    with pool.lease() as lease:
        lease.request_unanswered(lease.grant_request_sync())
        assert lease.use_end() is None


def test_the_first_request_takes_the_use_that_came_with_the_lease(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="9/10s")
    with pool.lease() as lease:
        clock.advance(4)
        first = lease.grant_request_sync()
        assert (first.moment, member(pool).record.uses) == (clock.now(), 1)
        lease.request_sent(first)
        lease.request_answered(first)
        end = lease.use_end()
        assert end is not None
        assert end.at == first.moment + OPEN
        assert first.moment <= (end.ended or 0) < first.moment + SECOND
        clock.advance(4)
        second = lease.grant_request_sync()
        assert (second.moment, member(pool).record.uses) == (clock.now(), 2)
    # The first counts from when it was answered, though that was told with the second.
    clock.advance_to(first.moment + 10 * SECOND - 1)
    assert member(pool).record.late == 0


def test_a_request_of_a_shared_member_is_told_at_once(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="9/10s", concurrency=2)
    with pool.lease() as lease:
        grant = lease.grant_request_sync()
        lease.request_answered(grant)
        asyncio.run(lease.uses.over())
        assert member(pool).last_used_at <= clock.now()


def test_a_request_that_left_too_late_is_counted(app: App, caplog: pytest.LogCaptureFixture) -> None:
    pool = one(app, rate="9/10s")
    with pool.lease() as lease:
        grant = lease.grant_request_sync()
        lease.request_sent(Grant(grant.moment, monotonic() - 10.5))
    assert member(pool).record.late == 1
    assert "proxies/p1 may have passed its limits" in caplog.text


@pytest.mark.parametrize(("still", "took", "late"), [(True, 11, 1), (True, 9, 0), (False, 11, 0)])
def test_a_process_that_stood_still_may_have_been_late(
    app: App, monkeypatch: pytest.MonkeyPatch, still: bool, took: float, late: int
) -> None:
    pool = one(app, rate="9/10s")
    began = standstill.seconds()
    monkeypatch.setattr(app.standstill, "since", lambda moment: still)
    with pool.lease():
        monkeypatch.setattr(held_uses, "seconds", lambda: began + took)
    assert member(pool).record.late == late


def test_a_process_that_stands_still_notices_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, began = Standstill(), standstill.seconds()
    watch.begin()
    assert not watch.since(began)
    monkeypatch.setattr(standstill, "seconds", lambda: began + 2)
    assert watch.since(began)
    assert not watch.since(began + 2)


def test_every_use_of_a_handler_that_ended_is_over(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="9/10s")
    with pool.lease() as lease:
        clock.advance(1)
        asyncio.run(both(lease))
    clock.advance(10)
    # All three uses count from the end of the block: none is open for longer.
    assert [pool.release(pool.acquire(wait=0)) for _ in range(9)] == [True] * 9


def test_answers_of_the_store_may_come_while_the_handler_ends(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = one(app, rate="9/10s", concurrency=2)
    told: list[Future[None]] = [Future(), Future(), Future()]
    wrapped = asyncio.wrap_future

    def answering(future: Future[None]) -> asyncio.Future[None]:
        for one in told:
            if not one.done():
                one.set_result(None)
        return wrapped(future)

    with pool.lease() as lease:
        for future in told:
            lease.uses._tell(future)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "wrap_future", answering)
            asyncio.run(lease.uses.over())
        assert not lease.uses._telling


def test_with_a_guard_the_newest_use_moves_and_not_the_first(app: App, clock: FakeClock) -> None:
    pool = one(app, rate="2/10s", guard="1s")
    with pool.lease() as lease:
        first = clock.now()
        clock.advance(2)
        lease.use_sync()
        clock.advance(2)
        assert lease.use_from_now_sync() == clock.now() == first + 4 * SECOND
    # The first use is 11 s old now, the second one is not.
    clock.advance_to(first + 11 * SECOND)
    with pool.lease(wait=0):
        pass


def test_the_clock_of_a_host_without_boottime_is_enough() -> None:
    """macOS has none."""
    code = (
        "import time; del time.CLOCK_BOOTTIME; from pitboss.client import standstill; print(standstill.seconds() > 0)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.stdout == "True\n", told.stderr
