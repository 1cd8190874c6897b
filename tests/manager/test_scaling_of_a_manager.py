"""A pool that scales, with real processes: it grows while tasks wait, but not if a rate makes them wait."""

import time

from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.queue import QueueChange
from tests.manager.cluster import Cluster, pool

# The promise is a second; the start of a process takes longer on a busy machine.
BUSY = 3.0


def test_a_pool_grows_while_tasks_wait_too_long(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    spec = pool(min_workers=1, max_workers=3, concurrency=1, target_wait=SECOND)
    manager = cluster.manager(spec)
    cluster.until(lambda: len(manager.workers()) == 1)
    cluster.put("slow", 30, seconds=0.5)
    cluster.until(lambda: len(manager.workers()) == 3, within=40, what="three workers")
    assert manager.said("pool default goes from 1 to")
    cluster.until(lambda: any("backlog" in one.why or "worker" in one.why for one in cluster.snapshots()[0].pools))
    cluster.until(lambda: cluster.finished() == 30, within=40)
    assert manager.end() == 0


def test_a_pool_does_not_grow_where_a_rate_holds_the_tasks_back(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    cluster.do(cluster.engine.change_queue("default", QueueChange(rate=rate("2/s"))))
    cluster.put("slow", 12, seconds=0.05)
    spec = pool(min_workers=1, max_workers=4, concurrency=1, target_wait=SECOND)
    manager = cluster.manager(spec)
    cluster.until(lambda: cluster.finished() == 12, within=40)
    assert not manager.said("goes from")
    assert manager.end() == 0


def test_a_pool_of_zero_workers_starts_one_when_the_first_task_is_due(cluster: Cluster) -> None:
    manager = cluster.manager(pool(min_workers=0, max_workers=2))
    cluster.until(cluster.snapshots)
    assert manager.workers() == []
    began = time.monotonic()
    cluster.put("quick", delay=SECOND)
    cluster.until(lambda: cluster.finished() == 1)
    # A second until it is due, and the start of a process.
    assert 1 <= time.monotonic() - began < 1 + BUSY
    assert len(manager.workers()) == 1
    assert manager.end() == 0
