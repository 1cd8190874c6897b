"""A cluster per test, on both stores that processes can share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manager.cluster import TROUBLE, Cluster


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
