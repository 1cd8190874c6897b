"""A lost key of secrets: tasks wait, no member is used up, and they go on when the key is back."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitboss.engines.capabilities import resources_of
from pitboss.model.states import State
from pitboss.secrets import KeyRing
from tests.manager import lenders
from tests.manager.cluster import Cluster

TARGET = str(Path(__file__).with_name("lenders.py"))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture(params=["sqlite", "postgres"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, keys: Path) -> Iterator[Cluster]:
    on_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/shop.db" if on_file else request.getfixturevalue("postgres_dsn")
    cluster = Cluster(url, tmp_path, TARGET)
    cluster.secrets_file = str(keys)
    lenders.app.use_keys(KeyRing(file=keys))
    lenders.app.use(url)
    try:
        yield cluster
    finally:
        lenders.app.close()
        cluster.close()


def test_tasks_wait_for_the_key_and_go_on_when_it_is_back(cluster: Cluster, keys: Path) -> None:
    lenders.proxies.add("p1", secrets={"password": "hunter22"}, labels=["web"])
    (name,) = KeyRing(file=keys).names()
    lenders.slots.add("s1")
    kept = shutil.move(keys, keys.with_name("kept"))
    waiting = cluster.put("check", 5, queue="proxies", profile="a")
    manager = cluster.manager(workers=1)
    (other,) = cluster.put("hold", queue="slots", seconds=0)
    cluster.until(lambda: cluster.task(other).state is State.COMPLETED, what="queues without secrets go on")
    (warning,) = [line for line in manager.lines if "key is missing" in line]
    assert name in warning
    assert "1 member of proxies" in warning
    assert "slots" not in warning
    cluster.until(lambda: any(one.missing_keys for one in cluster.snapshots()))
    (told,) = [key for one in cluster.snapshots() for key in one.missing_keys]
    assert (told.pool, told.key, told.members) == ("proxies", name, 1)
    assert [cluster.task(task).state for task in waiting] == [State.PENDING] * 5
    (member,) = cluster.do(resources_of(cluster.engine).resources("proxies"))
    assert member.record.uses == 0, "no member was given to a task that cannot use it"
    shutil.move(kept, keys)
    cluster.until(lambda: cluster.finished() == 6)
    assert [(cluster.task(task).state, cluster.task(task).attempts) for task in waiting] == [(State.COMPLETED, 1)] * 5
    assert manager.said("are there again")


def test_a_member_that_is_sealed_with_a_foreign_key_later_closes_its_pool(cluster: Cluster, tmp_path: Path) -> None:
    lenders.proxies.add("p1", secrets={"password": "hunter22"}, labels=["web"])
    manager = cluster.manager(workers=1)
    (first,) = cluster.put("check", queue="proxies", profile="a")
    cluster.until(lambda: cluster.task(first).state is State.COMPLETED)
    lenders.app.use_keys(KeyRing(file=tmp_path / "foreign"))
    lenders.proxies.add("p1", secrets={"password": "hunter23"}, labels=["web"])
    waiting = cluster.put("check", 3, queue="proxies", profile="a")
    cluster.until(lambda: manager.said("key is missing"))
    cluster.until(lambda: any(one.missing_keys for one in cluster.snapshots()))
    (member,) = cluster.do(resources_of(cluster.engine).resources("proxies"))
    assert member.record.uses <= 2, "one grant found it out"
    assert member.record.failed == 0
    assert {cluster.task(task).attempts for task in waiting} == {0}
    lenders.proxies.remove("p1")
    lenders.app.use_keys(KeyRing(file=tmp_path / "keys"))
    lenders.proxies.add("p2", secrets={"password": "hunter22"}, labels=["web"])
    cluster.until(lambda: cluster.finished() == 4, what="the pool opens again without the member")
