"""Virtual time: it costs nothing, it is the same every time, and a program that is stuck is told so."""

import asyncio
import itertools
import time

import pytest

from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import VirtualTimeError, run_virtual


def test_a_day_passes_in_no_time() -> None:
    clock = FakeClock(0)

    async def main() -> str:
        await asyncio.sleep(86_000)
        return "morning"

    began = time.monotonic()
    assert run_virtual(main(), clock=clock) == "morning"
    assert clock.now() == 86_000_000_000
    assert time.monotonic() - began < 1


def test_the_clock_and_the_loop_agree_to_the_microsecond() -> None:
    clock = FakeClock(1_234_567)
    seen = []

    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(0.1)
            seen.append(clock.now())

    run_virtual(main(), clock=clock)
    assert seen == [1_234_567 + 100_000 * n for n in range(1, 1001)]


def test_timers_fire_in_order_and_ties_in_the_order_of_their_making() -> None:
    seen: list[str] = []

    async def at(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        seen.append(name)

    async def main() -> None:
        await asyncio.gather(at(3, "c"), at(1, "a"), at(2, "b1"), at(2, "b2"), at(0, "now"))

    run_virtual(main())
    assert seen == ["now", "a", "b1", "b2", "c"]


def test_what_is_ready_runs_before_time_moves() -> None:
    clock = FakeClock(0)

    async def main() -> int:
        for _ in range(500):
            await asyncio.sleep(0)
        return clock.now()

    assert run_virtual(main(), clock=clock) == 0


def test_time_limits_work() -> None:
    clock = FakeClock(0)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()

    run_virtual(main(), clock=clock)
    assert clock.now() == 5_000_000


def test_a_clock_moved_by_hand_moves_the_loop() -> None:
    clock = FakeClock(0)

    async def main() -> int:
        sleeper = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        clock.advance(10)
        await sleeper
        return clock.now()

    assert run_virtual(main(), clock=clock) == 10_000_000


def test_a_deadlock_is_told_with_who_waits() -> None:
    async def main() -> None:
        lost = asyncio.create_task(asyncio.Event().wait(), name="lost")
        await lost

    with pytest.raises(VirtualTimeError, match=r"deadlock(.|\n)*lost waits in"):
        run_virtual(main())


def test_a_program_that_only_ticks_ends_with_its_time() -> None:
    async def tick() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        await asyncio.Event().wait()
        ticking.cancel()

    with pytest.raises(VirtualTimeError, match="used up"):
        run_virtual(main(), limit="10m")


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(time.monotonic)

    with pytest.raises(VirtualTimeError, match="thread"):
        run_virtual(main())


def test_an_error_of_the_program_is_its_own() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_virtual(main())
