"""A cluster per test, on both stores that processes can share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manager.cluster import TROUBLE, Cluster
from tests.servers.faketime import WallClock
from tests.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    on_file = request.param == "sqlite"
    cluster = Cluster(f"sqlite:///{tmp_path}/shop.db" if on_file else request.getfixturevalue("postgres_dsn"), tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def sqlite_cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(f"sqlite:///{tmp_path}/shop.db", tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def troubled(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose handlers misbehave."""
    cluster = Cluster(f"sqlite:///{tmp_path}/shop.db", tmp_path, TROUBLE)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def faked_server() -> Iterator[tuple[PostgresServer, WallClock]]:
    """A server whose wall clock the test sets. The folder is its own, also beside other runs of the tests."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="clock-", dir=memory if memory.is_dir() else "/var/tmp"))
    place.chmod(0o755)
    clock = WallClock(place)
    with PostgresServer(durable=False, environment=clock.environment) as server:
        yield server, clock
    shutil.rmtree(place)
