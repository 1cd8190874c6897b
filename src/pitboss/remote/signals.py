"""SIGTERM and SIGINT: the first asks a worker to stop, the second stops it at once."""

import contextvars
import signal
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from pitboss.remote.logs import logger


class StopSignals:
    """In its block, the first signal calls `ask` and the second `force`, both in the main thread.

    The end of the grace counts as a second signal. A thread watches it, because the main thread may be in a handler.
    Outside of the main thread, where Python has no signals, it does nothing.
    """

    def __init__(self, ask: Callable[[], None], force: Callable[[], None], grace: float) -> None:
        self._ask, self._force, self._grace = ask, force, grace
        self._given = 0
        self._over = False
        # What a signal handler calls must not lock, so it only puts into a SimpleQueue and logs nothing.
        self._inbox: SimpleQueue[int | None] = SimpleQueue()
        self._before: dict[int, Any] = {}
        # With the context of the caller, so that what it logs names the worker.
        watch = partial(contextvars.copy_context().run, self._watch)
        self._watcher = threading.Thread(target=watch, name="pitboss-signals", daemon=True)

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._watcher.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._before:
            self._inbox.put(None)
            self._watcher.join()
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._given += 1
        self._inbox.put(number)
        if self._over:
            return
        if self._given == 1:
            self._ask()
        else:
            self._force()

    def _watch(self) -> None:
        number = self._inbox.get()
        if number is None:
            return
        logger.info(
            "Stopping on signal %d: running tasks have %g seconds; a second signal stops them at once",
            number,
            self._grace,
        )
        try:
            self._inbox.get(timeout=self._grace)
        except Empty:
            logger.warning("The time for running tasks is over")
            self._signal_main_thread(number)

    def _signal_main_thread(self, number: int) -> None:
        if hasattr(signal, "pthread_kill"):  # interrupts a blocking call
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        else:
            signal.raise_signal(number)
