"""What a worker knows about itself: counts, and whether it is healthy."""

import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import resource

MEBIBYTE = 1024 * 1024
_PAGES = Path("/proc/self/statm")


class HealthReport(dict[str, Any]):
    """The checks by name. It is true exactly when the worker is healthy."""

    def __bool__(self) -> bool:
        return bool(self.get("healthy"))


@dataclass
class WorkerMetrics:
    """Worker performance metrics."""

    started_at: datetime
    tasks_claimed: int = 0
    tasks_completed: int = 0
    tasks_failed: int = 0
    total_processing_time: float = 0.0

    @property
    def success_rate(self) -> float:
        """From 0 to 1; 0 before the first task has ended."""
        total = self.tasks_completed + self.tasks_failed
        return self.tasks_completed / total if total else 0.0

    @property
    def avg_processing_time(self) -> float:
        """Of completed tasks, in seconds."""
        return self.total_processing_time / self.tasks_completed if self.tasks_completed else 0.0

    def report(self) -> dict[str, Any]:
        uptime = datetime.now(self.started_at.tzinfo) - self.started_at
        return {
            "uptime_seconds": uptime.total_seconds(),
            "tasks_claimed": self.tasks_claimed,
            "tasks_completed": self.tasks_completed,
            "tasks_failed": self.tasks_failed,
            "success_rate": self.success_rate,
            "avg_processing_time": self.avg_processing_time,
        }


class CpuMeter:
    """How busy this process was since the last question, in percent of one processor."""

    def __init__(self) -> None:
        self._asked, self._used = time.monotonic(), time.process_time()

    def percent(self) -> float:
        asked, used = time.monotonic(), time.process_time()
        passed, spent = asked - self._asked, used - self._used
        self._asked, self._used = asked, used
        return round(100 * spent / passed, 1) if passed else 0.0


def memory_usage_mb() -> float | None:
    """The memory of this process, its highest figure where the system does not tell the present one."""
    if sys.platform == "win32":
        return None
    if _PAGES.exists():
        return round(int(_PAGES.read_text().split()[1]) * resource.getpagesize() / MEBIBYTE, 1)
    unit = MEBIBYTE if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
