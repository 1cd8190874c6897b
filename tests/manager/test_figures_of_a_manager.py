"""Figures of real managers: exact through kill -9, and a gap where everything was dead."""

import signal
from collections import Counter
from functools import partial

from pitboss.engines.capabilities import figures_of
from pitboss.model.figures import HOUR, KINDS, MINUTE, RAW, Flow
from pitboss.model.session import SessionInfo
from pitboss.model.states import FINISHED
from tests.manager.cluster import Cluster, pool

MANY = 1500
FAILING = 60
FOREVER = 2**62
Counts = dict[tuple[str, str], Counter[str]]


def recount(cluster: Cluster) -> Counts:
    """From the tasks and their recorded runs alone."""
    found: Counts = {}
    for task in cluster.tasks():
        counts = found.setdefault((task.queue, task.handler), Counter())
        counts["put"] += 1
        if task.state in FINISHED:
            counts[task.state.value] += 1
        for run in cluster.attempts(task.id):
            counts["lost"] += run.outcome in ("lost", "crashed")
            last = task.state in FINISHED and run.claim == task.claim
            counts["retried"] += run.outcome in ("failed", "timed_out", "retried") and not last
    return {key: +counts for key, counts in found.items()}


def counted(flows: list[Flow]) -> Counts:
    found: Counts = {}
    for one in flows:
        counts = found.setdefault((one.queue, one.handler), Counter())
        counts.update({kind: getattr(one, kind) for kind in KINDS})
    return {key: +counts for key, counts in found.items()}


def flows(cluster: Cluster) -> list[Flow]:
    found: list[Flow] = cluster.do(figures_of(cluster.engine).flows(0, FOREVER, span=RAW, by_handler=True))
    return found


def _reached(cluster: Cluster, number: float) -> bool:
    return cluster.finished() >= number


def test_flows_equal_a_recount_after_kills_of_workers_and_managers(cluster: Cluster) -> None:
    cluster.put("quick", MANY, number=1)
    cluster.put("quick", MANY // 2, queue="other", number=1)
    cluster.put("overlong", FAILING)
    cluster.put("spawning", total=20)
    everything = MANY + MANY // 2 + FAILING
    first = cluster.manager(pool(workers=2, concurrency=8))
    for share in (0.1, 0.2, 0.3):
        cluster.until(partial(_reached, cluster, everything * share))
        for worker in first.workers()[:1]:
            worker.send_signal(signal.SIGKILL)
    cluster.until(partial(_reached, cluster, everything * 0.4))
    first.signal(signal.SIGKILL)
    first.process.wait()
    second = cluster.manager(pool(workers=2, concurrency=8))
    cluster.until(lambda: not cluster.counts().keys() - FINISHED, within=90, what="all tasks end")
    known = counted(flows(cluster))
    assert known == recount(cluster)
    assert sum(counts["lost"] for counts in known.values()) > 0
    assert second.end() == 0
    # Rolled up, by a leader of its own, the sums stay.
    session = cluster.do(cluster.engine.open_session(SessionInfo(host="test", ttl=10 * HOUR)))
    cluster.until(lambda: cluster.do(cluster.engine.campaign(session.number)).mine, within=30)
    term = cluster.do(cluster.engine.campaign(session.number)).term
    while cluster.do(figures_of(cluster.engine).roll_flows(RAW, MINUTE, FOREVER, term=term)):
        pass
    assert counted(flows(cluster)) == known


def test_a_manager_writes_what_it_measured_before_it_ends(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    cluster.put("quick", 200, number=1)
    manager = cluster.manager()
    cluster.until(partial(_reached, cluster, 200))
    assert manager.end() == 0
    samples = cluster.do(figures_of(cluster.engine).samples(0, FOREVER, span=RAW))
    figures = [one for sample in samples for one in sample.handlers]
    assert sum(one.started for one in figures) == sum(one.run.n for one in figures) == 200
    assert sum(one.wait.n for one in figures) == 200
    assert sum(sum(sample.pools["default"].workers.values()) for sample in samples) > 0


def test_a_manager_writes_how_much_memory_tasks_needed(troubled: Cluster) -> None:
    troubled.put("leaks", 60, megabytes=5)
    manager = troubled.manager(pool(workers=1, concurrency=1))
    troubled.until(partial(_reached, troubled, 60))
    assert manager.end() == 0
    samples = troubled.do(figures_of(troubled.engine).samples(0, FOREVER, span=RAW))
    figures = [one for sample in samples for one in sample.handlers if one.handler == "leaks"]
    assert 0 < sum(one.memory.n for one in figures) <= 60
    assert sum(one.memory.sum for one in figures) > 5 * 1024 * 1024
