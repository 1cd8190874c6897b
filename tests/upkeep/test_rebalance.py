"""The leader divides keys among slots: what it reads, what it decides, and how soon."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from math import ceil
from random import Random

import msgspec
import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotLeader
from pitboss.model.ids import IdMaker
from pitboss.model.partition import OnMissing, Partition, PartitionChange, Partitioning
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.snapshot import PoolFigures
from pitboss.model.task import Claim, NewTask
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual
from pitboss.upkeep.duties import Duty, run_duties
from pitboss.upkeep.rebalance import REBALANCE_SECONDS, Rebalancer

QUEUE = "targets"
BALANCED = Partitioning(by="{state}", mode="balanced")
STATES = [f"S{number:02}" for number in range(50)]
TTL = 15 * SECOND


class Store(MemoryEngine):
    """Counts the reads."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.reads: Counter[bool] = Counter()
        self.new_id = IdMaker(clock.now, Random(1).getrandbits)

    async def partitions(self, queue: str, *, counts: bool = True) -> list[Partition]:
        self.reads[counts] += 1
        return await super().partitions(queue, counts=counts)


class Scene:
    """A store with one divided queue, a leader that outlives everything, and managers with slots."""

    def __init__(self, store: Store, clock: FakeClock, spec: Partitioning = BALANCED) -> None:
        self.store, self.clock, self.spec = store, clock, spec
        self.said: list[str] = []
        self.rebalancer = Rebalancer(store, store, clock, say=self.said.append)
        self.term = 0
        self.sessions: dict[str, int] = {}

    async def begin(self) -> None:
        await self.store.register([HandlerInfo(name="crawl", queue=QUEUE)])
        await self.store.declare(Declared(app="a", queues={QUEUE: QueueSettings(partitions=self.spec)}))
        leader = await self.store.open_session(SessionInfo(host="leader", ttl=10**15))
        self.term = (await self.store.campaign(leader.number)).term

    async def manager(self, node: str, places: int, *, ttl: int = 10**14) -> int:
        session = await self.store.open_session(SessionInfo(host=node, ttl=ttl, handlers=("crawl",)))
        self.sessions[node] = session.number
        await self.store.take_slots(session.number, "scrapers", node, range(places))
        return session.number

    async def put(self, states: dict[str, int]) -> None:
        await self.store.put(
            [
                NewTask(id=self.store.new_id(), handler="crawl", queue=QUEUE, params=json.dumps({"state": state}))
                for state, count in states.items()
                for _ in range(count)
            ]
        )

    async def look(self) -> None:
        self.clock.advance(1)
        await self.rebalancer.rebalance(self.term)

    async def keys(self) -> dict[str, Partition]:
        return {one.key: one for one in await MemoryEngine.partitions(self.store, QUEUE)}

    async def owners(self) -> dict[str, str | None]:
        return {key: one.owner for key, one in (await self.keys()).items()}

    async def claim(self, node: str, number: int, free: int = 1) -> list[Claim]:
        slot = Slot(free=free, pool="scrapers", number=number)
        return (await self.store.claim(ClaimRequest(session=self.sessions[node], slots=(slot,)))).claims


def play(scene: Callable[[Scene], Awaitable[None]], spec: Partitioning = BALANCED) -> Scene:
    clock = FakeClock()
    stage = Scene(Store(clock), clock, spec)

    async def main() -> None:
        await stage.begin()
        await scene(stage)

    run_virtual(main(), clock=clock)
    return stage


def test_new_keys_are_spread_and_then_nothing_is_counted_any_more() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 10)
        await stage.put({state: 1 + index for index, state in enumerate(STATES)})
        await stage.look()
        loads = Counter[str]()
        for one in (await stage.keys()).values():
            loads[one.owner or ""] += one.unfinished
        assert len(loads) == 10
        assert max(loads.values()) <= 1.05 * sum(loads.values()) / 10
        assert stage.store.reads == {False: 1, True: 1}
        for _ in range(50):
            await stage.look()
        assert stage.store.reads == {False: 51, True: 1}
        assert stage.said == []

    play(scene)


def test_a_slot_that_joins_gets_its_share_and_the_rest_stays() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 9)
        await stage.put(dict.fromkeys(STATES, 10))
        await stage.look()
        before = await stage.owners()
        await stage.manager("other", 1)
        await stage.look()
        after = await stage.owners()
        moved = {key for key in STATES if before[key] != after[key]}
        assert 3 <= len(moved) <= ceil(50 / 10)
        assert {after[key] for key in moved} == {"scrapers/9"}
        assert stage.said == [f"queue {QUEUE}: {len(moved)} keys → scrapers/9"]

    play(scene)


def test_the_keys_of_a_dead_session_go_on_at_the_next_look_and_its_running_tasks_too() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("lasts", 1)
        await stage.manager("dies", 1, ttl=TTL)
        await stage.put({"CA": 2, "TX": 2})
        await stage.look()
        dead = next(key for key, owner in (await stage.owners()).items() if owner == "scrapers/1")
        assert len(await stage.claim("dies", 1)) == 1
        stage.clock.advance("12s")
        await stage.look()
        assert (await stage.owners())[dead] == "scrapers/1"
        stage.clock.advance("2s")
        await stage.look()
        one = (await stage.keys())[dead]
        assert (one.owner, one.moving_to) == ("scrapers/0", None)
        assert len(await stage.claim("lasts", 0, free=9)) == 4

    play(scene)


def test_a_restart_within_the_grace_moves_nothing() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 2)
        first = await stage.manager("other", 2, ttl=TTL)
        await stage.put(dict.fromkeys(STATES, 5))
        await stage.look()
        before = await stage.owners()
        await stage.store.end_session(first)
        for _ in range(10):
            await stage.look()
        assert await stage.owners() == before
        await stage.manager("other", 2)
        for _ in range(10):
            await stage.look()
        assert await stage.owners() == before
        assert stage.said == []

    play(scene)


def test_a_key_moves_only_when_none_of_its_tasks_runs() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 2)
        await stage.put({"CA": 5, "TX": 5})
        await stage.look()
        owner = (await stage.owners())["CA"] or ""
        number = int(owner.rpartition("/")[2])
        assert len(await stage.claim("box", number)) == 1
        other = f"scrapers/{1 - number}"
        await stage.store.change_partition(QUEUE, "CA", PartitionChange(pinned=other))
        await stage.look()
        one = (await stage.keys())["CA"]
        assert (one.owner, one.moving_to) == (owner, other)
        assert all("TX" in one.params for one in await stage.claim("box", number, free=9))
        await stage.store.end_session(stage.sessions["box"])
        await stage.store.reclaim()
        await stage.look()
        one = (await stage.keys())["CA"]
        assert (one.owner, one.moving_to) == (other, None)

    play(scene)


def test_uneven_work_is_evened_out_at_most_once_a_minute_and_only_if_that_saves_much() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 2)
        await stage.put(dict.fromkeys("ABCDEFGH", 10))
        await stage.look()
        before = await stage.owners()
        heavy = [key for key, owner in before.items() if owner == before["A"]]
        await stage.put(dict.fromkeys(heavy, 12))
        for _ in range(70):
            await stage.look()
        assert await stage.owners() == before, "a move that saves 22 s of work is not worth it"
        await stage.put(dict.fromkeys(heavy, 100))
        for _ in range(45):
            await stage.look()
        assert await stage.owners() == before
        for _ in range(20):
            await stage.look()
        assert await stage.owners() != before
        assert len(stage.said) == 1

    play(scene)


def test_how_long_a_task_takes_decides_what_a_move_saves() -> None:
    async def scene(stage: Scene) -> None:
        await stage.store.register([HandlerInfo(name="crawl", queue=QUEUE, about=json.dumps({"usual": 10 * SECOND}))])
        await stage.manager("box", 2)
        await stage.put(dict.fromkeys("ABCDEFGH", 10))
        await stage.look()
        before = await stage.owners()
        heavy = [key for key, owner in before.items() if owner == before["A"]]
        await stage.put(dict.fromkeys(heavy, 12))
        for _ in range(70):
            await stage.look()
        assert await stage.owners() != before, "a move that saves 220 s of work is worth it"

    play(scene)


@pytest.mark.parametrize(("pause", "at_once", "moves"), [(9, 1, True), (9, 10, False), (0, 1, False)])
def test_the_pause_after_a_task_and_how_many_run_at_once_count_too(pause: int, at_once: int, moves: bool) -> None:
    """Only the runs counted: a move that saved minutes of pauses was not made, one that saved little was."""

    async def scene(stage: Scene) -> None:
        figures = PoolFigures(name="scrapers", concurrency=at_once, wanted=2, delay=(0, 2 * pause * SECOND))
        session = await stage.manager("box", 2)
        await stage.store.renew(session, json.dumps({"pools": [msgspec.to_builtins(figures)]}))
        await stage.put(dict.fromkeys("ABCDEFGH", 10))
        await stage.look()
        before = await stage.owners()
        heavy = [key for key, owner in before.items() if owner == before["A"]]
        await stage.put(dict.fromkeys(heavy, 12))
        for _ in range(70):
            await stage.look()
        assert (await stage.owners() != before) == moves

    play(scene)


def test_with_fewer_keys_than_slots_the_tasks_are_not_counted_each_time() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 5)
        await stage.put({"CA": 100, "TX": 1, "NV": 1})
        for _ in range(30):
            await stage.look()
        assert stage.store.reads[True] <= 2
        assert len(set((await stage.owners()).values())) == 3

    play(scene)


def test_slots_of_other_pools_and_queues_get_nothing() -> None:
    async def scene(stage: Scene) -> None:
        session = await stage.manager("box", 1)
        await stage.store.take_slots(session, "mailers", "box", [0, 1], queues=("mail",))
        await stage.store.take_slots(session, "helpers", "box", [0], queues=(QUEUE,))
        await stage.put(dict.fromkeys(STATES, 1))
        await stage.look()
        assert set((await stage.owners()).values()) == {"scrapers/0", "helpers/0"}

    play(scene)


STATIC = {0: ("CA", "NV"), 1: ("TX",)}


@pytest.mark.parametrize(
    ("on_missing", "owner"), [("hold", "scrapers/1"), ("steal", "scrapers/1"), ("reassign", "scrapers/0")]
)
def test_a_table_is_followed_and_a_missing_slot_as_declared(on_missing: OnMissing, owner: str) -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 1)
        await stage.put({"CA": 1, "NV": 1, "TX": 1, "ZZ": 1})
        await stage.look()
        owners = await stage.owners()
        assert (owners["CA"], owners["NV"], owners["TX"]) == ("scrapers/0", "scrapers/0", owner)
        assert owners["ZZ"] == ("scrapers/0" if on_missing == "reassign" else None)
        await stage.manager("other", 1)
        await stage.look()
        await stage.look()
        assert (await stage.owners())["TX"] == "scrapers/1"

    spec = Partitioning(by="{state}", mode="static", table=STATIC, pool="scrapers", on_missing=on_missing)
    play(scene, spec)


def test_without_slots_nothing_is_counted_or_written() -> None:
    async def scene(stage: Scene) -> None:
        await stage.put({"CA": 1})
        for _ in range(5):
            await stage.look()
        assert stage.store.reads == {False: 5}

    play(scene)


def test_many_keys_are_read_less_often() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 1)
        await stage.store.assign(QUEUE, {f"K{number}": "scrapers/0" for number in range(12_000)}, term=stage.term)
        for _ in range(24):
            await stage.look()
        assert stage.store.reads == {False: 8}

    play(scene)


def test_a_leader_whose_term_is_over_changes_nothing() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 1)
        await stage.put({"CA": 1})
        stage.term -= 1
        with pytest.raises(NotLeader):
            await stage.look()
        assert await stage.owners() == {"CA": None}

    play(scene)


def test_a_new_leader_gives_the_keys_within_half_a_second() -> None:
    async def scene(stage: Scene) -> None:
        await stage.manager("box", 1)
        await stage.put({"CA": 1})
        terms = iter([None, None])
        duty = Duty("rebalance", REBALANCE_SECONDS, stage.rebalancer.rebalance)
        running = asyncio.create_task(run_duties([duty], term=lambda: next(terms, stage.term), warn=stage.said.append))
        await asyncio.sleep(2.9 * REBALANCE_SECONDS)
        assert await stage.owners() == {"CA": None}
        await asyncio.sleep(0.2 * REBALANCE_SECONDS)
        assert await stage.owners() == {"CA": "scrapers/0"}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(scene)


def test_a_clock_that_goes_back_delays_no_look() -> None:
    """Regression: no key got a slot before the clock was where it had been."""

    async def scene(stage: Scene) -> None:
        await stage.manager("box", 2)
        await stage.put({"CA": 1})
        await stage.look()
        # As on PostgreSQL, when another client corrects the store's clock.
        stage.clock._now -= 3600 * SECOND
        await stage.put({"TX": 1})
        await stage.look()
        assert None not in (await stage.owners()).values()

    play(scene)
