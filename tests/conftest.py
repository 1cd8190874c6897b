"""The servers that the tests run on. Each pytest-xdist worker is a session and so has servers of its own."""

from collections.abc import Iterator

import pytest

from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole run. A test that stops or kills it must start it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> str:
    """An empty database for one test."""
    return postgres_server.create_database()
