"""What the tasks of a schedule say about its ticks: whether one is missing or doubled, and how late each one was."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from pitboss.engines.capabilities import schedules_of
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.meta import read_meta
from pitboss.model.schedule import Schedule
from tests.manager.cluster import Cluster, ManagerProcess

TIMED = str(Path(__file__).with_name("timed.py"))


class Tick(NamedTuple):
    """When it should have come, by the wall clock, and how much later its task was stored."""

    at: Moment
    late: Span


def ticks(cluster: Cluster) -> list[Tick]:
    """The ticks of the app's schedule, oldest first."""
    clock = cluster.engine.clock
    ahead = clock.wall() - clock.now()
    marks = [(read_meta(task.meta).tick, task.created_at) for task in cluster.tasks()]
    return sorted(Tick(mark.scheduled_for, at + ahead - mark.scheduled_for) for mark, at in marks if mark is not None)


def stored(cluster: Cluster) -> list[Schedule]:
    found: list[Schedule] = cluster.do(schedules_of(cluster.engine).schedules())
    return found


def faults(seen: list[Tick], period: Span = SECOND) -> list[str]:
    """Ticks that are missing between the first and the last, and ticks that have several tasks."""
    counted = Counter(tick.at for tick in seen)
    first, last = min(counted), max(counted)
    missing = [f"the tick at {at} is missing" for at in range(first, last + 1, period) if at not in counted]
    doubled = [f"the tick at {at} has {count} tasks" for at, count in counted.items() if count > 1]
    odd = [f"there is no tick at {at}" for at in counted if (at - first) % period]
    return missing + doubled + odd


def leader(cluster: Cluster) -> ManagerProcess | None:
    """The manager that leads; None if none does, or one that is not of this cluster."""
    lead = cluster.do(cluster.engine.leader())
    pids = {one.number: one.info.pid for one in cluster.do(cluster.engine.sessions())}
    found = [one for one in cluster.managers if lead is not None and one.process.pid == pids.get(lead.session)]
    return found[0] if found else None
