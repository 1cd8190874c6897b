"""What handlers can do and what managers do for them, with real processes."""

import signal
from functools import partial

from pitboss.model.canonical import from_json
from pitboss.model.filter import by
from pitboss.model.states import State
from tests.manager.cluster import Cluster, alive


def _finished_at_least(cluster: Cluster, count: int) -> bool:
    return cluster.finished() >= count


def test_async_and_sync_handlers_run_and_their_results_are_kept(cluster: Cluster) -> None:
    manager = cluster.manager()
    cluster.until(lambda: manager.said("default-1 is ready") and manager.said("default-2 is ready"))
    ids = cluster.put("quick", 50, number=1) + cluster.put("quick_in_thread", 50, number=2)
    cluster.until(lambda: cluster.finished() == 100)
    assert sorted(cluster.task(one).result or "" for one in ids) == ["1"] * 50 + ["2"] * 50
    assert len({line[3] for line in cluster.traced("quick")}) == 2, "both workers had work"
    assert manager.end() == 0


def test_a_task_put_on_an_idle_system_starts_at_once(cluster: Cluster) -> None:
    cluster.manager(workers=1)
    cluster.until(lambda: cluster.managers[0].said("is ready"))
    ids: list[str] = []
    for count in range(20):
        ids += cluster.put("quick", number=1)
        cluster.until(partial(_finished_at_least, cluster, count + 1))
    waits = sorted((cluster.task(one).started_at or 0) - cluster.task(one).created_at for one in ids)
    assert waits[10] < 100_000, f"half of them waited longer than 0.1 s: {waits}"


def test_a_coroutine_that_takes_too_long_is_ended(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    (task,) = cluster.put("overlong")
    cluster.manager(workers=1)
    cluster.until(lambda: cluster.task(task).state.finished)
    found = cluster.task(task)
    assert (found.state, found.outcome) == (State.FAILED, "timed_out")
    assert found.error is not None
    assert "time limit of 0.3 s" in found.error.message


def test_a_thread_that_does_not_return_is_settled_and_its_worker_replaced_after_the_others_end(
    sqlite_cluster: Cluster,
) -> None:
    cluster = sqlite_cluster
    manager = cluster.manager(workers=1)
    cluster.until(lambda: manager.said("is ready"))
    (worker,) = manager.workers()
    (deaf,) = cluster.put("deaf_thread", seconds=30)
    (slow,) = cluster.put("slow", seconds=2.5)
    cluster.until(lambda: cluster.task(deaf).state.finished)
    assert cluster.task(deaf).outcome == "timed_out"
    cluster.until(lambda: cluster.task(slow).state is State.COMPLETED, within=10)
    assert cluster.task(slow).losses == 0
    cluster.until(lambda: not alive(worker.pid), within=10, what="the worker with the deaf thread ends")
    (after,) = cluster.put("quick", number=1)
    cluster.until(lambda: cluster.task(after).state is State.COMPLETED, within=10)


def test_handlers_enqueue_report_and_follow_up(cluster: Cluster) -> None:
    (parent,) = cluster.put("spawning", total=3)
    (threaded,) = cluster.put("blocking_spawning")
    cluster.manager(workers=1)
    cluster.until(lambda: cluster.task(parent).note == "half way", what="progress is seen while it runs")
    cluster.until(lambda: cluster.finished() == 7)
    spawned = [task for task in cluster.tasks() if task.handler == "quick"]
    assert sorted(from_json(task.params)["number"] for task in spawned) == [0, 1, 2, 7, 1000]
    assert {task.parent for task in spawned} == {parent, threaded}


def test_a_running_task_can_be_cancelled(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    (task,) = cluster.put("slow", seconds=60)
    cluster.manager(workers=1, ttl="3s")
    cluster.until(lambda: cluster.traced("began"))
    assert cluster.do(cluster.engine.cancel(by(id=task), reason="bored")).asked == 1
    cluster.until(lambda: cluster.task(task).state is State.CANCELLED, within=10)
    assert not cluster.traced("ended")


def test_a_snoozed_task_comes_back_without_an_attempt(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    (task,) = cluster.put("later")
    cluster.manager(workers=1)
    cluster.until(lambda: cluster.task(task).state is State.COMPLETED)
    assert cluster.task(task).attempts == 1


def test_state_that_lives_with_a_worker_is_shared_and_renewed(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    ids = cluster.put("with_state", 7)
    cluster.manager(workers=1, concurrency=1)
    cluster.until(lambda: cluster.finished() == 7)
    assert [cluster.task(one).result for one in ids] == ["1", "2", "3", "1", "2", "3", "1"]
    assert len(cluster.traced("opened")) == 3


def test_sigterm_lets_running_tasks_end_and_says_what_it_waits_for(cluster: Cluster) -> None:
    cluster.put("slow", 4, seconds=1.5)
    later = cluster.put("slow", 20, seconds=1.5)
    manager = cluster.manager(workers=2, concurrency=2)
    cluster.until(lambda: len(cluster.traced("began")) == 4)
    manager.signal(signal.SIGTERM)
    assert manager.process.wait(timeout=20) == 0
    assert manager.said("4 × slow")
    assert len(cluster.traced("ended")) == 4
    assert cluster.counts() == {State.COMPLETED: 4, State.PENDING: 20}
    assert {cluster.task(one).attempts for one in later} == {0}


def test_a_second_signal_stops_at_once_and_gives_the_tasks_back(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    (task,) = cluster.put("slow", seconds=60)
    manager = cluster.manager(workers=1)
    cluster.until(lambda: cluster.traced("began"))
    workers = manager.workers()
    manager.signal(signal.SIGINT)
    cluster.until(lambda: manager.said("Stop again to end now"))
    manager.signal(signal.SIGINT)
    assert manager.process.wait(timeout=10) == 0
    found = cluster.task(task)
    assert (found.state, found.attempts, found.losses) == (State.PENDING, 0, 0)
    cluster.until(lambda: not any(alive(worker.pid) for worker in workers), within=5)
