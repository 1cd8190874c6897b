"""The servers that the tests run on, and the folder for their files. Each pytest-xdist worker has its own servers."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.schema import EmptiedSchema

# `--hypothesis-profile=long` looks much further; here, because pytest wants to know the name before it reads the tests.
settings.register_profile("long", max_examples=2_000, deadline=None)

# A shell starts background jobs with Ctrl-C ignored, and what is ignored is inherited: processes under test would
# ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files are kept in memory, where a sync costs nothing, unless TMPDIR says where. Tests that need a disk name it.
MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of managers mostly wait. They come first, so that the other pytest-xdist worker has tests that compute."""
    items.sort(key=lambda item: "manager" not in item.path.parts)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole run. A test in which it dies takes `durable_server`."""
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database for one test."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="session")
def emptied_schema(postgres_server: PostgresServer) -> Iterator[EmptiedSchema]:
    """One schema for all tests that need no database of their own. A test empties it before it begins."""
    with EmptiedSchema(postgres_server.create_database(), "emptied") as schema:
        yield schema


@pytest.fixture(scope="session")
def durable_server() -> Iterator[PostgresServer]:
    """A server that waits for the disk as in production. A test that stops or kills it must start it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def durable_dsn(durable_server: PostgresServer) -> Iterator[str]:
    """An empty database for one test, on the durable server."""
    dsn = durable_server.create_database()
    yield dsn
    durable_server.drop_database(dsn)


@pytest.fixture(scope="session")
def rabbit_server() -> Iterator[RabbitServer]:
    """One server for the whole run. A test that stops or kills it must start it again."""
    with RabbitServer() as server:
        yield server


@pytest.fixture
def rabbit_vhost(rabbit_server: RabbitServer) -> Iterator[str]:
    """An empty virtual host for one test."""
    name = rabbit_server.make_vhost()
    yield name
    rabbit_server.delete_vhost(name)
