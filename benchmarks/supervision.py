"""The long tests of workers: a hundred rolling restarts under load, and how soon a dead worker's tasks run again.

Run by `make soak ARGS="rolling recovery"`; the short versions are tests. The figures are in docs/supervision.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.manager.cluster import TARGET, TROUBLE, Cluster
from tests.manager.drills import Recovered, beside_another, on_another_host, rolling, without_another
from tests.servers.postgres import PostgresServer

ROLLS = 100
KILLS = 100
LONE_POOLS = 10
HOSTS = 20
TTL = 3
PROMISED = 1.0
Report = tuple[str, list[str]]


@contextmanager
def _cluster(url: str, folder: Path, target: str) -> Iterator[Cluster]:
    folder.mkdir()
    cluster = Cluster(url, folder, target)
    try:
        yield cluster
    finally:
        cluster.close()


def rolling_restarts(folder: Path) -> Report:
    """Rolling restarts on both stores. Every task must run once, with one attempt and no loss."""
    told, faults = [], list[str]()
    with PostgresServer() as server:
        for name, url in (("sqlite", f"sqlite:///{folder}/shop.db"), ("postgres", server.create_database())):
            with _cluster(url, folder / name, TARGET) as cluster:
                came = rolling(cluster, ROLLS)
            told.append(
                f"{name}: {came.restarts} restarts in {came.seconds:.0f} s, {came.workers} workers, {came.tasks} tasks,"
                f" {came.lost} lost, {came.twice} twice, {came.spent} with an attempt or a loss more"
            )
            faults += [f"{name}: {fault}" for fault in came.faults]
    return "; ".join(told), faults


def recovery(folder: Path) -> Report:
    """The time from a kill to the moment when the task's handler runs again."""
    with _cluster(f"sqlite:///{folder}/beside.db", folder / "beside", TROUBLE) as cluster:
        beside = beside_another(cluster, KILLS)
    with _cluster(f"sqlite:///{folder}/alone.db", folder / "alone", TROUBLE) as cluster:
        alone = without_another(cluster, LONE_POOLS)
    with PostgresServer() as server, _cluster(server.create_database(), folder / "hosts", TROUBLE) as cluster:
        hosts = on_another_host(cluster, HOSTS, TTL)
    told = {
        "beside another worker": beside,
        "the only worker": alone,
        f"beyond the {TTL} s of a session": hosts,
    }
    return "; ".join(f"{what}: {came}" for what, came in told.items()), _late(told)


def _late(told: dict[str, Recovered]) -> list[str]:
    return [f"{what}: p99 {came.share(0.99):.2f} s" for what, came in told.items() if came.share(0.99) > PROMISED]
