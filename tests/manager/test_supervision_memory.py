"""Memory limits: a leaking worker is replaced, a bomb is killed, child processes count, no limit means no check."""

from pitboss.model.states import State
from tests.manager.cluster import Cluster, ManagerProcess, pool

MB = 1024 * 1024


def swells(cluster: Cluster, task: str) -> list[str]:
    return [attempt.error.category for attempt in cluster.attempts(task) if attempt.error is not None]


def test_memory_limits_recycle_kill_and_count_children(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(
        pool("leak", workers=1, queues=("leak",), concurrency=1, memory=700 * MB, memory_soft=150 * MB),
        pool("bomb", workers=1, queues=("bomb",), concurrency=4, memory=200 * MB, memory_soft=199 * MB),
        pool("child", workers=1, queues=("child",), concurrency=1, memory=200 * MB),
        pool("free", workers=1, queues=("free",), concurrency=1),
        ttl="1500ms",
    )
    cluster.until(lambda: sum(manager.said(f"{name}-1 is ready") for name in ("leak", "bomb", "child", "free")) == 4)
    leaks = cluster.put("leaks", 50, queue="leak", megabytes=10)
    (neighbour,) = cluster.put("slow", queue="bomb", seconds=1.5)
    cluster.until(lambda: cluster.traced("began"))
    (bomb,) = cluster.put("memory_bomb", queue="bomb")
    (feeder,) = cluster.put("hungry_child", queue="child", megabytes=250)
    free = cluster.put("leaks", 3, queue="free", megabytes=100)
    cluster.until(lambda: cluster.finished() == 56, within=40)
    _leaks_were_recycled(cluster, manager, leaks)
    _the_bomb_was_killed(cluster, manager, bomb, neighbour)
    _the_childs_memory_counted(cluster, feeder)
    assert {cluster.task(one).state for one in free} == {State.COMPLETED}
    cluster.until(lambda: [one.crashes for one in cluster.workers("free")] == [0])
    assert cluster.workers("free")[0].rss > 300 * MB
    assert not manager.said("worker free-1 used")
    assert manager.end() == 0


def _leaks_were_recycled(cluster: Cluster, manager: ManagerProcess, ids: list[str]) -> None:
    for one in ids:
        task = cluster.task(one)
        assert (task.state, task.attempts, task.losses) == (State.COMPLETED, 1, 0)
    workers = {line[3] for line in cluster.traced("leaks")}
    assert len(workers) >= 3, "it was recycled, with one more for the pool without a limit"
    assert manager.said("of memory; it is replaced after its tasks")
    assert not manager.said("worker leak-1 used")
    assert {one.crashes for one in cluster.workers("leak")} == {0}
    cluster.until(lambda: [one.rss < 150 * MB for one in cluster.workers("leak")] == [True], within=10)


def _the_bomb_was_killed(cluster: Cluster, manager: ManagerProcess, bomb: str, neighbour: str) -> None:
    task = cluster.task(bomb)
    assert task.state is State.FAILED
    assert task.crashes == 3
    assert task.error is not None
    assert task.error.category == "poison"
    assert "of memory, more than its limit of 200 MB" in task.error.message
    first, *others = swells(cluster, bomb)
    assert {first, *others[:-1]} == {"memory"}
    assert task.reason == "poison: it killed its worker 3 times while alone in it"
    innocent = cluster.task(neighbour)
    assert (innocent.state, innocent.attempts, innocent.crashes) == (State.COMPLETED, 1, 0)


def _the_childs_memory_counted(cluster: Cluster, feeder: str) -> None:
    assert set(swells(cluster, feeder)[:-1]) == {"memory"}
    assert cluster.task(feeder).state is State.FAILED
    assert cluster.task(feeder).crashes == 3


def test_a_soft_limit_that_no_worker_can_keep_is_told_and_makes_no_loop(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=1, memory_soft=10 * MB))
    cluster.until(lambda: manager.said("before its first task, more than its soft limit of 10 MB"))
    ids = cluster.put("slow", 20, seconds=0.05) + cluster.put("slow", seconds=2)
    cluster.until(lambda: all(cluster.task(one).state is State.COMPLETED for one in ids))
    assert len({line[3] for line in cluster.traced("began")}) == 1
    assert not manager.said("it is replaced")
