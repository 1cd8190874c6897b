"""Many managers at once: nothing twice, nothing over a limit, no deadlock."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.errors import QueueFull
from pitboss.model.filter import by
from pitboss.model.limits import Window
from pitboss.model.outcome import Transition
from pitboss.model.queue import QueueChange
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import APPLIED, STALE_CLAIM, Settlement
from pitboss.model.states import State
from pitboss.model.task import Unique
from tests.engines.postgres.yard import AGAIN, DONE, Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=90)

SMOKE_SECONDS = 5.0
_SHARED_KEYS = """
SELECT count(*) FROM (
    SELECT unique_key FROM pitboss.tasks
    WHERE unique_key IS NOT NULL AND state IN ('held', 'scheduled', 'pending', 'running')
    GROUP BY unique_key HAVING count(*) > 1
) AS twice
"""


async def test_of_many_puts_of_one_key_one_creates(yard: Yard) -> None:
    engines = await yard.open_many(8)
    puts = [engines[i % 8].put([yard.new(unique=Unique("only"))]) for i in range(200)]
    placed = [one for (one,) in await asyncio.gather(*puts)]
    assert sum(one.created for one in placed) == 1
    assert len({one.id for one in placed}) == 1
    assert await yard.count("SELECT count(*) FROM pitboss.tasks") == 1
    await yard.assert_figures()


async def test_a_freed_key_is_taken_by_one(yard: Yard) -> None:
    engines = await yard.open_many(6)
    for _ in range(5):
        await yard.engine.put([yard.new(unique=Unique("again"))])
        claims = (await yard.claim(1)).claims
        settled = asyncio.create_task(yard.engine.settle(ends(claims)))
        answers = await asyncio.gather(*(engine.put([yard.new(unique=Unique("again"))]) for engine in engines * 3))
        await settled
        created = {one.id for (one,) in answers if one.created}
        assert len(created) <= 1
        assert (await yard.engine.count(by(key="again", state=("pending", "running")))).number == len(created)
        await yard.engine.settle(ends((await yard.claim(5)).claims))


async def test_an_operator_s_retry_and_a_put_do_not_share_a_key(yard: Yard) -> None:
    other = await yard.open()
    for _ in range(10):
        task = yard.new(unique=Unique("shared"))
        await yard.engine.put([task])
        await yard.engine.cancel(by(id=task.id))
        retried, (placed,) = await asyncio.gather(
            other.retry(by(id=task.id)), yard.engine.put([yard.new(unique=Unique("shared"))])
        )
        assert (retried.changed, placed.created) in ((1, False), (0, True))
        await yard.engine.cancel(by(key="shared"))


async def test_the_same_tasks_put_at_once_are_created_once(yard: Yard) -> None:
    engines = await yard.open_many(8)
    tasks = yard.news(50)
    answers = await asyncio.gather(*(engine.put(tasks) for engine in engines))
    assert sum(one.created for answer in answers for one in answer) == 50
    assert all([one.id for one in answer] == [task.id for task in tasks] for answer in answers)
    await yard.assert_figures()


async def test_capacity_is_exact_with_many_writers(yard: Yard) -> None:
    await yard.engine.change_queue("small", QueueChange(capacity=50))
    engines = await yard.open_many(8)
    tries = [engines[i % 8].put(yard.news(1 + i % 3, queue="small")) for i in range(80)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    created = sum(len(answer) for answer in answers if isinstance(answer, list))
    assert all(isinstance(answer, list | QueueFull) for answer in answers)
    assert 48 <= created <= 50
    assert await yard.count("SELECT count(*) FROM pitboss.tasks") == created


async def test_no_task_is_claimed_twice(yard: Yard) -> None:
    engines = await yard.open_many(8)
    await yard.engine.put([*yard.news(300, queue="a"), *yard.news(300, queue="b")])

    async def drain(engine: PostgresEngine) -> list[str]:
        found: list[str] = []
        idle = 0
        while idle < 3:
            claims = (await yard.claim(random.randint(1, 20), engine, queues=("a", "b"))).claims
            found += [claim.id for claim in claims]
            idle = 0 if claims else idle + 1
        return found

    found = [task for tasks in await asyncio.gather(*map(drain, engines)) for task in tasks]
    assert len(found) == len(set(found)) == 600
    await yard.assert_figures()


async def test_one_outcome_is_accepted(yard: Yard) -> None:
    engines = await yard.open_many(4)
    await yard.engine.put(yard.news(100))
    claims = (await yard.claim(100)).claims
    failed = Transition(state=State.FAILED, outcome="failed", charged=True)
    ways = [DONE, failed, AGAIN, DONE]
    answers = await asyncio.gather(
        *(engine.settle(ends(claims, way)) for engine, way in zip(engines, ways, strict=True))
    )
    for i in range(100):
        verdicts = [answer[i] for answer in answers]
        assert all(verdict in (APPLIED, STALE_CLAIM) for verdict in verdicts)
        outcomes = {way.outcome for way, verdict in zip(ways, verdicts, strict=True) if verdict.applied}
        assert len(outcomes) == 1
    await yard.assert_figures()


async def test_a_rate_is_never_exceeded_and_nearly_used_up(yard: Yard) -> None:
    per = 200_000
    await yard.engine.change_queue("rated", QueueChange(rate=(Window(10, per),)))
    await yard.engine.put(yard.news(200, queue="rated"))
    engines = await yard.open_many(4)
    starts: list[int] = []
    end = asyncio.get_running_loop().time() + 1.5

    async def take(engine: PostgresEngine) -> None:
        while asyncio.get_running_loop().time() < end:
            starts.extend(claim.claimed_at for claim in (await yard.claim(7, engine)).claims)

    await asyncio.gather(*map(take, engines))
    starts.sort()
    assert len(starts) > 30
    assert all(later - earlier >= per for earlier, later in zip(starts, starts[10:], strict=False))


async def test_a_busy_store_has_no_deadlock(yard: Yard) -> None:
    engines = await yard.open_many(8)
    end = asyncio.get_running_loop().time() + SMOKE_SECONDS
    done = 0

    async def put(engine: PostgresEngine) -> None:
        keys = [Unique(str(random.randrange(40))) if random.random() < 0.5 else None for _ in range(20)]
        await engine.put([yard.new(queue=random.choice("abc"), unique=key) for key in keys])

    async def work(engine: PostgresEngine) -> None:
        nonlocal done
        session = await engine.open_session(SessionInfo(host="x", handlers=("job",), ttl=60_000_000))
        for _ in range(10):
            claimed = await engine.claim(ClaimRequest(session=session.number, slots=(Slot(free=30),)))
            settlements = [
                Settlement(id=claim.id, token=claim.token, transition=_some_end(yard)) for claim in claimed.claims
            ]
            random.shuffle(settlements)
            done += sum(verdict.applied for verdict in await engine.settle(settlements[:25]))
        await engine.end_session(session.number)

    async def operate(engine: PostgresEngine) -> None:
        await engine.cancel(by(queue=random.choice("abc")), limit=10)
        await engine.retry(by(queue=random.choice("abc")), limit=20)
        await engine.prune(by(state="completed"), limit=50)

    async def sweep(engine: PostgresEngine) -> None:
        await engine.reclaim(100)

    async def keep(act: Callable[[PostgresEngine], Awaitable[None]], engine: PostgresEngine) -> None:
        while asyncio.get_running_loop().time() < end:
            await act(engine)

    acts = [put, put, work, work, work, work, operate, sweep]
    await asyncio.gather(*(keep(act, engine) for act, engine in zip(acts, engines, strict=True)))
    assert done > 100
    assert await yard.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    await yard.assert_figures()
    assert await yard.count(_SHARED_KEYS) == 0


def _some_end(yard: Yard) -> Transition:
    follow_ups = (yard.new(unique=Unique(str(random.randrange(40)))),) if random.random() < 0.3 else ()
    if random.random() < 0.3:
        return AGAIN
    return Transition(state=State.COMPLETED, outcome="completed", charged=True, follow_ups=follow_ups)
