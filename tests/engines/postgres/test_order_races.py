"""Order keys with many connections: never two at once, in order, nothing left behind, no deadlock."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.filter import by
from pitboss.model.outcome import Transition
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, Unique
from tests.engines.postgres.yard import AGAIN, DONE, Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=120)

SMOKE_SECONDS = 5.0
FAILED = Transition(state=State.FAILED, outcome="failed", charged=True)
_AT_ONCE = """
SELECT count(*) FROM (
    SELECT order_key FROM pitboss.tasks WHERE state IN ('pending', 'scheduled', 'running') AND order_key IS NOT NULL
    GROUP BY order_key HAVING count(*) > 1
) AS twice
"""
# Lines whose first task is not an unfinished one, and held tasks without a first one.
_WRONG = """
SELECT count(*) FROM (
    SELECT h.key FROM pitboss.order_heads AS h LEFT JOIN pitboss.tasks AS t ON t.id = h.task
    WHERE t.state IS NULL OR t.state IN ('completed', 'failed', 'cancelled') OR t.order_key <> h.key
    UNION ALL
    SELECT order_key FROM pitboss.tasks
    WHERE order_key IS NOT NULL AND state NOT IN ('completed', 'failed', 'cancelled')
        AND order_key NOT IN (SELECT key FROM pitboss.order_heads)
) AS wrong
"""
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def _drain(yard: Yard) -> None:
    """Complete everything that is left."""
    for session in await yard.engine.sessions():
        if session.number != yard.session.number:
            await yard.engine.end_session(session.number)
    for _ in range(2000):
        await yard.engine.reclaim()
        claims = (await yard.claim(50)).claims
        if not claims:
            return
        await yard.engine.settle(ends(claims))
    raise AssertionError("it does not end")


async def _assert_orderly(yard: Yard) -> None:
    assert await yard.count(_AT_ONCE) == 0
    assert await yard.count(_WRONG) == 0
    await _drain(yard)
    assert (await yard.engine.count(by(state=("held", "pending", "scheduled", "running")))).number == 0
    assert await yard.count("SELECT count(*) FROM pitboss.order_heads") == 0
    assert await yard.count(_DEADLOCKS) == 0
    await yard.assert_figures()


def _some_new(yard: Yard, keys: str = "abcd") -> NewTask:
    key = random.choice([*keys, None])
    unique = Unique(str(random.randrange(10))) if random.random() < 0.2 else None
    return yard.new(order_key=key, unique=unique, queue=random.choice("qr"))


def _some_end(yard: Yard) -> Transition:
    if random.random() < 0.3:
        return random.choice([AGAIN, FAILED])
    follow_ups = (_some_new(yard), _some_new(yard)) if random.random() < 0.2 else ()
    return Transition(state=State.COMPLETED, outcome="completed", charged=True, follow_ups=follow_ups)


async def test_puts_ends_cancels_and_retries_at_once(yard: Yard) -> None:
    engines = await yard.open_many(8)
    end = asyncio.get_running_loop().time() + SMOKE_SECONDS
    done = 0

    async def put(engine: PostgresEngine) -> None:
        await engine.put([_some_new(yard) for _ in range(random.randint(1, 6))])

    async def work(engine: PostgresEngine) -> None:
        nonlocal done
        session = await engine.open_session(SessionInfo(host="x", handlers=("job",), ttl=60_000_000))
        for _ in range(10):
            claims = (await engine.claim(ClaimRequest(session=session.number, slots=(Slot(free=10),)))).claims
            said = [Settlement(id=one.id, token=one.token, transition=_some_end(yard)) for one in claims]
            random.shuffle(said)
            done += sum(answer.applied for answer in await engine.settle(said[: max(1, len(said) - 1)]))
        await engine.end_session(session.number)

    async def operate(engine: PostgresEngine) -> None:
        await engine.cancel(by(queue=random.choice("qr")), limit=random.choice([3, 10]))
        await engine.retry(by(queue=random.choice("qr")), limit=random.choice([3, 20]))

    async def sweep(engine: PostgresEngine) -> None:
        await engine.reclaim(100)
        assert await yard.count(_AT_ONCE) == 0
        assert await yard.count(_WRONG) == 0

    async def keep(act: Callable[[PostgresEngine], Awaitable[None]], engine: PostgresEngine) -> None:
        while asyncio.get_running_loop().time() < end:
            await act(engine)

    acts = [put, put, work, work, work, operate, operate, sweep]
    await asyncio.gather(*(keep(act, engine) for act, engine in zip(acts, engines, strict=True)))
    assert done > 50
    await _assert_orderly(yard)


async def test_each_key_is_worked_off_in_order(yard: Yard) -> None:
    engines = await yard.open_many(6)
    keys = [f"k{number}" for number in range(4)]
    per_key = 40
    started: defaultdict[str, list[str]] = defaultdict(list)
    key_of: dict[str, str] = {}

    async def put(engine: PostgresEngine, key: str) -> None:
        left = yard.news(per_key, order_key=key)
        key_of.update({task.id: key for task in left})
        while left:
            some, left = left[:3], left[3:]
            await engine.put(some)

    async def work(engine: PostgresEngine) -> None:
        while sum(map(len, started.values())) < len(keys) * per_key:
            claims: list[Claim] = (await yard.claim(3, engine)).claims
            for claim in claims:
                started[key_of[claim.id]].append(claim.id)
            await engine.settle(ends(claims, random.choice([DONE, DONE, FAILED])))
            await asyncio.sleep(0 if claims else 0.002)

    putting = [put(engine, key) for engine, key in zip(engines, keys, strict=False)]
    await asyncio.gather(*putting, *(work(engine) for engine in engines))
    for key in keys:
        assert started[key] == sorted(task for task, its in key_of.items() if its == key)
    await _assert_orderly(yard)


async def test_a_put_beside_the_end_of_the_first_one_is_never_left_behind(yard: Yard) -> None:
    other = await yard.open()
    for _ in range(60):
        first, second = yard.new(order_key="k"), yard.new(order_key="k")
        await yard.engine.put([first])
        claims = (await yard.claim(1)).claims
        await asyncio.gather(yard.engine.settle(ends(claims)), other.put([second]))
        claims = (await yard.claim(5)).claims
        assert [claim.id for claim in claims] == [second.id]
        await yard.engine.settle(ends(claims))
    await _assert_orderly(yard)


async def test_puts_of_many_keys_in_any_order_do_not_deadlock(yard: Yard) -> None:
    engines = await yard.open_many(6)

    async def put(engine: PostgresEngine) -> None:
        for _ in range(15):
            keys = random.sample([f"k{number}" for number in range(30)], 20)
            await engine.put([yard.new(order_key=key) for key in keys])

    await asyncio.gather(*map(put, engines))
    assert await yard.count("SELECT count(*) FROM pitboss.order_heads") == 30
    assert await yard.count(_AT_ONCE) == await yard.count(_WRONG) == await yard.count(_DEADLOCKS) == 0


async def test_many_tasks_with_few_keys_are_put_in_one_call(yard: Yard) -> None:
    tasks = [yard.new(order_key=f"k{number % 7}" if number % 2 else None) for number in range(1500)]
    placed = await yard.engine.put(tasks)
    first = {task.order_key: task.id for task in reversed(tasks)}
    for task, one in zip(tasks, placed, strict=True):
        waits = task.order_key is None or first[task.order_key] == task.id
        assert (one.state, one.reason) == ((State.PENDING, None) if waits else (State.HELD, "order"))
    assert [one.created for one in await yard.engine.put(tasks)] == [False] * 1500
    await yard.assert_figures()


async def test_a_task_that_meets_another_one_is_not_the_first_in_line(yard: Yard) -> None:
    plain, taken = yard.new(), yard.new(unique=Unique("u"))
    await yard.engine.put([plain, taken])
    again = NewTask(id=plain.id, handler="job", order_key="k")
    met = yard.new(unique=Unique("u"), order_key="k")
    fresh = yard.news(2, order_key="k")
    placed = await yard.engine.put([again, met, *fresh])
    assert [(one.created, one.state) for one in placed] == [
        (False, State.PENDING),
        (False, State.PENDING),
        (True, State.PENDING),
        (True, State.HELD),
    ]
    assert await yard.count(_WRONG) == 0
    only = yard.new(unique=Unique("u"), order_key="l")
    await yard.engine.put([only])
    assert await yard.count("SELECT count(*) FROM pitboss.order_heads") == 1
