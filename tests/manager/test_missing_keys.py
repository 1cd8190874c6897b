"""A lost key of secrets: tasks wait, no member is used up, and they go on when the key is back."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitboss.engines.capabilities import resources_of
from pitboss.engines.memory import MemoryEngine
from pitboss.manager.key_watch import KeyWatch
from pitboss.model.resource import NewResource
from pitboss.model.states import State
from pitboss.secrets import KeyRing
from pitboss.testing.clock import FakeClock
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
    foreign = KeyRing(file=tmp_path / "foreign")
    foreign.make()
    lenders.app.use_keys(foreign)
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


async def test_a_key_that_is_lost_for_a_member_that_came_later_is_noticed_before_a_grant(keys: Path) -> None:
    engine, ring, said = MemoryEngine(clock=FakeClock()), KeyRing(file=keys), list[str]()
    watch = KeyWatch(engine, ring, warn=said.append, say=said.append)
    await watch.watch_pools(["proxies"])
    sealed = ring.seal("hunter22", ("proxies", "p1", "password"))
    await watch.check()
    await engine.add_resources("proxies", [NewResource(name="p1", secrets={"password": sealed})])
    later = ring.seal("hunter22", ("proxies", "p2", "password"))
    await engine.add_resources("proxies", [NewResource(name="p2", secrets={"password": later})])
    assert not await watch.check()
    kept = shutil.move(keys, keys.with_name("kept"))
    assert await watch.check(), "without a member being granted"
    assert [(one.pool, one.members) for one in watch.missing] == [("proxies", 2)]
    assert "key is missing" in said[-1]
    shutil.move(kept, keys)
    assert await watch.check()
    assert not watch.missing
