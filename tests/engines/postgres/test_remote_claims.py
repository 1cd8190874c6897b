"""Claims of remote workers on PostgreSQL: what they send, and what several servers do at once."""

import asyncio
from typing import Any

import psycopg
import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.limits import Window
from pitboss.model.outcome import progressed
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, PoolRules
from pitboss.model.session import ClaimRequest, Order, SessionInfo, Slot
from pitboss.model.states import State
from pitboss.model.task import Claim
from pitboss.testing.clock import FakeClock
from tests.engines.postgres.traffic import traffic
from tests.engines.postgres.yard import Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=60)

FAR = HandlerInfo(name="far", queue="far", remote=True)
LASTS = 3600 * SECOND


def _slot(**options: Any) -> Slot:
    known: dict[str, Any] = {"free": 1, "queues": ("far",), "handlers": ("far",), "lasts": LASTS}
    return Slot(**known | options)


async def _ask(yard: Yard, *slots: Slot, engine: PostgresEngine | None = None) -> list[Claim]:
    request = ClaimRequest(session=yard.session.number, slots=slots)
    return (await (engine or yard.engine).claim(request)).claims


async def _put(yard: Yard, number: int, **options: Any) -> list[str]:
    await yard.engine.register([FAR])
    tasks = yard.news(number, **{"handler": "far", "queue": "far"} | options)
    await yard.engine.put(tasks)
    return [task.id for task in tasks]


async def _workers(yard: Yard, ids: list[str]) -> list[str | None]:
    return [None if task is None else task.worker for task in await yard.engine.get(ids)]


async def test_slots_of_many_workers_are_filled_by_one_statement(yard: Yard) -> None:
    ids = await _put(yard, 40)
    with traffic(yard.engine) as sent:
        claims = await _ask(yard, *(_slot(worker=f"w{number}", free=1 + number % 2) for number in range(20)))
    assert (sent.statements, sent.round_trips) == (["claim_next_remote"], 1)
    assert [claim.id for claim in claims] == ids[:30]
    tasks = [task for task in await yard.engine.get([claim.id for claim in claims]) if task is not None]
    assert [task.worker for task in tasks] == [f"w{claim.slot}" for claim in claims]
    assert [task.claim_expires_at for task in tasks] == [claim.claim_expires_at for claim in claims]
    assert {task.claim_expires_at - (task.started_at or 0) for task in tasks if task.claim_expires_at} == {LASTS}
    await yard.assert_figures()


async def test_keys_are_looked_up_by_one_statement(yard: Yard) -> None:
    await _put(yard, 40)
    slots = [_slot(worker=f"w{number}", repeat=f"k{number}") for number in range(20)]
    with traffic(yard.engine) as sent:
        first = await _ask(yard, *slots)
    assert (sent.statements, sent.round_trips) == (["claim_lock_keys", "claim_again", "claim_next_remote"], 3)
    assert await _ask(yard, *slots) == first
    mixed = await _ask(yard, *slots[:3], _slot(worker="new", repeat="new"), *slots[3:5])
    assert [(claim.id, claim.slot) for claim in mixed if claim.slot != 3] == [
        (claim.id, claim.slot + (claim.slot > 2)) for claim in first[:5]
    ]
    assert await _workers(yard, [claim.id for claim in mixed if claim.slot == 3]) == ["new"]


async def test_two_slots_with_the_same_key_get_the_same_claims(yard: Yard) -> None:
    await _put(yard, 5)
    claims = await _ask(yard, _slot(repeat="k", free=2), _slot(repeat="k", free=2), _slot(repeat="other"))
    assert [claim.slot for claim in claims] == [0, 0, 1, 1, 2]
    assert [claim.id for claim in claims[:2]] == [claim.id for claim in claims[2:4]]
    assert len({claim.id for claim in claims}) == 3


async def test_a_request_that_is_repeated_while_it_is_under_way_gets_the_same_claims(yard: Yard) -> None:
    await _put(yard, 50)
    engines = [yard.engine, *await yard.open_many(4)]
    for turn in range(5):
        answers = await asyncio.gather(
            *(_ask(yard, _slot(repeat=f"k{turn}", worker="w"), engine=engine) for engine in engines)
        )
        assert {len(claims) for claims in answers} == {1}
        assert len({claims[0].id for claims in answers}) == 1
    (queue,) = await yard.engine.queues()
    assert queue.counts == {State.PENDING: 45, State.RUNNING: 5}


@pytest.mark.parametrize("order", [None, Order("created_at", descending=True)])
async def test_many_servers_give_each_task_once(yard: Yard, order: Order | None) -> None:
    await _put(yard, 300)
    engines = [yard.engine, *await yard.open_many(3)]

    async def work(number: int, engine: PostgresEngine) -> list[str]:
        done: list[str] = []
        while claims := await _ask(yard, *(_slot(worker=f"{number}", order=order) for _ in range(8)), engine=engine):
            assert set(await _workers(yard, [claim.id for claim in claims])) == {f"{number}"}
            done += [claim.id for claim in claims]
            assert all(answer.applied for answer in await engine.settle(ends(claims)))
        return done

    done = await asyncio.gather(*(work(number, engine) for number, engine in enumerate(engines)))
    given = [task for one in done for task in one]
    assert (len(given), len(set(given))) == (300, 300)
    await yard.assert_figures()


async def test_an_order_goes_on_behind_tasks_that_others_are_claiming(yard: Yard, postgres_dsn: str) -> None:
    ids = await _put(yard, 4)
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await other.execute("SELECT FROM pitboss.tasks WHERE id = ANY (%s::uuid[]) FOR UPDATE", (ids[2:],))
        claims = await _ask(yard, _slot(order=Order("id", descending=True)), _slot(order=Order("id", descending=True)))
        await other.rollback()
    assert [claim.id for claim in claims] == ids[1::-1]


async def test_an_order_keeps_to_the_rate_of_each_queue(yard: Yard) -> None:
    await _put(yard, 3, priority=1)
    await _put(yard, 3, queue="slow")
    await yard.engine.change_queue("slow", QueueChange(rate=(Window(1, 3600 * SECOND),)))
    newest = Order("created_at", descending=True)
    claims = await _ask(yard, *(_slot(queues=("far", "slow"), order=newest) for _ in range(6)))
    assert sorted(claim.queue for claim in claims) == ["far", "far", "far", "slow"]
    assert claims[0].queue == "slow"


async def test_slots_that_want_different_things_are_filled_in_one_transaction(yard: Yard) -> None:
    await yard.engine.register([FAR, HandlerInfo(name="else", queue="else", remote=True)])
    await yard.engine.put([*yard.news(3, handler="far", queue="far"), *yard.news(3, handler="else", queue="else")])
    other = _slot(queues=("else",), handlers=("else",))
    with traffic(yard.engine) as sent:
        claims = await _ask(yard, _slot(), _slot(), other, other)
    assert [claim.queue for claim in claims] == ["far", "far", "else", "else"]
    assert (sent.statements, sent.round_trips) == (["claim_next_remote"] * 2, 3)


async def test_items_of_a_batch_are_drawn_for_a_named_queue_beside_a_slot_for_all_queues(yard: Yard) -> None:
    await yard.engine.register([FAR])
    await yard.engine.create_batch(NewBatch(id="b"), yard.news(3, handler="far", queue="far"))
    claims = await _ask(yard, Slot(free=1), _slot(free=3))
    assert [(claim.slot, claim.batch) for claim in claims] == [(1, "b")] * 3
    await yard.assert_figures()


async def test_a_claim_with_a_member_also_has_its_time_limit(yard: Yard) -> None:
    """Remote workers have no use for members; a queue that is bound to a pool gives one all the same."""
    await yard.engine.declare_pool("p", PoolRules())
    await yard.engine.add_resources("p", [NewResource(name="m0"), NewResource(name="m1")])
    await yard.engine.register([HandlerInfo(name="scarce", queue="scarce", resources="p", remote=True)])
    tasks = yard.news(3, handler="scarce", queue="scarce")
    await yard.engine.put(tasks)
    slot = {"queues": ("scarce",), "handlers": ("scarce",), "order": Order("id", descending=True)}
    claims = await _ask(yard, _slot(worker="w0", repeat="k0", **slot), _slot(worker="w1", **slot))
    assert [(claim.id, claim.slot, claim.leased is not None) for claim in claims] == [
        (tasks[2].id, 0, True),
        (tasks[1].id, 1, True),
    ]
    assert await _workers(yard, [claim.id for claim in claims]) == ["w0", "w1"]
    (again,) = await _ask(yard, _slot(repeat="k0", **slot))
    assert (again.token, again.claim_expires_at) == (claims[0].token, claims[0].claim_expires_at)


async def test_a_manager_s_claim_reads_nothing_of_a_queue_of_remote_workers(yard: Yard) -> None:
    await _put(yard, 5000)
    await yard.engine.put(yard.news(10))
    with traffic(yard.engine) as sent:
        claimed = await yard.claim(20)
    assert sent.statements == ["claim_next"]
    assert {claim.queue for claim in claimed.claims} == {"default"}
    assert len(claimed.claims) == 10
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("VACUUM pitboss.tasks")
    before = await _pages(yard)
    await yard.claim(20)
    assert await _pages(yard) - before < 200


async def test_a_manager_s_report_of_progress_touches_no_index(yard: Yard) -> None:
    await _put(yard, 10)
    await yard.engine.put(yard.news(10))
    claims = (await yard.claim(10)).claims
    remote = await _ask(yard, _slot(free=10))
    before = await _hot(yard)
    for number in range(5):
        await yard.engine.settle(ends(claims[number : number + 1], progressed(number + 1, "note")))
    assert await _hot(yard) == before + 5
    await yard.engine.settle(ends(remote[:1], progressed()))
    assert await _hot(yard) == before + 5


async def test_a_sweep_reads_none_of_the_live_claims_of_a_dead_session(yard: Yard) -> None:
    await _put(yard, 3000)
    session = await yard.engine.open_session(SessionInfo(host="server", ttl=3600 * SECOND))
    request = ClaimRequest(session=session.number, slots=(_slot(free=3000),))
    assert len((await yard.engine.claim(request)).claims) == 3000
    await yard.engine.end_session(session.number)
    await yard.engine.reclaim()
    before = await _pages(yard)
    assert (await yard.engine.reclaim()).lost == 0
    assert await _pages(yard) - before < 200


async def test_a_session_is_forgotten_though_its_remote_claims_live(yard: Yard, postgres_dsn: str) -> None:
    await _put(yard, 1)
    session = await yard.engine.open_session(SessionInfo(host="server", ttl=3600 * SECOND))
    (claim,) = (await yard.engine.claim(ClaimRequest(session=session.number, slots=(_slot(),)))).claims
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await other.execute("UPDATE pitboss.sessions SET expires_at = 1 WHERE number = %s", (session.number,))
    await yard.engine.reclaim()
    assert await yard.count("SELECT count(*) FROM pitboss.sessions WHERE number = %s", session.number) == 0
    assert [answer.applied for answer in await yard.engine.settle(ends([claim]))] == [True]


async def test_a_sign_of_life_and_a_sweep_at_the_same_time_agree(postgres_dsn: str) -> None:
    """Either the claim is extended and not swept, or it is swept and the report is refused."""
    clock = FakeClock()
    async with Yard(postgres_dsn, clock=clock) as yard:
        await _put(yard, 200)
        engines = [yard.engine, *await yard.open_many(2)]
        claims = await _ask(yard, *(_slot() for _ in range(200)))
        clock.advance_to(clock.now() + LASTS - 1)
        signed = 0

        async def sign() -> list[bool]:
            nonlocal signed
            answers: list[bool] = []
            for claim in claims:
                if signed == 100:
                    clock.advance("1us")
                answers += [answer.applied for answer in await engines[1].settle(ends([claim], progressed()))]
                signed += 1
            return answers

        async def sweep() -> int:
            lost = 0
            while signed < len(claims):
                lost += (await engines[2].reclaim(3)).lost
            return lost

        applied, lost = await asyncio.gather(sign(), sweep())
        tasks = [task for task in await yard.engine.get([claim.id for claim in claims]) if task is not None]
        swept = [task.state is State.PENDING for task in tasks]
        assert applied == [True] * 100 + [False] * 100
        assert sum(swept) == lost
        assert not any(swept[:100])
        await yard.assert_figures()


async def _pages(yard: Yard) -> int:
    """Pages of tasks and its indexes that were touched so far."""
    await yard.flush_statistics()
    return await yard.count(
        "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_all_tables"
        " WHERE schemaname = 'pitboss' AND relname = 'tasks'"
    )


async def _hot(yard: Yard) -> int:
    """Updates of tasks so far that wrote no index."""
    await yard.flush_statistics()
    return await yard.count(
        "SELECT n_tup_hot_upd FROM pg_stat_all_tables WHERE schemaname = 'pitboss' AND relname = 'tasks'"
    )
