"""The servers that the tests run on. Each pytest-xdist worker is a session and so has servers of its own."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.servers.postgres import PostgresServer

# `--hypothesis-profile=long` looks much further; here, because pytest wants to know the name before it reads the tests.
settings.register_profile("long", max_examples=2_000, deadline=None)

# A shell starts background jobs with Ctrl-C ignored, and what is ignored is inherited: processes under test would
# ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole run. A test that stops or kills it must start it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> str:
    """An empty database for one test."""
    return postgres_server.create_database()
