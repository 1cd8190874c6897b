"""Workers that serve a queue with partitions: each asks for itself, under the number of its slot."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory import MemoryEngine
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import Refused, StoreUnavailable
from pitboss.model.outcome import Outcome
from pitboss.model.partition import Mode, Partitioning
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.session import Claimed, ClaimRequest, SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual
from tests.dispatch.stage import CoroutineWorker, Stage, Work, at_once, taking

QUEUE = "targets"


class Watched(MemoryEngine):
    """Remembers what was asked, and can be down."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.requests: list[ClaimRequest] = []
        self.taken: list[list[PoolSlot]] = []
        self.down = self.refusals = 0
        self.on_claims: Callable[[], None] = lambda: None
        self.has_taken = asyncio.Event()

    async def claim(self, request: ClaimRequest) -> Claimed:
        self.requests.append(request)
        claimed = await super().claim(request)
        if claimed.claims:
            self.on_claims()
        return claimed

    async def take_slots(
        self,
        session: int,
        pool: str,
        node: str,
        places: Sequence[int],
        *,
        queues: tuple[str, ...] | None = None,
        exact: bool = False,
    ) -> list[PoolSlot]:
        if self.down:
            self.down -= 1
            raise StoreUnavailable("it is down", why="test", fix="none")
        try:
            found = await super().take_slots(session, pool, node, places, queues=queues, exact=exact)
        except Refused:
            self.refusals += 1
            raise
        self.taken.append(found)
        self.has_taken.set()
        return found


class Scene(Stage):
    """A stage with a queue that has partitions."""

    def __init__(self, mode: Mode = "balanced", table: dict[int, tuple[str, ...]] | None = None) -> None:
        super().__init__()
        self.engine: Watched = Watched(self.clock)
        self.mode: Mode = mode
        self.table = table or {}
        self.term = 0

    async def divide(self, *, on: bool = True) -> None:
        spec = Partitioning(by="{state}", mode=self.mode, table=self.table) if on else None
        await self.engine.declare(
            Declared(app=f"shop{on}", queues={QUEUE: QueueSettings(partitions=spec)}), session=self.term or None
        )

    async def lead(self) -> None:
        session = await self.engine.open_session(SessionInfo(host="leader", ttl=10**15))
        self.term = (await self.engine.campaign(session.number)).term

    async def assign(self, owners: Mapping[str, str]) -> None:
        await self.engine.assign(QUEUE, owners, term=self.term)

    async def put_states(self, *states: str) -> None:
        await self.engine.register([HandlerInfo(name="work", queue=QUEUE)])
        await self.engine.put(
            [
                NewTask(id=self.new_id(), handler="work", queue=QUEUE, params=json.dumps({"state": state}))
                for state in states
            ]
        )

    def at(self, dispatcher: Dispatcher, place: int | None, work: Work = at_once, **options: int) -> CoroutineWorker:
        name = f"w{place}" if place is not None else f"x{len(self.started)}"
        worker = CoroutineWorker(self, dispatcher, name, options.get("capacity", 1), work)
        dispatcher.add_worker(worker, pool="scrapers", place=place)
        return worker

    @property
    def ran(self) -> list[tuple[str, str]]:
        """Which worker ran which state."""
        return [(worker, json.loads(claim.params)["state"]) for _, worker, claim in self.started]


def test_a_number_that_another_manager_has_is_asked_for_again_until_it_is_free() -> None:
    """Workers that were asked for by number got another one, and the keys of another slot."""
    scene = Scene("static")
    told: list[str] = []

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA")
        other = await scene.engine.open_session(SessionInfo(host="other", ttl=10**15))
        await scene.engine.take_slots(other.number, "scrapers", "other", [1])
        await scene.assign({"CA": "scrapers/1"})
        dispatcher = scene.dispatcher()
        numbers = dispatcher.claimer.slot_numbers
        numbers.exact, numbers.refused = frozenset({"scrapers"}), lambda error: told.append(error.what)
        scene.at(dispatcher, 1)
        await dispatcher.start()
        await asyncio.sleep(10)
        assert (told, scene.ran) == (["slot 1 of pool scrapers is taken"], [])
        await scene.engine.end_session(other.number)
        await asyncio.sleep(10)
        assert (numbers.number("scrapers", 1), scene.ran) == (1, [("w1", "CA")])
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)


def test_each_worker_gets_the_tasks_of_its_own_keys() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states(*["CA", "NV", "TX"] * 5)
        dispatcher = scene.dispatcher()
        scene.at(dispatcher, 0)
        scene.at(dispatcher, 1)
        await dispatcher.start()
        await asyncio.sleep(0.1)
        assert scene.ran == []
        await scene.assign({"CA": "scrapers/0", "NV": "scrapers/0", "TX": "scrapers/1"})
        await scene.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    assert set(scene.ran) == {("w0", "CA"), ("w0", "NV"), ("w1", "TX")}
    assert len(scene.ran) == 15
    assert [(one.number, one.place, one.node) for one in scene.engine.taken[0]] == [(0, 0, "stage"), (1, 1, "stage")]
    assert len(scene.engine.taken) == 1


def test_nothing_is_claimed_ahead_and_no_slot_asks_for_more_than_its_worker_has_room() -> None:
    scene = Scene("affinity")

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states(*["CA", "NV", "TX"] * 100)
        dispatcher = scene.dispatcher()
        for place in range(3):
            scene.at(dispatcher, place, taking(0.001), capacity=2)
        await dispatcher.start()
        await scene.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    asked = [slot for request in scene.engine.requests[1:] for slot in request.slots]
    assert {slot.number for slot in asked} == {0, 1, 2}
    assert all(slot.ahead == 0 and slot.free <= 2 for slot in asked)
    assert len(scene.ran) == 300


def test_a_pool_without_such_a_queue_takes_no_slots_and_asks_as_before() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.put(200)
        dispatcher = scene.dispatcher()
        scene.worker(dispatcher, taking(0.001))
        await dispatcher.start()
        await scene.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    assert scene.engine.taken == []
    assert all(len(request.slots) == 1 and request.slots[0].number is None for request in scene.engine.requests)
    assert any(slot.ahead for request in scene.engine.requests for slot in request.slots)


def test_of_two_groups_only_the_one_with_the_divided_queue_takes_slots() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA")
        await scene.put(50)
        dispatcher = scene.dispatcher()
        plain = CoroutineWorker(scene, dispatcher, "plain", 1, taking(0.01))
        scraper = CoroutineWorker(scene, dispatcher, "scraper", 1, taking(0.01))
        dispatcher.add_worker(plain, pool="others", queues=("default",))
        dispatcher.add_worker(scraper, pool="scrapers", queues=(QUEUE,))
        await dispatcher.start()
        await asyncio.sleep(0.1)
        await scene.assign({"CA": "scrapers/0"})
        await scene.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    assert {one.pool for slots in scene.engine.taken for one in slots} == {"scrapers"}
    numbers = {slot.pool: slot.number for request in scene.engine.requests for slot in request.slots}
    assert numbers == {"others": None, "scrapers": 0}


def test_a_queue_that_gets_partitions_while_it_is_served_and_loses_them_again() -> None:
    scene = Scene()

    async def main() -> tuple[set[int | None], set[int | None]]:
        await scene.lead()
        await scene.put_states(*["CA"] * 50)
        dispatcher = scene.dispatcher()
        scene.at(dispatcher, 0, taking(0.1))
        await dispatcher.start()
        await asyncio.sleep(0.5)
        await scene.divide()
        await scene.put_states("CA")
        await scene.assign({"CA": "scrapers/0"})
        await asyncio.sleep(1)
        with_numbers = {slot.number for slot in scene.engine.requests[-1].slots}
        await scene.divide(on=False)
        await asyncio.sleep(1)
        without = {slot.number for slot in scene.engine.requests[-1].slots}
        await scene.until_finished()
        await dispatcher.stop()
        return with_numbers, without

    assert run_virtual(main(), clock=scene.clock) == ({0}, {None})
    assert len(scene.ran) == 51


def test_a_worker_that_dies_keeps_its_place_and_its_successor_its_number() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA", "TX")
        dispatcher = scene.dispatcher()
        first = scene.at(dispatcher, 0, taking(1000))
        scene.at(dispatcher, 1, taking(0.5))
        await dispatcher.start()
        await scene.assign({"CA": "scrapers/0", "TX": "scrapers/1"})
        await asyncio.sleep(0.2)
        first.kill()
        dispatcher.remove_worker(first.id)
        await asyncio.sleep(3)
        second = CoroutineWorker(scene, dispatcher, "second", 1, at_once)
        dispatcher.add_worker(second, pool="scrapers")
        await scene.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    assert sorted(scene.ran) == [("second", "CA"), ("w0", "CA"), ("w1", "TX")]
    assert len(scene.engine.taken) == 1


def test_a_pool_that_grows_takes_slots_and_one_that_shrinks_gives_them_up() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        dispatcher = scene.dispatcher()
        dispatcher.set_places({"scrapers": [0]})
        scene.at(dispatcher, 0)
        await dispatcher.start()
        await asyncio.sleep(0.1)
        dispatcher.set_places({"scrapers": [0, 1, 2]})
        await asyncio.sleep(0.1)
        dispatcher.set_places({"scrapers": [2]})
        await asyncio.sleep(0.1)
        dispatcher.set_places({"scrapers": []})
        await asyncio.sleep(0.1)
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    assert [[one.number for one in slots] for slots in scene.engine.taken] == [[0], [0, 1, 2], [2], []]


def test_a_place_is_given_up_when_its_last_task_is_settled() -> None:
    scene = Scene()

    async def main() -> list[list[str]]:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA", "TX")
        dispatcher = scene.dispatcher()
        dispatcher.set_places({"scrapers": [0, 1]})
        workers = [scene.at(dispatcher, place, taking(10)) for place in (0, 1)]
        await dispatcher.start()
        await scene.assign({"CA": "scrapers/0", "TX": "scrapers/1"})
        await asyncio.sleep(1)
        dispatcher.set_places({"scrapers": [0]})
        dispatcher.close_worker(workers[1].id)
        there = []
        for seconds in (5, 10):
            await asyncio.sleep(seconds)
            there.append([slot.name for slot in await scene.engine.slots()])
        await dispatcher.stop()
        return there

    assert run_virtual(main(), clock=scene.clock) == [["scrapers/0", "scrapers/1"], ["scrapers/0"]]


def test_a_claim_for_a_worker_that_closed_meanwhile_goes_back_unstarted() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        dispatcher = scene.dispatcher()
        old = scene.at(dispatcher, 0)
        await dispatcher.start()
        await asyncio.sleep(0.1)
        await scene.put_states("CA")
        scene.engine.on_claims = lambda: dispatcher.close_worker(old.id)
        await scene.assign({"CA": "scrapers/0"})
        await asyncio.sleep(0.1)
        assert scene.ran == []
        assert await scene.states() == {State.PENDING: 1}
        new = CoroutineWorker(scene, dispatcher, "new", 1, at_once)
        dispatcher.add_worker(new, pool="scrapers", place=0)
        await scene.until_finished()
        await dispatcher.stop()
        assert (await scene.tasks())[0].attempts == 1

    run_virtual(main(), clock=scene.clock)
    assert scene.ran == [("new", "CA")]


def test_a_claim_for_a_worker_that_died_meanwhile_goes_back_unstarted() -> None:
    """It was started on the worker that was gone: the task ran for ever, and its key could not move."""
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        dispatcher = scene.dispatcher()
        old = scene.at(dispatcher, 0)
        await dispatcher.start()
        await asyncio.sleep(0.1)
        await scene.put_states("CA")

        def old_dies() -> None:
            dispatcher.remove_worker(old.id)

        scene.engine.on_claims = old_dies
        await scene.assign({"CA": "scrapers/0"})
        await asyncio.sleep(0.1)
        assert scene.ran == []
        assert await scene.states() == {State.PENDING: 1}
        new = CoroutineWorker(scene, dispatcher, "new", 1, at_once)
        dispatcher.add_worker(new, pool="scrapers", place=0)
        await scene.until_finished()
        await dispatcher.stop()
        assert (await scene.tasks())[0].attempts == 1

    run_virtual(main(), clock=scene.clock)
    assert scene.ran == [("new", "CA")]


def test_a_task_that_must_run_alone_waits_for_its_own_worker() -> None:
    scene = Scene()
    together: list[int] = []

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        dispatcher = scene.dispatcher()

        async def work(claim: Claim) -> Outcome:
            together.append(len(dispatcher.running()))
            return await taking(5)(claim)

        busy = CoroutineWorker(scene, dispatcher, "busy", 4, work)
        idle = CoroutineWorker(scene, dispatcher, "idle", 4, work)
        dispatcher.add_worker(busy, pool="scrapers", place=0)
        dispatcher.add_worker(idle, pool="scrapers", place=1)
        await dispatcher.start()
        await scene.put_states("CA")
        await scene.assign({"CA": "scrapers/0"})
        await asyncio.sleep(0.1)
        await scene.put_states("CA")
        await asyncio.sleep(0.1)
        # Both are lost with the worker, which makes each of them run alone the next time.
        busy.kill()
        dispatcher.remove_worker(busy.id)
        again = CoroutineWorker(scene, dispatcher, "again", 4, work)
        dispatcher.add_worker(again, pool="scrapers", place=0)
        await scene.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    assert [worker for worker, _ in scene.ran] == ["busy", "busy", "again", "again"]
    assert together == [1, 2, 1, 1]


def test_a_store_that_is_down_delays_the_slots_and_a_lost_session_ends_them() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA")
        scene.engine.down = 3
        dispatcher = scene.dispatcher()
        scene.at(dispatcher, 0)
        session = await dispatcher.start()
        await scene.engine.has_taken.wait()
        await scene.assign({"CA": "scrapers/0"})
        await scene.until_finished()
        await scene.engine.end_session(session.number)
        dispatcher.set_places({"scrapers": [0, 1]})
        await asyncio.sleep(0.1)
        assert dispatcher.lost
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)
    assert scene.ran == [("w0", "CA")]
    assert scene.lost == 1
    assert len(scene.engine.taken) == 1


def test_a_worker_that_rests_is_not_asked_for() -> None:
    scene = Scene()

    async def main() -> list[float]:
        await scene.lead()
        await scene.divide()
        await scene.put_states(*["CA"] * 4)
        dispatcher = scene.dispatcher()
        worker = CoroutineWorker(scene, dispatcher, "w0", 1, at_once)
        dispatcher.add_worker(worker, pool="scrapers", rest=lambda: 2.0, place=0)
        await dispatcher.start()
        await scene.assign({"CA": "scrapers/0"})
        await scene.until_finished()
        await dispatcher.stop()
        return [moment / 1e6 for moment, _, _ in scene.started]

    began = run_virtual(main(), clock=scene.clock)
    assert [round(after - before, 2) for before, after in pairwise(began)] == [2.0, 2.0, 2.0]


def test_a_manager_beside_slots_that_are_kept_takes_them_over_when_they_are_free() -> None:
    """It kept numbers that no table had until it was restarted, and no worker ran the keys of the table."""
    scene = Scene("static", {0: ("CA",), 1: ("TX",)})

    async def main() -> list[int]:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA", "TX")
        before = await scene.engine.open_session(SessionInfo(host="before", ttl=15 * SECOND))
        await scene.engine.take_slots(before.number, "scrapers", "before", [0, 1])
        await scene.assign({"CA": "scrapers/0", "TX": "scrapers/1"})
        await scene.engine.end_session(before.number)
        dispatcher = scene.dispatcher()
        scene.at(dispatcher, 0)
        scene.at(dispatcher, 1)
        await dispatcher.start()
        await asyncio.sleep(14)
        assert scene.ran == []
        await asyncio.sleep(4)
        await dispatcher.stop()
        return [at for at, _, _ in scene.started]

    began = run_virtual(main(), clock=scene.clock)
    assert sorted(scene.ran) == [("w0", "CA"), ("w1", "TX")]
    assert max(began) - min(began) < SECOND
    numbers = [[one.number for one in slots] for slots in scene.engine.taken]
    assert (numbers[0], numbers[1], numbers[-1]) == ([0, 1], [2, 3], [0, 1])


def test_a_place_that_changes_its_number_first_ends_its_tasks_of_keys() -> None:
    scene = Scene("static", {0: ("CA",), 1: ("TX",)})

    async def main() -> tuple[list[str], list[str]]:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA", "NV", "NV")
        before = await scene.engine.open_session(SessionInfo(host="before", ttl=15 * SECOND))
        await scene.engine.take_slots(before.number, "scrapers", "before", [0])
        await scene.assign({"CA": "scrapers/0", "NV": "scrapers/2"})
        await scene.engine.end_session(before.number)
        other = await scene.engine.open_session(SessionInfo(host="other", ttl=10**15))
        await scene.engine.take_slots(other.number, "scrapers", "other", [1])
        dispatcher = scene.dispatcher()
        scene.at(dispatcher, 0, taking(20))
        await dispatcher.start()
        await asyncio.sleep(19)
        there = [one.name for one in await scene.engine.slots()]
        await asyncio.sleep(4)
        later = [one.name for one in await scene.engine.slots()]
        await asyncio.sleep(20)
        await dispatcher.stop()
        return there, later

    assert run_virtual(main(), clock=scene.clock) == (["scrapers/1", "scrapers/2"], ["scrapers/0", "scrapers/1"])
    assert scene.ran == [("w0", "NV"), ("w0", "CA")]


def test_numbers_that_a_table_has_or_that_no_table_counts_stay() -> None:
    for scene in (Scene("static", {n: (f"K{n}",) for n in range(4)}), Scene("balanced")):
        run_virtual(_two_free_numbers_below(scene), clock=scene.clock)
        assert [[one.number for one in slots] for slots in scene.engine.taken] == [[0, 1], [2, 3]]


async def _two_free_numbers_below(scene: Scene) -> None:
    await scene.lead()
    await scene.divide()
    before = await scene.engine.open_session(SessionInfo(host="before", ttl=15 * SECOND))
    await scene.engine.take_slots(before.number, "scrapers", "before", [0, 1])
    await scene.engine.end_session(before.number)
    dispatcher = scene.dispatcher()
    scene.at(dispatcher, 0)
    scene.at(dispatcher, 1)
    await dispatcher.start()
    await asyncio.sleep(40)
    await dispatcher.stop()


def test_a_number_that_is_refused_is_not_asked_for_with_every_claim() -> None:
    scene = Scene("static")

    async def main() -> int:
        await scene.lead()
        await scene.divide()
        other = await scene.engine.open_session(SessionInfo(host="other", ttl=10**15))
        await scene.engine.take_slots(other.number, "scrapers", "other", [0])
        dispatcher = scene.dispatcher()
        dispatcher.claimer.slot_numbers.exact = frozenset({"scrapers"})
        scene.at(dispatcher, 0)
        await dispatcher.start()
        for _ in range(100):
            await asyncio.sleep(0.1)
            dispatcher.claimer.wake.set()
        await dispatcher.stop()
        return scene.engine.refusals

    assert run_virtual(main(), clock=scene.clock) <= 6


def test_a_pool_that_is_ready_later_gets_numbers_at_once() -> None:
    """It asked without numbers for up to five seconds, as the look at the queues was not due again."""
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA")
        dispatcher = scene.dispatcher()
        for name, pool in (("plain", "others"), ("first", "early")):
            worker = CoroutineWorker(scene, dispatcher, name, 1, at_once)
            dispatcher.add_worker(worker, pool=pool, queues=("default",) if pool == "others" else (QUEUE,))
        await dispatcher.start()
        await asyncio.sleep(0.1)
        await scene.assign({"CA": "scrapers/0"})
        scene.at(dispatcher, 0)
        await asyncio.sleep(0.1)
        assert scene.ran == [("w0", "CA")]
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)


def test_a_successor_gets_no_task_of_a_key_while_its_predecessor_runs_one() -> None:
    """Two workers ran tasks of one key at once in each rolling restart."""
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA", "CA")
        dispatcher = scene.dispatcher()
        old = scene.at(dispatcher, 0, taking(10))
        await dispatcher.start()
        await scene.assign({"CA": "scrapers/0"})
        await asyncio.sleep(1)
        new = CoroutineWorker(scene, dispatcher, "new", 1, at_once)
        dispatcher.add_worker(new, pool="scrapers", place=0)
        dispatcher.close_worker(old.id)
        await asyncio.sleep(8)
        assert scene.ran == [("w0", "CA")]
        await asyncio.sleep(1.1)
        assert scene.ran == [("w0", "CA"), ("new", "CA")]
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)


def test_a_successor_in_affinity_starts_at_once() -> None:
    scene = Scene("affinity")

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA", "CA")
        dispatcher = scene.dispatcher()
        old = scene.at(dispatcher, 0, taking(10))
        await dispatcher.start()
        await scene.assign({"CA": "scrapers/0"})
        await asyncio.sleep(1)
        new = CoroutineWorker(scene, dispatcher, "new", 1, at_once)
        dispatcher.add_worker(new, pool="scrapers", place=0)
        dispatcher.close_worker(old.id)
        await asyncio.sleep(0.1)
        assert scene.ran == [("w0", "CA"), ("new", "CA")]
        await dispatcher.stop()

    run_virtual(main(), clock=scene.clock)


def test_a_worker_that_is_added_twice_keeps_its_tasks() -> None:
    """Its load was replaced: tasks that ran were unknown, and it got more than it has room for."""
    scene = Scene()

    async def main() -> None:
        await scene.lead()
        await scene.divide()
        await scene.put_states("CA", "CA")
        dispatcher = scene.dispatcher()
        worker = scene.at(dispatcher, 0, taking(5))
        await dispatcher.start()
        await scene.assign({"CA": "scrapers/0"})
        await asyncio.sleep(1)
        dispatcher.add_worker(worker, pool="scrapers", place=0)
        assert len(dispatcher.running()) == 1
        await scene.until_finished()
        await dispatcher.stop()
        assert worker.most == 1

    run_virtual(main(), clock=scene.clock)
