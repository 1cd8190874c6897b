"""Where real processes die they share a real disk, and a server that waits for it as in production."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stores import MakeUrl
from tests.servers.postgres import DISK


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on the disk. Faults that are only simulated do as well in memory, with `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="pitboss-fault-", dir=DISK) as folder:
        yield Path(folder)


@pytest.fixture
def make_url(request: pytest.FixtureRequest, disk: Path) -> MakeUrl:
    """The address of an empty store of a kind: "sqlite" or "postgres"."""

    def make(engine: str) -> str:
        if engine == "sqlite":
            return f"sqlite:///{disk / 'store.db'}"
        dsn: str = request.getfixturevalue("durable_dsn")
        return dsn

    return make
