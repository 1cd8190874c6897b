"""`timeout` ends a block or a function in time, in the main thread and in others."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pitboss.remote import log_context, timeout
from pitboss.remote.logs import _context
from pitboss.remote.timeouts import in_thread
from tests.remote.stub_api import LIMIT

SAID = "Operation timed out after 0.05 seconds"


def spin() -> None:
    """Python code, which an exception from another thread interrupts."""
    ends = time.monotonic() + LIMIT
    while time.monotonic() < ends:
        pass


def in_main(function: Callable[[], Any]) -> Any:
    return function()


def in_another(function: Callable[[], Any]) -> Any:
    return in_thread(function).result(LIMIT)


PLACES = pytest.mark.parametrize("place", [in_main, in_another])


@PLACES
def test_a_block_that_is_too_slow(place: Callable[..., Any]) -> None:
    def slow() -> None:
        with timeout(0.05):
            spin()

    with pytest.raises(TimeoutError, match=SAID):
        place(slow)


@PLACES
def test_a_block_in_time(place: Callable[..., Any]) -> None:
    def fast() -> int:
        with timeout(LIMIT):
            return 7

    assert place(fast) == 7


@PLACES
def test_an_error_of_the_block_stays(place: Callable[..., Any]) -> None:
    def wrong() -> None:
        with timeout(LIMIT):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        place(wrong)


@PLACES
def test_the_inner_of_two_blocks_may_be_the_first_to_end(place: Callable[..., Any]) -> None:
    def nested() -> str:
        with timeout(LIMIT):
            try:
                with timeout(0.05):
                    spin()
            except TimeoutError as error:
                return str(error)
        return "not ended"

    assert place(nested) == SAID


@PLACES
def test_the_outer_of_two_blocks_may_be_the_first_to_end(place: Callable[..., Any]) -> None:
    def nested() -> None:
        with timeout(0.05), timeout(LIMIT):
            spin()

    with pytest.raises(TimeoutError, match=SAID):
        place(nested)


@PLACES
def test_the_outer_block_is_still_limited_after_the_inner_one(place: Callable[..., Any]) -> None:
    def nested() -> None:
        with timeout(0.05):
            with timeout(0.04):
                pass
            spin()

    with pytest.raises(TimeoutError, match=SAID):
        place(nested)


def test_the_main_thread_is_interrupted_in_a_blocking_call_and_its_handler_is_restored() -> None:
    before, left = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    with pytest.raises(TimeoutError, match=SAID), timeout(0.05):
        threading.Event().wait(LIMIT)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(left, abs=LIMIT)  # pytest's own limit goes on


def test_a_block_in_a_thread_that_blocks_raises_at_its_end() -> None:
    def blocked() -> None:
        with timeout(0.05):
            threading.Event().wait(0.2)

    with pytest.raises(TimeoutError, match=SAID):
        in_another(blocked)


def test_blocks_that_end_just_in_time_leave_nothing_behind() -> None:
    def many() -> int:
        late = 0
        for _ in range(100):
            try:
                with timeout(0.0005):
                    ends = time.monotonic() + 0.0005
                    while time.monotonic() < ends:
                        pass
            except TimeoutError:
                late += 1
        return late

    assert 0 <= in_another(many) <= 100


@PLACES
def test_a_function_that_blocks_is_left_in_time(place: Callable[..., Any]) -> None:
    gate = threading.Event()

    @timeout(0.05)
    def blocked() -> None:
        """Waits."""
        gate.wait(LIMIT)

    with pytest.raises(TimeoutError, match=SAID):
        place(blocked)
    assert (blocked.__name__, blocked.__doc__) == ("blocked", "Waits.")
    gate.set()


def test_a_function_in_time_returns_raises_and_has_the_context_of_its_caller() -> None:
    @timeout(LIMIT)
    def work(error: Exception | None = None) -> Any:
        if error:
            raise error
        return _context.get()

    with log_context(task_id="t"):
        assert work() == {"task_id": "t"}
    with pytest.raises(KeyError):
        work(KeyError())
    with pytest.raises(TimeoutError, match="its own"):
        work(error=TimeoutError("its own"))


async def test_a_coroutine_function() -> None:
    @timeout(0.05)
    async def slow() -> None:
        await asyncio.sleep(LIMIT)

    @timeout(LIMIT)
    async def fast(error: Exception | None = None) -> int:
        if error:
            raise error
        return 7

    with pytest.raises(TimeoutError, match=SAID):
        await slow()
    assert await fast() == 7
    with pytest.raises(TimeoutError, match="its own"):
        await fast(TimeoutError("its own"))


async def test_an_async_block() -> None:
    with pytest.raises(TimeoutError, match=SAID):
        async with timeout(0.05):
            await asyncio.sleep(LIMIT)


def test_a_timeout_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        timeout(0)
