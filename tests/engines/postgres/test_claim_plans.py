"""Claims are planned: what a claim sends when its plan is right, and that a wrong plan costs one repetition."""

import psycopg
import pytest

from pitboss.model.batch import NewBatch
from pitboss.model.limits import Window
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, PoolRules
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.states import State
from pitboss.model.task import NewTask
from tests.engines.postgres.traffic import traffic
from tests.engines.postgres.yard import AGAIN, Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=60)

PLAIN = ["claim_next"]
DRAW = ["batch_draw_open", "batch_draw_items"]
RATED = ["queue_lock_rated", "queue_windows", "claim_next", "start_add", "queue_windows"]
POOLED = ["claim_queues", "claim_candidates", "member_lock_ready", "pool_rules", "claim_take_bound", "member_write"]
HOUR = 3_600_000_000


async def _rate(yard: Yard, queue: str, count: int) -> None:
    await yard.engine.change_queue(queue, QueueChange(rate=(Window(count, HOUR),)))


async def _bind(yard: Yard, queue: str, members: int) -> None:
    """Tasks of the queue need one of these members."""
    await yard.engine.declare_pool(queue, PoolRules())
    await yard.engine.add_resources(queue, [NewResource(name=f"m{number}") for number in range(members)])
    await yard.engine.register([HandlerInfo(name="scarce", queue=queue, resources=queue)])


async def _start_batch(yard: Yard, items: list[NewTask], name: str = "b") -> None:
    await yard.engine.create_batch(NewBatch(id=name, lane=name), items)


async def _claims(yard: Yard, free: int, *queues: str) -> tuple[int, list[str], int]:
    """How many tasks one claim got, what it sent, and in how many round trips."""
    with traffic(yard.engine) as sent:
        claimed = await yard.claim(free, queues=queues)
    return len(claimed.claims), sent.statements, sent.round_trips


async def test_a_plain_claim_is_one_statement_in_one_round_trip(yard: Yard) -> None:
    await yard.engine.put(yard.news(20, queue="q"))
    assert await _claims(yard, 5, "q") == (5, PLAIN, 1)
    assert await _claims(yard, 5, "q") == (5, PLAIN, 1)


async def test_a_cold_claim_with_a_rate_is_repeated_once(yard: Yard) -> None:
    await _rate(yard, "q", 8)
    await yard.engine.put(yard.news(20, queue="q"))
    assert await _claims(yard, 5, "q") == (5, [*PLAIN, *RATED], 5)
    assert await _claims(yard, 5, "q") == (3, RATED, 4)


async def test_a_cold_claim_on_items_of_a_batch_is_repeated_once(yard: Yard) -> None:
    await _start_batch(yard, yard.news(20, queue="q"))
    assert await _claims(yard, 5, "q") == (5, [*PLAIN, *DRAW, *PLAIN], 5)
    assert await _claims(yard, 5, "q") == (5, [*DRAW, *PLAIN], 4)


async def test_a_cold_claim_with_a_pool_and_a_batch_is_repeated_once(yard: Yard) -> None:
    await _bind(yard, "q", 10)
    await _start_batch(yard, yard.news(20, handler="scarce", queue="q"))
    assert await _claims(yard, 5, "q") == (5, [*PLAIN, *DRAW, *POOLED], 8)
    # All items were drawn, and the plan says so.
    assert await _claims(yard, 1, "q") == (1, POOLED, 4)


async def test_items_left_to_draw_are_part_of_the_plan_while_no_member_is_free(yard: Yard) -> None:
    await _bind(yard, "q", 1)
    await _start_batch(yard, yard.news(1500, handler="scarce", queue="q"))
    assert (await _claims(yard, 1, "q"))[0] == 1
    for _ in range(2):
        assert await _claims(yard, 1, "q") == (0, [*DRAW, "claim_queues", "pool_shortage"], 6)


async def test_a_queue_that_gets_a_rate_gives_no_more_than_that(yard: Yard) -> None:
    await yard.engine.put(yard.news(20, queue="q"))
    await _claims(yard, 5, "q")
    await _rate(yard, "q", 3)
    assert await _claims(yard, 5, "q") == (3, [*PLAIN, *RATED], 5)
    assert (await _claims(yard, 5, "q"))[0] == 0


async def test_a_queue_that_gets_a_pool_gives_no_more_than_its_members(yard: Yard) -> None:
    await yard.engine.put(yard.news(20, queue="q"))
    await _claims(yard, 5, "q")
    await _bind(yard, "q", 3)
    got, statements, _ = await _claims(yard, 5, "q")
    assert (got, statements[: len(PLAIN) + len(POOLED)]) == (3, [*PLAIN, *POOLED])
    assert statements.count("claim_next") == 1
    assert (await _claims(yard, 5, "q"))[:2] == (0, ["claim_queues", "pool_shortage"])


async def test_a_queue_with_a_rate_that_gets_a_pool_keeps_both(yard: Yard) -> None:
    await _rate(yard, "q", 4)
    await yard.engine.put(yard.news(20, queue="q"))
    assert (await _claims(yard, 1, "q"))[0] == 1
    await _bind(yard, "q", 2)
    got, statements, _ = await _claims(yard, 5, "q")
    assert (got, statements.count("claim_next"), statements.count("claim_queues")) == (2, 1, 1)
    await yard.engine.add_resources("q", [NewResource(name=f"n{number}") for number in range(9)])
    assert (await _claims(yard, 5, "q"))[0] == 1


async def test_a_queue_that_loses_its_rate_or_pool_is_plain_again(yard: Yard) -> None:
    await _rate(yard, "rated", 1)
    await _bind(yard, "pooled", 1)
    await yard.engine.put([*yard.news(9, queue="rated"), *yard.news(9, queue="pooled")])
    assert (await _claims(yard, 2, "rated"))[0] == 1
    assert (await _claims(yard, 2, "pooled"))[0] == 1
    await yard.engine.change_queue("rated", QueueChange(rate=()))
    await yard.engine.forget(["scarce"])
    assert await _claims(yard, 2, "rated") == (2, ["queue_lock_rated", "queue_windows", "claim_next"], 3)
    assert await _claims(yard, 2, "pooled") == (2, ["claim_queues", "claim_candidates", "claim_take_bound"], 3)
    for queue in ("rated", "pooled"):
        assert await _claims(yard, 2, queue) == (2, PLAIN, 1)


async def test_a_rate_that_comes_between_lock_and_claim_is_kept(yard: Yard, postgres_dsn: str) -> None:
    """The second queue gets its rate when the first one is locked already."""
    await _rate(yard, "a", 2)
    await yard.engine.put([*yard.news(5, queue="a"), *yard.news(5, queue="b")])
    await _claims(yard, 1, "a", "b")
    changes = ["UPDATE pitboss.queues SET rate_counts = '{1}', rate_spans = '{3600000000}' WHERE name = 'b'"]

    def change(statement: str) -> None:
        if statement == "claim_next" and changes:
            with psycopg.connect(postgres_dsn) as other:
                other.execute(changes.pop().encode())

    with traffic(yard.engine, before=change) as sent:
        claimed = await yard.claim(9, queues=("a", "b"))
    assert sorted(claim.queue for claim in claimed.claims) == ["a", "b"]
    assert sent.statements == ["queue_lock_rated", "queue_windows", "claim_next", *RATED]
    assert (await _claims(yard, 9, "a", "b"))[0] == 0


async def test_an_answer_is_in_order_though_another_claim_held_the_first_task(yard: Yard, postgres_dsn: str) -> None:
    """The free place got the next task of that queue, and the place ahead an older one of another queue."""
    await _rate(yard, "rated", 5)
    older = yard.new(queue="a", priority=1)
    first, later = yard.new(queue="b"), yard.new(queue="b", priority=1)
    await yard.engine.put([older, first, later])
    request = ClaimRequest(session=yard.session.number, slots=(Slot(free=1, ahead=2),))
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await other.execute("SELECT FROM pitboss.tasks WHERE id = %s FOR UPDATE", (first.id,))
        claimed = await yard.engine.claim(request)
        await other.rollback()
    assert [claim.id for claim in claimed.claims] == [older.id, later.id]


async def test_groups_that_were_filled_before_a_wrong_plan_are_filled_once(yard: Yard) -> None:
    await _rate(yard, "a", 2)
    await yard.engine.put(yard.news(9, queue="a"))
    request = ClaimRequest(
        session=yard.session.number, slots=(Slot(free=1, queues=("a",)), Slot(free=2, queues=("b",)))
    )
    await yard.engine.claim(request)
    await _start_batch(yard, yard.news(9, queue="b"))
    with traffic(yard.engine) as sent:
        claimed = await yard.engine.claim(request)
    assert [(claim.queue, claim.slot, claim.token.claim) for claim in claimed.claims] == [
        ("a", 0, 1),
        ("b", 1, 1),
        ("b", 1, 1),
    ]
    assert sent.statements.count("batch_draw_items") == 1
    assert (await _claims(yard, 9, "a"))[0] == 0
    await yard.assert_figures()


async def test_groups_that_get_pools_are_claimed_within_one_transaction(yard: Yard) -> None:
    await _bind(yard, "q", 3)
    await yard.engine.put([*yard.news(5, queue="a"), *yard.news(5, handler="scarce", queue="q")])
    slots = (Slot(free=2, queues=("a",)), Slot(free=9, queues=("q",)))
    with traffic(yard.engine) as sent:
        claimed = await yard.engine.claim(ClaimRequest(session=yard.session.number, slots=slots))
    assert [claim.queue for claim in claimed.claims] == ["a", "a", "q", "q", "q"]
    assert sent.statements.count("claim_queues") == 1


@pytest.mark.parametrize("pooled", [False, True])
async def test_many_expired_items_cost_one_repetition(yard: Yard, postgres_dsn: str, pooled: bool) -> None:
    """There are more of them than a claim has slots, or may be repeated."""
    if pooled:
        await _bind(yard, "q", 35)
    items = yard.news(35, handler="scarce" if pooled else "job", queue="q")
    await _start_batch(yard, items)
    await yard.engine.settle(ends((await yard.claim(35, queues=("q",))).claims, AGAIN))
    late = [item.id for item in items[:30]]
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as other:
        await other.execute("UPDATE pitboss.tasks SET expires_at = 1 WHERE id = ANY (%s::uuid[])", (late,))
    with traffic(yard.engine) as sent:
        claimed = await yard.claim(1, queues=("q",))
    assert [claim.id for claim in claimed.claims] == [items[30].id]
    assert sent.statements.count("task_cancel") == 1
    assert sent.statements.count("claim_queues" if pooled else "claim_next") == 2
    assert {task.state for task in await yard.engine.get(late) if task} == {State.CANCELLED}
    await yard.assert_figures()
