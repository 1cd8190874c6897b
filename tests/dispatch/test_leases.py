"""Tasks that hold a resource: started at once or given back, and reported on."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from unittest.mock import Mock

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory.tables import Doorbell
from pitboss.manager.announcer import Announcer
from pitboss.model.duration import SECOND
from pitboss.model.outcome import NO_KEY, Completed, Failed, Outcome, Rotated
from pitboss.model.outdone import SentAway
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Leased, Limits, NewResource, PoolRules, Report, Resource, ResourceOutcome, Want
from pitboss.model.session import Claimed, ClaimRequest
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.testing.virtual import run_virtual
from tests.dispatch.stage import CoroutineWorker, Stage, taking


async def _pool(stage: Stage, members: int, *, min_delay: int = 0) -> None:
    await stage.engine.declare_pool("proxies", PoolRules(limits=Limits(min_delay=min_delay, use_within=0)))
    await stage.engine.add_resources("proxies", [NewResource(name=f"p{number}") for number in range(members)])
    await stage.engine.register([HandlerInfo(name="check", queue="proxies", resources="proxies")])


async def _pool_in_other_hands(stage: Stage) -> None:
    """The only member is leased outside a task, until "mine" is released."""
    await _pool(stage, 1)
    assert isinstance(await stage.engine.acquire("proxies", Want(), 60 * SECOND, lease="mine"), Leased)


async def _put(stage: Stage, count: int) -> list[str]:
    tasks = [NewTask(id=stage.new_id(), handler="check", queue="proxies") for _ in range(count)]
    return [placed.id for placed in await stage.engine.put(tasks)]


async def _member(stage: Stage, name: str) -> Resource:
    (found,) = await stage.engine.resources("proxies", [name])
    return found


def test_no_more_run_than_there_are_members_and_the_next_starts_when_one_is_back() -> None:
    stage = Stage()

    async def main() -> int:
        await _pool(stage, 3)
        await _put(stage, 12)
        dispatcher = stage.dispatcher()
        worker = stage.worker(dispatcher, taking(1.0), capacity=50)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        return worker.most

    began = stage.clock.now()
    assert run_virtual(main(), clock=stage.clock) == 3
    assert stage.clock.now() - began < 5 * SECOND, "four rounds of a second each, without pauses between"


def test_the_dispatcher_wakes_when_a_member_may_be_used_again() -> None:
    stage = Stage()

    async def main() -> None:
        await _pool(stage, 1, min_delay=7 * SECOND)
        await _put(stage, 4)
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    moments = [at for at, _, _ in stage.started]
    gaps = [later - sooner for sooner, later in pairwise(moments)]
    assert all(7 * SECOND <= gap < 7 * SECOND + 20_000 for gap in gaps), gaps


def test_a_request_of_a_dead_worker_may_still_arrive() -> None:
    stage = Stage()

    async def main() -> int:
        await _pool(stage, 1, min_delay=7 * SECOND)
        await _put(stage, 1)
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(60.0))
        await dispatcher.start()
        await asyncio.sleep(1)
        (before,) = await stage.engine.resources("proxies")
        dispatcher.remove_worker("w1")
        await dispatcher.flushed()
        (after,) = await stage.engine.resources("proxies")
        await dispatcher.stop()
        assert (before.in_use, after.in_use) == (1, 0)
        return after.last_used_at - before.last_used_at

    assert run_virtual(main(), clock=stage.clock) == 0, "its use counts from the last possible moment"


def test_a_member_that_cannot_be_opened_closes_the_queues_of_its_pool_only() -> None:
    stage = Stage()

    async def main() -> None:
        await _pool(stage, 4)
        (first,) = await _put(stage, 1)
        plain = await stage.put()
        dispatcher = stage.dispatcher()
        dispatcher.claimer.opens = lambda _: False
        stage.worker(dispatcher)
        await dispatcher.start()
        await asyncio.sleep(0.1)
        await _put(stage, 3)
        plain += await stage.put()
        await asyncio.sleep(0.1)
        assert [(await stage.one(one)).state for one in plain] == [State.COMPLETED] * 2
        assert (await stage.one(first)).reason == NO_KEY.reason
        assert [claim.id for _, _, claim in stage.started] == plain
        uses = [(await _member(stage, f"p{number}")).record.uses for number in range(4)]
        assert sum(uses) == 1, "one grant found it out"
        dispatcher.claimer.opens = None
        dispatcher.claimer.claim_only(None)
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)


class Shrinking(CoroutineWorker):
    """A worker loses its free slot during the claim."""

    def __init__(self, stage: Stage, dispatcher: Dispatcher) -> None:
        super().__init__(stage, dispatcher, "w1", 4, taking(1.0))


def test_what_cannot_start_at_once_goes_back_with_its_member() -> None:
    stage = Stage()

    async def main() -> None:
        await _pool(stage, 4)
        ids = await _put(stage, 4)
        dispatcher = stage.dispatcher()
        worker = Shrinking(stage, dispatcher)
        dispatcher.add_worker(worker)
        claim = stage.engine.claim

        async def shrunk(request: object) -> object:
            claimed = await claim(request)  # type: ignore[arg-type]
            worker.capacity = 1
            return claimed

        stage.engine.claim = shrunk  # type: ignore[assignment, method-assign]
        await dispatcher.start()
        await asyncio.sleep(0.5)
        states = [(await stage.one(one)).state for one in ids]
        assert states.count(State.RUNNING) == 1
        assert states.count(State.PENDING) == 3
        assert sum([(await _member(stage, f"p{number}")).in_use for number in range(4)]) == 1
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)


def test_what_came_of_it_reaches_the_member() -> None:
    stage = Stage()
    told: dict[str, tuple[Outcome, Report]] = {
        "p0": (Completed("1"), Report(outcome=ResourceOutcome.OK)),
        "p1": (
            Rotated(TaskError(category="rate_limited", message="slow down")),
            Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=60 * SECOND),
        ),
        "p2": (
            Failed(TaskError(category="resource", message="dead", retryable=False)),
            Report(outcome=ResourceOutcome.RESOURCE_ERROR, error="dead"),
        ),
    }

    class Telling(CoroutineWorker):
        def start(self, claim: Claim) -> None:
            assert claim.leased is not None
            outcome, report = told[claim.leased.name]
            asyncio.get_running_loop().call_soon(self._tell, claim, outcome, report)

        def _tell(self, claim: Claim, outcome: Outcome, report: Report) -> None:
            self._dispatcher.finish(claim, outcome, worker=self.name, report=report)

    async def main() -> list[Resource]:
        await _pool(stage, 3)
        await _put(stage, 3)
        dispatcher = stage.dispatcher()
        dispatcher.add_worker(Telling(stage, dispatcher, "w1", 3, taking(0)))
        await dispatcher.start()
        await asyncio.sleep(1)
        await dispatcher.stop()
        return await stage.engine.resources("proxies")

    good, limited, dead = run_virtual(main(), clock=stage.clock)
    assert good.record.ok >= 1
    assert limited.record.cooldown_until - limited.last_used_at >= 60 * SECOND
    assert (dead.record.failed >= 1, dead.record.last_error) == (True, "dead")
    assert good.in_use == limited.in_use == dead.in_use == 0


def test_a_member_that_others_outdo_is_announced_with_the_evidence() -> None:
    stage, away = Stage(), list[SentAway]()

    class Judging(CoroutineWorker):
        def start(self, claim: Claim) -> None:
            assert claim.leased is not None
            bad = claim.leased.name == "p0"
            outcome = Rotated(TaskError(category="error", message="half a page")) if bad else Completed("1")
            report = Report(outcome=ResourceOutcome.TASK_ERROR if bad else ResourceOutcome.OK)
            tell = partial(self._dispatcher.finish, claim, outcome, worker=self.name, report=report)
            asyncio.get_running_loop().call_soon(tell)

    async def main() -> None:
        await _pool(stage, 3)
        await _put(stage, 30)
        dispatcher = stage.dispatcher()
        dispatcher.on_sent_away(away.append)
        dispatcher.add_worker(Judging(stage, dispatcher, "w1", 3, taking(0)))
        await dispatcher.start()
        await asyncio.sleep(1)
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    (one,) = away
    assert (one.resource, one.why) == ("proxies/p0", "failed 3 of 3 tasks that then succeeded with others")
    said, log = list[str](), Mock()
    announcer = Announcer(said.append, stage.clock)
    announcer.log = log
    announcer.sent_away(one._replace(until=stage.clock.now() + 1800 * SECOND))
    assert said == [f"proxies/p0 is not used for 30m: it {one.why}"]
    log.warning.assert_called_once_with("resource sent away", resource="proxies/p0", away="30m", why=one.why)


class _Counting:
    """Counts the claims, and takes a little time for each, like a real store."""

    def __init__(self, stage: Stage) -> None:
        self.asked: list[int] = []
        claim, settle = stage.engine.claim, stage.engine.settle

        async def counted(request: ClaimRequest) -> Claimed:
            await asyncio.sleep(0.004)
            claimed = await claim(request)
            self.asked.append(len(claimed.claims))
            return claimed

        async def slow(settlements: Sequence[Settlement]) -> list[SettleAnswer]:
            await asyncio.sleep(0.002)
            verdicts = await settle(settlements)
            # The answer comes after the ring.
            await asyncio.sleep(0.002)
            return verdicts

        stage.engine.claim = counted  # type: ignore[method-assign]
        stage.engine.settle = slow  # type: ignore[method-assign]


def test_a_task_that_ends_is_no_reason_to_ask_before_its_member_is_back() -> None:
    stage = Stage()
    counting = _Counting(stage)

    async def main() -> None:
        await _pool(stage, 1)
        await _put(stage, 20)
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(0.5), capacity=50)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    moments = [at for at, _, _ in stage.started]
    gaps = [later - sooner for sooner, later in pairwise(moments)]
    assert all(gap < 510_000 for gap in gaps), "settled, claimed, started: nothing between"
    vain = [number for number in counting.asked if not number]
    assert len(counting.asked) - len(vain) == 20
    assert len(vain) <= 8, "the polls of ten seconds, and a few at the end"


def test_the_dispatcher_that_released_a_member_gets_it_again_before_others_claim() -> None:
    stage = Stage()
    stage.engine.tables.doorbell = _HeardByAll()
    _Counting(stage)

    async def main() -> None:
        await _pool(stage, 2)
        first, second = stage.dispatcher(), stage.dispatcher()
        stage.worker(first, taking(0.4), capacity=5, name="first")
        stage.worker(second, taking(0.4), capacity=5, name="second")
        await _put(stage, 1)
        await first.start()
        await asyncio.sleep(0.2)
        await second.start()
        await _put(stage, 30)
        await stage.until_finished()
        await first.stop()
        await second.stop()

    run_virtual(main(), clock=stage.clock)
    workers = [worker for _, worker, _ in stage.started]
    assert workers.count("first") in (15, 16)
    assert all(one != other for one, other in pairwise(workers)), "each keeps the member that it has"


class _HeardByAll(Doorbell):
    """Several dispatchers have one engine here: every one of them must hear each ring."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[asyncio.Event] = []

    def ring(self, queues: Iterable[str]) -> None:
        for event in self._events:
            event.set()

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        event = asyncio.Event()
        self._events.append(event)
        try:
            async with asyncio.timeout(timeout):
                return await event.wait()
        except TimeoutError:
            return False
        finally:
            self._events.remove(event)


def test_a_member_that_is_released_elsewhere_goes_to_a_dispatcher_with_room() -> None:
    stage = Stage()
    stage.engine.tables.doorbell = _HeardByAll()

    async def main() -> None:
        await _pool(stage, 1)
        first, second = stage.dispatcher(), stage.dispatcher()
        stage.worker(first, taking(1.0), capacity=1, name="first")
        await first.start()
        await _put(stage, 2)
        await asyncio.sleep(0.1)
        stage.worker(second, taking(1.0), capacity=5, name="second")
        await second.start()
        await asyncio.sleep(0.1)
        first.quiet()
        await stage.until_finished()
        await first.stop()
        await second.stop()

    run_virtual(main(), clock=stage.clock)
    (began, _, _), (next_began, worker, _) = stage.started
    assert worker == "second"
    assert next_began - began < 1.05 * SECOND, "rung, and a few milliseconds of courtesy"


def test_a_plain_task_is_not_kept_waiting_by_others_that_lack_a_member() -> None:
    stage = Stage()

    async def main() -> float:
        await _pool(stage, 1)
        await _put(stage, 5)
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(60.0), capacity=5)
        await dispatcher.start()
        await asyncio.sleep(0.7)
        put_at = stage.clock.now()
        (task,) = await stage.put()
        await asyncio.sleep(0.5)
        await dispatcher.stop()
        ((started, _, _),) = [one for one in stage.started if one[2].id == task]
        return (started - put_at) / SECOND

    assert run_virtual(main(), clock=stage.clock) < 0.02


def test_backing_off_does_not_starve_a_dispatcher_of_other_queues_of_the_pool() -> None:
    stage = Stage()
    stage.engine.tables.doorbell = _HeardByAll()
    _Counting(stage)

    async def main() -> None:
        await _pool(stage, 2)
        await stage.engine.register([HandlerInfo(name="other", queue="others", resources="proxies")])
        await _put(stage, 200)
        first, second = stage.dispatcher(), stage.dispatcher()
        dispatchers = (("first", first, "proxies"), ("second", second, "others"))
        for name, dispatcher, queue in dispatchers:
            worker = CoroutineWorker(stage, dispatcher, name, 5, taking(0.1))
            dispatcher.add_worker(worker, queues=(queue,))
            await dispatcher.start()
        await asyncio.sleep(0.5)
        tasks = [NewTask(id=stage.new_id(), handler="other", queue="others") for _ in range(20)]
        await stage.engine.put(tasks)
        await asyncio.sleep(7)
        await first.stop()
        await second.stop()

    run_virtual(main(), clock=stage.clock)
    workers = [worker for _, worker, _ in stage.started]
    assert workers.count("second") == 20
    assert workers.count("first") > 50


def test_a_member_that_comes_back_while_the_store_is_asked_is_not_overlooked() -> None:
    """The member comes back while the answer of another claim is on its way."""
    stage = Stage()
    claim = stage.engine.claim

    async def slow(request: ClaimRequest) -> Claimed:
        claimed = await claim(request)
        await asyncio.sleep(0.02)
        return claimed

    async def main() -> float:
        await _pool_in_other_hands(stage)
        stage.engine.claim = slow  # type: ignore[method-assign]
        (task,) = await _put(stage, 1)
        await stage.put(delay=SECOND)
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(30.0), capacity=5)
        await dispatcher.start()
        await asyncio.sleep(1.015)
        given_back = stage.clock.now()
        await stage.engine.release("mine", None)
        await asyncio.sleep(1)
        await dispatcher.stop()
        ((started, _, _),) = [one for one in stage.started if one[2].id == task]
        return (started - given_back) / SECOND

    assert run_virtual(main(), clock=stage.clock) < 0.1


def test_a_seat_that_becomes_free_is_used_though_members_were_short_before() -> None:
    stage = Stage()

    async def main() -> float:
        await _pool_in_other_hands(stage)
        await stage.put()
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(1.5), capacity=1)
        stage.worker(dispatcher, taking(1.5), capacity=1, name="w2")
        await dispatcher.start()
        await asyncio.sleep(0.1)
        await _put(stage, 1)
        await asyncio.sleep(0.2)
        idle = next(worker for worker in ("w1", "w2") if worker not in {worker for _, worker, _ in stage.started})
        dispatcher.remove_worker(idle)
        await asyncio.sleep(0.2)
        await stage.engine.release("mine", None)
        await asyncio.sleep(2.9)
        await dispatcher.stop()
        (plain, _, _), (started, _, _) = stage.started
        return (started - plain) / SECOND

    assert run_virtual(main(), clock=stage.clock) < 1.6


def test_reports_of_progress_are_no_reason_to_ask() -> None:
    stage = Stage()
    counting = _Counting(stage)

    async def main() -> None:
        async def work(claim: Claim) -> Outcome:
            for percent in range(100):
                dispatcher.progress(claim, percent, None)
                await asyncio.sleep(0.05)
            return Completed("1")

        await _pool(stage, 1)
        await _put(stage, 2)
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, work, capacity=5)
        await dispatcher.start()
        await asyncio.sleep(4.5)
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    assert len(counting.asked) < 10
