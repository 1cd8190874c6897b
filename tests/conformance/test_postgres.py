"""The PostgreSQL engine passes the suite, on a real server."""

import itertools

import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import DurableConformance, MakeEngine
from tests.servers.postgres import PostgresServer

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


class TestPostgres(DurableConformance):
    @pytest.fixture
    def make_engine(self, dsn: str) -> MakeEngine:
        # A schema of its own for each test: a database of its own costs half a second.
        schema = f"suite_{next(NUMBERS)}"

        async def make(clock: FakeClock) -> PostgresEngine:
            engine = PostgresEngine(dsn, schema=schema, clock=clock)
            await engine.open()
            return engine

        return make
