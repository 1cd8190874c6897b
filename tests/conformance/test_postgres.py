"""The PostgreSQL engine passes the suite, on a real server."""

import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import Conformance, MakeEngine


class TestPostgres(Conformance):
    @pytest.fixture
    def make_engine(self, postgres_dsn: str) -> MakeEngine:
        async def make(clock: FakeClock) -> PostgresEngine:
            engine = PostgresEngine(postgres_dsn, clock=clock)
            await engine.open()
            return engine

        return make
