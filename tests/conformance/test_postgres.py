"""The PostgreSQL engine passes the suite, on a real server."""

import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import SessionInfo
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import DurableConformance, MakeEngine
from tests.servers.schema import EmptiedSchema


class TestPostgres(DurableConformance):
    @pytest.fixture
    def make_engine(self, emptied_schema: EmptiedSchema) -> MakeEngine:
        emptied_schema.empty()

        async def make(clock: FakeClock) -> PostgresEngine:
            engine = PostgresEngine(emptied_schema.dsn, schema=emptied_schema.name, clock=clock)
            await engine.open()
            return engine

        return make


async def test_an_emptied_schema_is_as_its_migrations_left_it(emptied_schema: EmptiedSchema) -> None:
    schema = emptied_schema
    schema.empty()
    first = schema.content()
    for _ in range(2):
        engine = PostgresEngine(schema.dsn, schema=schema.name, clock=FakeClock())
        await engine.open()
        await engine.register([HandlerInfo(name="job")])
        await engine.put(
            [NewTask(id=f"0198c1a0-0000-7000-8000-{number:012x}", handler="job") for number in range(5000)]
        )
        assert (await engine.open_session(SessionInfo(host="here", handlers=("job",)))).number == 1
        assert (await engine.campaign(1)).term == 1
        assert await engine.wish("pool", "1") == 1
        await engine.close()
        assert schema.content() != first
        schema.empty()
        assert schema.content() == first
