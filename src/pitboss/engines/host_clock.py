"""The clocks of this host. Everything else gets its clock from outside."""

import time
from pathlib import Path

from pitboss.model.duration import Moment, Span

# macOS has no CLOCK_BOOTTIME; its monotonic clock counts sleep, too.
_SINCE_BOOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """Changes with every start of the machine; empty if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def uptime() -> Span:
    """Since the start of the machine, sleep included. Setting the clock does not change it."""
    return time.clock_gettime_ns(_SINCE_BOOT) // 1000


def wall() -> Moment:
    """What people and other hosts read on their clocks."""
    return time.time_ns() // 1000


class SystemClock:
    """The steady clock begins at the wall clock's time, unless a store sets its offset."""

    def __init__(self) -> None:
        self.boot_id = boot_id()
        self._offset = wall() - uptime()

    def now(self) -> Moment:
        return uptime() + self._offset

    def wall(self) -> Moment:
        return wall()

    def uptime(self) -> Span:
        return uptime()

    def set_offset(self, offset: Span) -> None:
        self._offset = offset
