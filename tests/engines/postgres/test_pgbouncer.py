"""Behind PgBouncer in transaction mode every transaction may have another server connection: no settings stay, prepared
statements are lost, and LISTEN hears nothing."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.access import AuditEntry
from pitboss.model.batch import BatchStatus, NewBatch
from pitboss.model.outcome import progressed
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, Report, ResourceOutcome
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.states import State
from pitboss.model.task import Unique
from tests.engines.postgres.yard import Yard, ends
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.fresh_loop(limit=60)


@pytest.fixture(params=["", "ignore_startup_parameters = options"], ids=["refuses options", "drops options"])
def bouncer(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_server, request.param) as bouncer:
        yield bouncer


@pytest.fixture
def yard(bouncer: PgBouncer, postgres_dsn: str) -> Yard:
    return Yard(bouncer.dsn(postgres_dsn))


async def test_many_engines_work_through_few_connections(yard: Yard) -> None:
    engines = [yard.engine, *await yard.open_many(4)]
    await yard.engine.change_queue("small", QueueChange(capacity=100))

    async def work(engine: PostgresEngine) -> int:
        done = 0
        for turn in range(10):
            await engine.put([*yard.news(5), yard.new(unique=Unique(str(turn)))])
            await engine.put([yard.new(queue="small")])
            claims = (await yard.claim(7, engine)).claims
            done += sum(verdict.applied for verdict in await engine.settle(ends(claims)))
        return done

    done = sum(await asyncio.gather(*map(work, engines)))
    finished = sum(queue.counts.get(State.COMPLETED, 0) for queue in await yard.engine.queues())
    assert done == finished > 100
    await yard.assert_figures()


async def test_items_of_a_batch_get_their_members_there_too(yard: Yard) -> None:
    engines = [yard.engine, *await yard.open_many(3)]
    await yard.engine.add_resources("p", [NewResource(name=f"m{number}") for number in range(6)])
    await yard.engine.register([HandlerInfo(name="scarce", queue="scarce", resources="p")])
    await yard.engine.create_batch(NewBatch(id="b"), yard.news(120, handler="scarce", queue="scarce"))

    async def work(engine: PostgresEngine) -> None:
        while (await engine.batches(["b"]))[0].status is BatchStatus.RUNNING:
            claims = (await yard.claim(4, engine, queues=("scarce",))).claims
            said = [msgspec.structs.replace(one, report=Report(outcome=ResourceOutcome.OK)) for one in ends(claims)]
            await engine.settle(said)

    await asyncio.gather(*map(work, engines))
    (batch,) = await yard.engine.batches(["b"])
    members = await yard.engine.resources("p")
    assert (batch.status, batch.counts) == (BatchStatus.DONE, {State.COMPLETED: 120})
    assert sum(member.record.ok for member in members) == 120
    assert {member.in_use for member in members} == {0}
    await yard.assert_figures()


async def test_remote_workers_and_audited_acts_there_too(yard: Yard) -> None:
    engines = [yard.engine, *await yard.open_many(3)]
    entry = AuditEntry(id="e", who="ann", act="register")
    await yard.engine.audited(entry).register([HandlerInfo(name="far", queue="far", remote=True)])
    await yard.engine.put(yard.news(100, handler="far", queue="far"))

    async def work(engine: PostgresEngine, number: int) -> int:
        done = 0
        for turn in range(10):
            slot = Slot(free=2, queues=("far",), lasts=3_600_000_000, worker=f"w{number}", repeat=f"{number}.{turn}")
            request = ClaimRequest(session=yard.session.number, slots=(slot,))
            claims = (await engine.claim(request)).claims
            assert (await engine.claim(request)).claims == claims
            await engine.settle(ends(claims, progressed(50)))
            done += sum(verdict.applied for verdict in await engine.settle(ends(claims)))
        return done

    assert sum(await asyncio.gather(*(work(engine, number) for number, engine in enumerate(engines)))) == 80
    assert [one.id for one in await yard.engine.audit_log()] == ["e"]
    assert (await yard.engine.remember("k", "b", ["1"])).ids == ("1",)
    await yard.assert_figures()


async def test_of_many_managers_one_leads(yard: Yard) -> None:
    engines = [yard.engine, *await yard.open_many(4)]
    for term in range(1, 4):
        sessions = [await engine.open_session(SessionInfo(host="here")) for engine in engines]
        pairs = zip(engines, sessions, strict=True)
        leads = await asyncio.gather(*(engine.campaign(session.number) for engine, session in pairs))
        assert {lead.term for lead in leads} == {term}
        assert sum(lead.mine for lead in leads) == 1
        await engines[0].end_session(leads[0].session)


async def test_time_limits_hold_there_too(yard: Yard) -> None:
    def script():  # type: ignore[no-untyped-def]
        return (
            yield yard.engine._sql.asked("SELECT current_setting('lock_timeout'), current_setting('enable_seqscan')")
        )

    assert await yard.engine._writing.call(script) == [("5s", "off")]
    assert await yard.count("SELECT count(*) FROM pg_settings WHERE name = 'enable_seqscan' AND setting = 'on'") == 1


async def test_a_waiter_looks_again_by_itself(yard: Yard) -> None:
    assert not yard.engine._doorbell.hears
    assert not await yard.engine.wait(None, 0.05)
    assert await yard.engine.wait(None, 5)
