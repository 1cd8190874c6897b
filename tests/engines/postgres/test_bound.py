"""Settlements that name the batch and member of their claim, rightly, wrongly or not at all."""

import asyncio
import time

import msgspec
import psycopg
import pytest

from pitboss.engines.postgres.script import Ask
from pitboss.model.batch import BatchStatus, NewBatch
from pitboss.model.outcome import progressed
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Leased, NewResource, PoolRules, Report, ResourceOutcome, Want
from pitboss.model.settlement import APPLIED, Settlement
from pitboss.model.task import Claim
from tests.engines.postgres.traffic import traffic
from tests.engines.postgres.yard import DONE, Yard

pytestmark = pytest.mark.fresh_loop(limit=60)


async def _claimed(yard: Yard, *, items: int = 2) -> list[Claim]:
    """Items of a batch, each with a member."""
    await yard.engine.declare_pool("p", PoolRules())
    await yard.engine.add_resources("p", [NewResource(name=f"m{number}") for number in range(items)])
    await yard.engine.register([HandlerInfo(name="scarce", queue="scarce", resources="p")])
    tasks = yard.news(items, handler="scarce", queue="scarce")
    await yard.engine.create_batch(NewBatch(id="b", name="b"), tasks)
    claims = (await yard.claim(items, queues=("scarce",))).claims
    assert len(claims) == items
    return claims


def _settled(claim: Claim, *, batch: bool = True, resource: bool = True) -> Settlement:
    assert claim.leased is not None
    return Settlement(
        id=claim.id,
        token=claim.token,
        transition=DONE,
        queue=claim.queue,
        batch=claim.batch if batch else None,
        resource=claim.leased.id if resource else None,
    )


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("resource", [True, False])
async def test_a_batch_and_a_member_that_are_not_named_are_found(yard: Yard, batch: bool, resource: bool) -> None:
    claims = await _claimed(yard, items=3)
    verdicts = await yard.engine.settle([_settled(one, batch=batch, resource=resource) for one in claims])
    assert verdicts == [APPLIED] * 3
    assert [one.in_use for one in await yard.engine.resources("p")] == [0, 0, 0]
    (shown,) = await yard.engine.batches()
    assert shown.status is BatchStatus.DONE
    await yard.assert_figures()


async def test_a_wrong_name_does_not_change_the_settlement(yard: Yard) -> None:
    claims = await _claimed(yard)
    wrong = [msgspec.structs.replace(_settled(one), resource="p/unknown", batch="none") for one in claims]
    assert await yard.engine.settle(wrong) == [APPLIED] * 2
    assert [one.in_use for one in await yard.engine.resources("p")] == [0, 0]


async def test_a_report_of_progress_does_not_wait_for_the_member(yard: Yard, postgres_dsn: str) -> None:
    claim, _ = await _claimed(yard)
    report = msgspec.structs.replace(_settled(claim), transition=progressed(50, None))
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await other.execute("SELECT FROM pitboss.resources FOR UPDATE")
        async with asyncio.timeout(3):
            assert await yard.engine.settle([report]) == [APPLIED]
        await other.rollback()


async def test_a_claim_that_finds_its_member_locked_is_told_to_ask_again_soon(yard: Yard, postgres_dsn: str) -> None:
    await _claimed(yard)
    await yard.engine.add_resources("p", [NewResource(name="new")])
    await yard.engine.put([yard.new(handler="scarce", queue="scarce")])
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await other.execute("SELECT FROM pitboss.resources WHERE name = 'new' FOR UPDATE")
        claimed = await yard.claim(5, queues=("scarce",))
        assert claimed.claims == []
        assert claimed.next_due is not None
        assert 0 < claimed.next_due - time.time_ns() // 1000 + 1_000_000 < 1_100_000
        await other.rollback()
    assert len((await yard.claim(5, queues=("scarce",))).claims) == 1


async def test_a_member_that_comes_back_during_the_claim_is_asked_for_soon(
    yard: Yard, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None was ready when the claim looked; one is ready when it looks for the reason."""
    await _claimed(yard)
    await yard.engine.put([yard.new(handler="scarce", queue="scarce")])
    ask = yard.engine._sql.ask

    def meanwhile(name: str, now: int | None = None, **values: object) -> Ask:
        if name == "pool_shortage":
            with psycopg.connect(postgres_dsn) as other:
                other.execute("UPDATE pitboss.resources SET stage = 'ready', in_use = 0 WHERE name = 'm0'")
        return ask(name, now, **values)

    monkeypatch.setattr(yard.engine._sql, "ask", meanwhile)
    before = time.time_ns() // 1000
    claimed = await yard.claim(5, queues=("scarce",))
    assert (claimed.claims, claimed.shortages) == ([], ())
    assert claimed.next_due is not None
    assert before < claimed.next_due < before + 5_000_000


async def test_a_good_use_asks_for_strikes_only_if_there_are_any(yard: Yard) -> None:
    good = Report(outcome=ResourceOutcome.OK, destination="site")
    bad = Report(outcome=ResourceOutcome.BLOCKED, destination="site")

    async def sent(claim: Claim, report: Report) -> list[str]:
        with traffic(yard.engine) as seen:
            await yard.engine.settle([msgspec.structs.replace(_settled(claim), report=report)])
        return [name for name in seen.statements if name.startswith("strike")]

    async def released(report: Report) -> list[str]:
        assert isinstance(await yard.engine.acquire("p", Want(), 1_000_000, lease="l"), Leased)
        with traffic(yard.engine) as seen:
            await yard.engine.release("l", report)
        return [name for name in seen.statements if name.startswith("strike")]

    claims = await _claimed(yard, items=4)
    assert await sent(claims[0], good) == []
    assert await sent(claims[1], bad) == ["strike_list", "strike_add"]
    assert await sent(claims[2], good) == ["strike_forget"]
    assert await sent(claims[3], good) == []
    assert await released(good) == []
    assert await released(bad) == ["strike_list", "strike_add"]
    assert await released(good) == ["strike_forget"]
    assert await released(good) == []
