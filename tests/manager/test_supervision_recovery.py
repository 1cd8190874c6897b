"""How soon a task runs again after its worker or host died. `make soak ARGS=recovery` does it a hundred times."""

from pathlib import Path

from pitboss.model.states import State
from tests.manager.cluster import TROUBLE, Cluster, pool
from tests.manager.drills import beside_another, killed, on_another_host, ready, without_another

# The promise is a second. These few kills share a machine with other tests, so the long proof judges the tail.
PROMISED = 1.0
BUSY = 3.0


def test_a_dead_workers_task_runs_again_within_a_second_beside_another_worker(troubled: Cluster) -> None:
    recovered = beside_another(troubled, 10)
    assert len(recovered.delays) == 10
    assert recovered.share(0.5) <= PROMISED, recovered
    assert recovered.share(1) <= BUSY, recovered


def test_the_task_of_a_pools_only_worker_runs_again_within_a_second(troubled: Cluster) -> None:
    recovered = without_another(troubled, 1)
    # Most of it is the start of a process, which is slow on a busy machine.
    assert recovered.share(1) <= BUSY, recovered


def test_a_lost_task_does_not_wait_for_a_long_one_in_another_worker(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=2, concurrency=2))
    ready(cluster, manager, 2)
    (long,) = cluster.put("slow", seconds=60)
    cluster.until(lambda: cluster.traced("began"))
    # It must run alone now: not beside the long task, but in the restarted worker.
    assert killed(cluster) < 5
    assert (cluster.task(long).state, cluster.task(long).losses) == (State.RUNNING, 0)


def test_a_dead_hosts_task_runs_again_within_its_sessions_life_and_a_second(postgres_dsn: str, tmp_path: Path) -> None:
    cluster = Cluster(postgres_dsn, tmp_path, TROUBLE)
    try:
        recovered = on_another_host(cluster, 1, ttl=2)
        assert recovered.share(1) <= BUSY, recovered
        assert min(recovered.delays) > -2, "only the end of the session could free it"
    finally:
        cluster.close()
