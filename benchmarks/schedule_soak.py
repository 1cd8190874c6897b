"""A schedule that ticks every second, while its leader is killed or stopped every 30 seconds.

`python -m benchmarks.schedule_soak --minutes 15`, or `make soak ARGS=schedules`: a PostgreSQL server of its own and
three managers. No tick may be missing, and none may come twice. It prints how late the ticks were: all of them, and
those of healthy phases, which begin when another manager must have taken the lead.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.upkeep.fire import LOOK_SECONDS
from pitboss.upkeep.leadership import CAMPAIGN_SECONDS
from tests.manager.cluster import Cluster, ManagerProcess
from tests.manager.ticks import TIMED, Tick, faults, leader, stored, ticks
from tests.servers.postgres import PostgresServer

MINUTES = 15.0
MANAGERS = 3
EVERY = 30.0
TTL = 5
# How long a stopped leader stays stopped; None: it is killed. Once shorter than its session lives, and once longer.
TROUBLES = (None, 2.0 * TTL, 0.5 * TTL)
# A new leader is elected when the session has expired, and then looks for what is due.
HEALTHY: Span = round((TTL + CAMPAIGN_SECONDS + 2 * LOOK_SECONDS) * SECOND)
Report = tuple[str, list[str]]


def schedules(folder: Path, minutes: float = MINUTES) -> Report:
    with PostgresServer() as server:
        return _soaked(server.create_database(), folder, minutes)


def _soaked(url: str, folder: Path, minutes: float) -> Report:
    with _cluster(url, folder) as cluster:
        for _ in range(MANAGERS):
            _start(cluster)
        cluster.until(lambda: ticks(cluster), what="the first tick")
        troubles = _trouble(cluster, time.monotonic() + minutes * 60)
        ended = cluster.engine.clock.wall()
        cluster.until(lambda: ticks(cluster)[-1].at > ended, what="a tick after the last trouble", within=4 * TTL)
        (schedule,) = stored(cluster)
        seen = ticks(cluster)
    found = faults(seen)
    if seen[0].at != schedule.anchor + SECOND:
        found.append(f"the first tick was at {seen[0].at}, and the schedule began at {schedule.anchor}")
    # At the start, too, no manager leads.
    starts = [schedule.anchor, *troubles]
    healthy = [tick for tick in seen if not any(0 <= tick.at - start < HEALTHY for start in starts)]
    told = f"{len(seen)} ticks, {len(troubles)} troubles; late: {_late('healthy', healthy)}; {_late('all', seen)}"
    return told, found


@contextmanager
def _cluster(url: str, folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(url, folder, TIMED)
    try:
        yield cluster
    finally:
        cluster.close()


def _start(cluster: Cluster) -> ManagerProcess:
    """On a host of its own: a successor on the same host would not wait until the session expires."""
    return cluster.manager(workers=1, ttl=f"{TTL}s", elsewhere=f"host-{len(cluster.managers)}")


def _trouble(cluster: Cluster, until: float) -> list[Moment]:
    """Kill or stop the leader from time to time; when, by the wall clock."""
    moments = list[Moment]()
    for stopped in cycle(TROUBLES):
        if time.monotonic() + EVERY > until:
            time.sleep(max(0.0, until - time.monotonic()))
            return moments
        time.sleep(EVERY)
        cluster.until(lambda: leader(cluster), what="a leader")
        victim = leader(cluster)
        assert victim is not None
        moments.append(cluster.engine.clock.wall())
        if stopped is None:
            victim.signal(signal.SIGKILL)
            victim.process.wait()
            _start(cluster)
        else:
            victim.signal(signal.SIGSTOP)
            time.sleep(stopped)
            victim.signal(signal.SIGCONT)
    return moments


def _share(seen: list[Tick], share: float) -> Span:
    late = sorted(tick.late for tick in seen)
    return late[min(len(late) - 1, int(share * len(late)))] if late else 0


def _late(name: str, seen: list[Tick]) -> str:
    p50, p99, most = (_share(seen, share) / SECOND for share in (0.5, 0.99, 1.0))
    return f"{name} ({len(seen)}) p50 {p50:.3f} s, p99 {p99:.3f} s, max {most:.3f} s"


def main() -> int:
    options = argparse.ArgumentParser(description="Kill the leader of a schedule that ticks every second.")
    options.add_argument("--minutes", type=float, default=MINUTES)
    options.add_argument("--sqlite", action="store_true", help="on a file instead of a PostgreSQL server")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="pitboss-soak-") as folder:
        place = Path(folder)
        if asked.sqlite:
            told, found = _soaked(f"sqlite:///{folder}/store.db", place, asked.minutes)
        else:
            told, found = schedules(place, asked.minutes)
    print(told)
    print("".join(f"FAULT {fault}\n" for fault in found[:20]), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
