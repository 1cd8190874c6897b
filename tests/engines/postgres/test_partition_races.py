"""Keys with many managers at once: never two owners, nothing over a limit, nothing twice, no deadlock."""

import asyncio
import random
from collections import Counter
from contextlib import suppress

import psycopg
import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.batch import NewBatch, Pause, Resume
from pitboss.model.errors import InvalidInput, NotLeader, SessionLost
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.partition import PartitionChange
from pitboss.model.pool_slot import slot_name
from pitboss.model.queue import QueueChange
from pitboss.model.session import SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Claim
from tests.engines.postgres.keyed_yard import WORK, claim, divide, give, keyed, seat
from tests.engines.postgres.yard import AGAIN, Yard, ends
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.fresh_loop(limit=120)

KEYS = [f"k{number}" for number in range(12)]
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
_CROWDED = """
SELECT count(*) FROM (
    SELECT partition FROM pitboss.tasks WHERE state = 'running' AND partition IS NOT NULL
    GROUP BY partition HAVING count(*) > %s
) AS crowded
"""


class Held:
    """Which slots work on which keys, as their managers know it: from the answer of a claim until just before its end
    is sent. That is within the time for which the store lets them."""

    def __init__(self) -> None:
        self._slots: dict[str, Counter[int]] = {key: Counter() for key in KEYS}
        self.both = 0
        self.most = 0

    def begin(self, key: str, slot: int) -> None:
        self._slots[key][slot] += 1
        self.both += len(+self._slots[key]) > 1
        self.most = max(self.most, self._slots[key].total())

    def end(self, key: str, slot: int) -> None:
        self._slots[key][slot] -= 1


class Manager:
    """Claims for its slots and ends what it got, now and then by giving it back. It can be killed."""

    def __init__(self, yard: Yard, engine: PostgresEngine, held: Held, name: str) -> None:
        self._yard, self._engine, self._held, self._name = yard, engine, held, name
        self._dice = random.Random(name)
        self.done: list[str] = []
        self.killed = False

    async def run(self, over: asyncio.Event) -> None:
        while not over.is_set():
            info = SessionInfo(host=self._name, handlers=("job",), ttl=3_600_000_000)
            session = await self._engine.open_session(info)
            self.killed = False
            slots = [
                one.number for one in await self._engine.take_slots(session.number, "default", self._name, range(3))
            ]
            while not over.is_set() and not self.killed:
                await self._round(session.number, slots)
            await self._engine.end_session(session.number)

    async def _round(self, session: int, slots: list[int]) -> None:
        try:
            claims = (await claim(self._yard, *slots, session=session, engine=self._engine, free=2)).claims
        except SessionLost:
            return
        begun = [(one, _key(one), slots[one.slot]) for one in claims if _key(one) is not None]
        for _, key, slot in begun:
            self._held.begin(key or "", slot)
        await asyncio.sleep(0)
        for _, key, slot in begun:
            self._held.end(key or "", slot)
        if self.killed:
            # Its claims are lost with its session.
            return
        again = self._dice.random() < 0.1
        answers = await self._engine.settle(ends(claims, AGAIN) if again else ends(claims))
        if not again:
            self.done += [one.id for one, answer in zip(claims, answers, strict=True) if answer.applied]


def _key(one: Claim) -> str | None:
    return next((key for key in KEYS if f'"{key}"' in one.params), None)


async def _move_keys(yard: Yard, slots: int, over: asyncio.Event) -> None:
    """The leader and an operator, who give keys away all the time."""
    dice = random.Random(1)
    other = await yard.open(listen=False)
    while not over.is_set():
        await give(yard, {key: dice.randrange(slots) for key in dice.sample(KEYS, 4)})
        owner = slot_name("default", dice.randrange(slots))
        await other.change_partition(WORK, dice.choice(KEYS), PartitionChange(owner=owner))
        await yard.engine.reclaim()
        await yard.engine.partitions(WORK)


async def _kill(managers: list[Manager], over: asyncio.Event) -> None:
    dice = random.Random(2)
    while not over.is_set():
        await asyncio.sleep(0.05)
        dice.choice(managers).killed = True


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "most"), [("balanced", None), ("static", 2), ("balanced", 1)])
async def test_no_key_has_two_owners_while_keys_move_and_managers_die(yard: Yard, mode: str, most: int | None) -> None:
    await divide(yard, mode, max_per_key=most)
    engines = await yard.open_many(3)
    await give(yard, {key: number % 9 for number, key in enumerate(KEYS)})
    dice = random.Random(0)
    tasks = [keyed(yard, dice.choice([*KEYS, None])) for _ in range(1500)]
    for start in range(0, len(tasks), 100):
        await yard.engine.put(tasks[start : start + 100])
    held, over = Held(), asyncio.Event()
    managers = [Manager(yard, engine, held, f"m{number}") for number, engine in enumerate(engines)]
    acts = [asyncio.create_task(one.run(over)) for one in managers]
    acts += [asyncio.create_task(_move_keys(yard, 9, over)), asyncio.create_task(_kill(managers, over))]
    try:
        while sum(len(one.done) for one in managers) < len(tasks):
            await asyncio.wait(acts, timeout=0.1, return_when=asyncio.FIRST_EXCEPTION)
            for act in acts:
                if act.done():
                    act.result()
            if most is not None:
                assert await yard.count(_CROWDED, most) == 0
    finally:
        over.set()
        await asyncio.gather(*acts, return_exceptions=True)
    assert held.both == 0
    assert held.most <= (most or held.most)
    assert sorted(task for one in managers for task in one.done) == sorted(task.id for task in tasks)
    assert await yard.count(_DEADLOCKS) == 0
    await yard.assert_figures()


async def test_a_claim_under_way_ends_before_its_key_goes_to_another_slot(yard: Yard) -> None:
    """The claim has chosen the task already; the leader must see that it runs."""
    await divide(yard)
    await seat(yard, 2)
    await give(yard, {"a": 0})
    await yard.engine.put([keyed(yard, "a")])
    await claim(yard, 0, free=0)
    with psycopg.connect(yard.dsn) as other:
        # To the leader, this is a claim under way.
        other.execute("SELECT FROM pitboss.queues WHERE name = 'work' FOR UPDATE")
        moving = asyncio.create_task(give(yard, {"a": 1}))
        claiming = asyncio.create_task(claim(yard, 0))
        done, _ = await asyncio.wait([moving, claiming], timeout=0.2)
        assert not done
    changed, claimed = await asyncio.gather(moving, claiming)
    (row,) = await yard.engine.partitions(WORK)
    # Either the claim came first, and the move waits for its end; or the move did, and the slot got nothing.
    assert (changed, len(claimed.claims), row.owner) in [(0, 1, "default/0"), (1, 0, "default/1")]


async def test_managers_that_begin_at_once_get_different_slots(yard: Yard) -> None:
    engines = await yard.open_many(6)
    info = SessionInfo(host="h", handlers=("job",), ttl=3_600_000_000)
    sessions = [await engine.open_session(info) for engine in engines]
    for _ in range(5):
        taken = await asyncio.gather(
            *(
                engine.take_slots(session.number, "default", "node", range(4))
                for engine, session in zip(engines, sessions, strict=True)
            )
        )
        numbers = [slot.number for slots in taken for slot in slots]
        assert sorted(numbers) == list(range(24))
        assert len({slots[0].node for slots in taken}) == 6
    assert await yard.count(_DEADLOCKS) == 0


async def test_puts_of_the_same_new_keys_do_not_wait_for_each_other(yard: Yard) -> None:
    """Not even for one whose transaction lasts, and that puts the same keys in another order."""
    await divide(yard)
    engines = await yard.open_many(4)
    keys = [f"key {number}" for number in range(300)]
    with psycopg.connect(yard.dsn) as caller:
        yard.engine.put_within(caller, [keyed(yard, key) for key in keys])
        puts = []
        for number, engine in enumerate(engines):
            shuffled = random.Random(number).sample(keys, len(keys))
            puts.append(engine.put([keyed(yard, key) for key in shuffled * 4]))
        await asyncio.gather(*puts)
        caller.commit()
    assert await yard.count(_DEADLOCKS) == 0
    await asyncio.gather(*(engine.reclaim() for engine in engines))
    assert [one.key for one in await yard.engine.partitions(WORK)] == sorted(keys)
    assert await yard.count("SELECT count(*) FROM pitboss.new_partitions") == 0
    assert sum(one.unfinished for one in await yard.engine.partitions(WORK)) == 300 * 17


async def _until_one_waits(yard: Yard) -> None:
    async with asyncio.timeout(10):
        while not await yard.count("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            pass


async def test_a_leader_and_a_sweep_write_new_keys_in_one_order(postgres_server: PostgresServer) -> None:
    """Regression: in a database that sorts as people do, they waited for each other."""
    dsn = postgres_server.create_database("en")
    try:
        async with Yard(dsn) as yard, await psycopg.AsyncConnection.connect(dsn) as sweep:
            await divide(yard)
            insert = "INSERT INTO pitboss.partitions (queue, key) VALUES (%s, %s)"
            await sweep.execute(insert, (WORK, "B"))
            giving = asyncio.create_task(give(yard, {"a": 0, "B": 1}))
            await _until_one_waits(yard)
            await sweep.execute(insert, (WORK, "a"))
            await sweep.commit()
            assert await giving == 2
            assert await yard.count(_DEADLOCKS) == 0
    finally:
        postgres_server.drop_database(dsn)


async def test_a_leader_of_the_past_moves_no_key(yard: Yard) -> None:
    await divide(yard)
    term = (await yard.engine.campaign(yard.session.number)).term
    await give(yard, {"a": 0})
    with psycopg.connect(yard.dsn) as other:
        other.execute("UPDATE pitboss.leader SET term = term + 1")
        moving = asyncio.create_task(yard.engine.assign(WORK, {"a": "default/1"}, term=term))
        done, _ = await asyncio.wait([moving], timeout=0.2)
        assert not done
    with pytest.raises(NotLeader):
        await moving
    (row,) = await yard.engine.partitions(WORK)
    assert row.owner == "default/0"


async def test_batches_are_drawn_paused_and_ended_while_managers_claim(yard: Yard) -> None:
    await divide(yard, "affinity", max_per_key=3)
    engines = await yard.open_many(3)
    await give(yard, {key: number % 9 for number, key in enumerate(KEYS)})
    for number in range(3):
        items = [keyed(yard, KEYS[n % 12], priority=n % 3) for n in range(300)]
        await yard.engine.create_batch(NewBatch(id=f"b{number}", lane=f"l{number}"), items)
    held, over = Held(), asyncio.Event()
    managers = [Manager(yard, engine, held, f"m{number}") for number, engine in enumerate(engines)]
    acts = [asyncio.create_task(one.run(over)) for one in managers]
    acts.append(asyncio.create_task(_kill(managers, over)))
    dice = random.Random(3)
    try:
        while sum(len(one.done) for one in managers) < 900:
            batch = f"b{dice.randrange(3)}"
            for act in (Pause(), Resume()):
                with suppress(InvalidInput):  # it has ended
                    await yard.engine.act_on_batch(batch, act)
                await yard.engine.reclaim()
            await yard.engine.change_queue(WORK, QueueChange(max_per_key=dice.randrange(1, 4)))
            for one in acts:
                if one.done():
                    one.result()
    finally:
        over.set()
        await asyncio.gather(*acts, return_exceptions=True)
    assert held.most <= 3
    assert (
        (await yard.engine.count(by(state="completed"))).number == (await yard.engine.count(EVERYTHING)).number == 900
    )
    assert [batch.left for batch in await yard.engine.batches()] == [0, 0, 0]
    assert await yard.count(_DEADLOCKS) == 0
    await yard.assert_figures()


async def test_cancelled_tasks_are_not_given(yard: Yard) -> None:
    await divide(yard)
    engines = await yard.open_many(2)
    await seat(yard, 3)
    await give(yard, {key: number % 3 for number, key in enumerate(KEYS)})
    tasks = [keyed(yard, random.Random(n).choice(KEYS)) for n in range(600)]
    await yard.engine.put(tasks)
    cancelled = 0
    given: list[Claim] = []

    async def cancel() -> None:
        nonlocal cancelled
        for _ in range(30):
            cancelled += (await engines[0].cancel(by(queue=WORK, state="pending"), limit=10)).changed

    async def take() -> None:
        for _ in range(30):
            given.extend((await claim(yard, 0, 1, 2, free=3, engine=engines[1])).claims)

    await asyncio.gather(cancel(), take())
    states = Counter(task.state for task in await yard.engine.get([one.id for one in given]) if task is not None)
    assert states == {State.RUNNING: len(given)}
    assert cancelled + len(given) + (await yard.engine.count(by(state="pending"))).number == 600
    await yard.assert_figures()
