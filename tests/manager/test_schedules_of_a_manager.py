"""Schedules of real managers: whichever leads fires them, and none of their ticks is lost or doubled."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pitboss.model.duration import SECOND
from pitboss.model.queue import QueueSettings
from tests.manager.cluster import Cluster
from tests.manager.ticks import TIMED, faults, leader, stored, ticks

# The busy machine of a test run is late by itself; benchmarks.schedule_soak measures it.
LATE = 0.5 * SECOND


@pytest.fixture(params=["sqlite", "postgres"])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    on_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/timed.db" if on_file else request.getfixturevalue("postgres_dsn")
    cluster = Cluster(url, tmp_path, TIMED)
    try:
        yield cluster
    finally:
        cluster.close()


def test_a_killed_leader_loses_and_doubles_no_tick(timed: Cluster) -> None:
    for _ in range(2):
        timed.manager(workers=1, ttl="2s")
    timed.until(lambda: len(ticks(timed)) >= 3, what="the schedule ticks")
    killed = leader(timed)
    assert killed is not None
    killed.signal(signal.SIGKILL)
    killed.process.wait()
    before = len(ticks(timed))
    # The session lives for two seconds, and others campaign every two.
    timed.until(lambda: len(ticks(timed)) >= before + 8, what="another manager fires")
    timed.until(lambda: leader(timed) not in (None, killed))
    seen = ticks(timed)
    assert faults(seen) == []
    assert seen[2].late < LATE
    assert seen[-1].late < LATE


def test_what_a_manager_declares_is_withdrawn_by_newer_code(timed: Cluster) -> None:
    """A reload declares what the new code says."""
    manager = timed.manager(workers=1)
    timed.until(lambda: stored(timed))
    other = Path(timed.traces).with_name("timed.py")
    other.write_text('from pitboss import App\n\napp = App("timed")\napp.queue("mail", capacity=5)\n')
    manager.reload(replace(manager.plan, target=str(other)))
    timed.until(lambda: not stored(timed), what="the schedule is withdrawn")
    queues = {queue.name: queue for queue in timed.do(timed.engine.queues())}
    assert queues["mail"].declared == QueueSettings(capacity=5)
