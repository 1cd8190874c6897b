"""Notices that this process stood still: stopped by a signal, or on a host that was suspended."""

import threading
import time

from pitboss.engines.host_clock import uptime
from pitboss.model.duration import SECOND

_STEP_SECONDS = 0.5
_STILL_SECONDS = 1.0


class Standstill:
    """A thread that sleeps in short steps, and notes when one took far too long. It starts with the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last = 0.0
        self._ended = 0.0

    def begin(self) -> None:
        """Watch from now on."""
        with self._lock:
            # A fork takes the object along, but not its thread.
            if self._thread is None or not self._thread.is_alive():
                self._last = seconds()
                self._thread = threading.Thread(target=self._watch, name="pitboss-standstill", daemon=True)
                self._thread.start()

    def since(self, moment: float) -> bool:
        """Whether the process stood still after that moment, or has just gone on after it."""
        return self._ended > moment or seconds() - max(self._last, moment) > _STEP_SECONDS + _STILL_SECONDS

    def _watch(self) -> None:
        while True:
            time.sleep(_STEP_SECONDS)
            now = seconds()
            if now - self._last > _STEP_SECONDS + _STILL_SECONDS:
                self._ended = now
            self._last = now


def seconds() -> float:
    """By a clock that is never set and goes on while the host is suspended."""
    return uptime() / SECOND
