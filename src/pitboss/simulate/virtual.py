"""An event loop in virtual time: it never waits, it jumps to the next timer. A day of retries runs in milliseconds.

Code in it may wait only with asyncio. There is no real I/O and there are no threads, so a program takes the same steps
in the same order every time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from pitboss.model.duration import SECOND, Moment
from pitboss.simulate.clock import FakeClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualTimeError(RuntimeError):
    """The program cannot continue in virtual time; the message lists what it waits for."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Uses the fake clock. When nothing is ready it moves to the next timer; without a timer the loop is stuck."""

    def __init__(self, clock: FakeClock, *, limit: float | str = "1d") -> None:
        super().__init__()
        self._fake, self._start = clock, clock.now()
        self._end = clock.ahead(limit)
        self._selector = _Jump(self)

    def time(self) -> float:
        return (self._fake.now() - self._start) / SECOND

    def jump(self, timeout: float | None) -> None:
        """Move the clock as far as a real loop would have slept."""
        if timeout is None:
            raise VirtualTimeError(f"deadlock: nothing is ready and no timer is set.\n{self._who_waits()}")
        if timeout > 0:
            # At least one microsecond, so that the clock always moves.
            self._move(self._fake.now() + max(1, round(timeout * SECOND)))

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        raise VirtualTimeError(f"{func} needs a thread, and threads do not run in virtual time")

    def _move(self, moment: Moment) -> None:
        if moment > self._end:
            raise VirtualTimeError(f"still not done when its virtual time was used up.\n{self._who_waits()}")
        self._fake.advance_to(moment)

    def _who_waits(self) -> str:
        waiting = sorted((task.get_name(), repr(task.get_coro())) for task in asyncio.all_tasks(self))
        return "\n".join(f"  {name} waits in {where}" for name, where in waiting)

    def _process_events(self, event_list: list[object]) -> None:
        """There are no files and sockets to watch."""

    def _write_to_self(self) -> None:
        """The loop never sleeps, so it need not be woken."""


class _Jump:
    """Replaces the selector, the only place where a real loop waits."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.jump(timeout)
        return []


def run_virtual(main: Coroutine[Any, Any, T], *, clock: FakeClock | None = None, limit: float | str = "1d") -> T:
    """Run to the end, within `limit` of virtual time. Pass a clock to read or share it."""
    clock = clock or FakeClock()
    try:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock, limit=limit)) as runner:
            return runner.run(main)
    finally:
        main.close()


__all__ = ["VirtualLoop", "VirtualTimeError", "run_virtual"]
