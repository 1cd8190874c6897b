"""Secrets never appear: not in the store's files, the logs, errors, texts of values, or the terminal."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pitboss.model.filter import by
from pitboss.model.log_settings import LogSettings
from pitboss.model.task import Task
from pitboss.secrets import KeyRing
from tests.manager import lenders
from tests.manager.cluster import Cluster, ManagerProcess

TARGET = str(Path(__file__).with_name("lenders.py"))
MEMBERS = 4
# One for each field of each member: twenty.
CANARIES = {
    f"m{number}": {field: f"canary-{field}-{number}-{os.urandom(4).hex()}" for field in lenders.FIELDS}
    for number in range(MEMBERS)
}
WAYS = ("raise", "blame", "limit", "type", "judge", "return")


@pytest.fixture(scope="module")
def aviary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A cluster whose handlers have done everything with secrets that they should not do."""
    folder = tmp_path_factory.mktemp("aviary")
    url = f"sqlite:///{folder}/shop.db"
    cluster = Cluster(url, folder, TARGET)
    cluster.secrets_file, cluster.logs = str(folder / "keys"), LogSettings(folder=str(folder / "logs"))
    lenders.app.use_keys(KeyRing(file=folder / "keys"))
    lenders.app.use(url)
    try:
        for name, secrets in CANARIES.items():
            lenders.leaky.add(name, {"host": "h.example", "port": 80, "user": "anna"}, secrets)
        manager = cluster.manager(workers=1, concurrency=4)
        _play(cluster)
        assert manager.end() == 0
        yield cluster, folder
    finally:
        lenders.app.close()
        cluster.close()


def _play(cluster: Cluster) -> None:
    """Each bad act with each member."""
    leak, in_thread = lenders.app.handlers["leak"], lenders.app.handlers["leak_in_thread"]
    for way in WAYS:
        for _ in range(MEMBERS):
            lenders.leaky.reset()
            handle = leak.enqueue(way)
            cluster.until(partial(cluster.attempts, handle.id))
            cluster.do(cluster.engine.cancel(by(id=handle.id)))
    for _ in range(MEMBERS):
        lenders.leaky.reset()
        handle = in_thread.enqueue()
        cluster.until(partial(cluster.attempts, handle.id))


def _seen(text: str) -> list[str]:
    return [canary for secrets in CANARIES.values() for canary in secrets.values() if canary in text]


def test_twenty_canaries_were_sung(aviary: tuple[Cluster, Path]) -> None:
    cluster, _ = aviary
    assert len({canary for secrets in CANARIES.values() for canary in secrets.values()}) == 20
    tasks = [task for task in cluster.tasks() if task.handler.startswith("leak")]
    assert {task.resource for task in tasks} == {f"leaky/{name}" for name in CANARIES}, "all members were used"
    assert {task.error.category for task in tasks if task.error} >= {"error", "resource", "rate_limited"}


def test_no_canary_is_in_a_file_of_the_store_or_the_logs(aviary: tuple[Cluster, Path]) -> None:
    _, folder = aviary
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"shop.db", "keys"} <= names
    assert any("logs" in path.parts for path in files)
    written = b"".join(path.read_bytes() for path in files).decode("utf-8", "replace")
    assert "***" in written, "a masked secret shows as ***"
    assert _seen(written) == []


def test_no_canary_is_in_a_record_an_error_or_a_traceback(aviary: tuple[Cluster, Path]) -> None:
    cluster, _ = aviary
    told: list[object] = [*cluster.tasks(), *lenders.leaky.members()]
    told += [cluster.attempts(task.id) for task in cluster.tasks()]
    text = "\n".join(f"{one!r} {one}" for one in told)
    errors = [task.error for task in cluster.tasks() if isinstance(task, Task) and task.error]
    assert any("***" in error.message for error in errors)
    assert any("***" in error.traceback for error in errors)
    assert _seen(text + "".join(error.traceback.replace("\\", "") for error in errors)) == []


def test_no_canary_is_on_the_terminal_of_the_manager(aviary: tuple[Cluster, Path]) -> None:
    cluster, _ = aviary
    manager: ManagerProcess = cluster.managers[0]
    assert any("***" in line for line in manager.lines), "warnings are shown, without the secrets"
    assert _seen("\n".join(manager.lines)) == []


def test_no_canary_is_in_the_text_of_a_lease_or_its_refusals(aviary: tuple[Cluster, Path]) -> None:
    lenders.leaky.reset()
    with lenders.leaky.lease() as lease:
        canary = lease.secret("password")
        assert canary in lease.url
        text = f"{lease} {lease!r} {lease.leased!r} {lenders.leaky!r} {lenders.app.ring()!r} {vars(lease).keys()}"
        assert _seen(text) == []
        assert _seen(canary) == [canary], "the test itself can see one"
