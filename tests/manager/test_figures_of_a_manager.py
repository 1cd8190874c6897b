"""Figures of real managers: exact through kill -9, and a gap where everything was dead."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from pitboss.engines.capabilities import figures_of
from pitboss.model.duration import SECOND, Moment
from pitboss.model.figures import HOUR, KINDS, MINUTE, RAW, Flow, Sample, bucket
from pitboss.model.session import SessionInfo
from pitboss.model.states import FINISHED, State
from pitboss.operate.figures import read_figures
from tests.cli.command_line import pitboss
from tests.manager.cluster import Cluster, ManagerProcess, pool

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


@pytest.fixture
def both(tmp_path: Path, postgres_dsn: str) -> Iterator[list[Cluster]]:
    """A cluster on each store. The test waits for the clock, so it does on both at the same time."""
    urls = {"sqlite": f"sqlite:///{tmp_path}/shop.db", "postgres": postgres_dsn}
    with ExitStack() as opened:
        for name in urls:
            (tmp_path / name).mkdir()
        yield [opened.enter_context(closing(Cluster(url, tmp_path / name))) for name, url in urls.items()]


def samples(cluster: Cluster) -> list[Sample]:
    found: list[Sample] = cluster.do(figures_of(cluster.engine).samples(0, FOREVER, span=RAW))
    return found


def covered(sample: Sample) -> tuple[Moment, Moment]:
    """From when to when a manager told of itself."""
    ranges = sample.seen or [(0, sample.covered)]
    return sample.at + ranges[0][0] * SECOND, sample.at + ranges[-1][1] * SECOND


def kill_all(manager: ManagerProcess) -> None:
    """The manager first, so that it cannot tell of its workers."""
    workers = manager.workers()
    manager.signal(signal.SIGKILL)
    for one in workers:
        one.kill()
    manager.process.wait()


def _runs_some(cluster: Cluster) -> bool:
    return cluster.counts().get(State.RUNNING, 0) > 0


def _all_ended(cluster: Cluster) -> bool:
    return not cluster.counts().keys() - FINISHED


def _is_after(cluster: Cluster, at: Moment) -> bool:
    return cluster.engine.clock.now() >= at


def test_after_a_kill_of_everything_at_most_twenty_seconds_are_missing_and_drawn_as_a_gap(both: list[Cluster]) -> None:
    killed: list[Moment] = []
    for cluster in both:
        cluster.put("quick", 300, number=1)
        cluster.manager(pool(workers=2, concurrency=8))
    for cluster in both:
        cluster.until(partial(samples, cluster), what="a sample")
        # Lost tasks run alone in their worker afterwards.
        cluster.put("slow", 2, seconds=2)
        cluster.until(partial(_runs_some, cluster))
        kill_all(cluster.managers[0])
        killed.append(cluster.engine.clock.now())
    for cluster, at in zip(both, killed, strict=True):
        cluster.until(partial(_is_after, cluster, bucket(at, RAW) + RAW))
        cluster.put("quick", 300, number=1)
        cluster.manager(pool(workers=2, concurrency=8))
    for cluster, at in zip(both, killed, strict=True):
        cluster.until(partial(_all_ended, cluster), within=40)
        known = counted(flows(cluster))
        assert known == recount(cluster)
        assert sum(counts["lost"] for counts in known.values()) > 0
        document = pitboss("figures", "--store", cluster.url, "--since", "1m", "--step", "10s", "--json").json()
        assert cluster.managers[1].end() == 0
        _check_gap(cluster, at, document["series"]["started"])


def _check_gap(cluster: Cluster, killed: Moment, shown: list[int | None]) -> None:
    told, dead = samples(cluster), bucket(killed, RAW)
    last = max(covered(one)[1] for one in told if one.at < dead)
    first = min(covered(one)[0] for one in told if one.at > dead)
    began = max(one.opened_at for one in cluster.do(cluster.engine.sessions()))
    assert first - last <= began - killed + 20 * SECOND
    # Seen when the present bucket is over.
    found = cluster.do(read_figures(cluster.engine, cluster.engine.clock.now() + 2 * RAW, since=2 * MINUTE, step=RAW))
    place = found.moments.index(dead)
    assert (found.series["started"][place], found.series["covered"][place]) == (None, 0)
    assert None not in (found.series["started"][place - 1], found.series["in"][place])
    assert found.unmeasured == [(dead, bucket(began, RAW))]
    assert None in shown


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
    # Its successor tells at once how long they took.
    cluster.manager()
    cluster.until(lambda: any(one.usual.get("quick") for one in cluster.snapshots()))


def test_a_manager_writes_how_much_memory_tasks_needed(troubled: Cluster) -> None:
    troubled.put("leaks", 60, megabytes=5)
    manager = troubled.manager(pool(workers=1, concurrency=1))
    troubled.until(partial(_reached, troubled, 60))
    assert manager.end() == 0
    samples = troubled.do(figures_of(troubled.engine).samples(0, FOREVER, span=RAW))
    figures = [one for sample in samples for one in sample.handlers if one.handler == "leaks"]
    assert 0 < sum(one.memory.n for one in figures) <= 60
    assert sum(one.memory.sum for one in figures) > 5 * 1024 * 1024
