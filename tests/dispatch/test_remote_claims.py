"""Claims and reports of remote workers: one claim serves all that wait, and nothing is lost with an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pitboss import wiring
from pitboss.dispatch.remote_claims import RemoteClaims, RemoteWish
from pitboss.dispatch.remote_reports import RemoteReports, Report
from pitboss.engines.memory import MemoryEngine
from pitboss.model.duration import SECOND
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Failed, Released
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import Claimed, ClaimRequest, SessionInfo
from pitboss.model.states import State
from pitboss.model.task import NewTask, Task, TaskError

LASTS = 60 * SECOND
POLICY = Policy(max_attempts=2, backoff=Backoff(base=0, cap=0))


class CountingEngine(MemoryEngine):
    """Counts claims, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(clock=wiring.SystemClock())
        self.claims = 0
        self.away = False
        self.ids = IdMaker(self.clock.now, wiring.randbits())

    async def claim(self, request: ClaimRequest) -> Claimed:
        self.claims += 1
        if self.away:
            raise StoreUnavailable("the store is away")
        return await super().claim(request)

    async def add(self, number: int = 1, **options: Any) -> list[str]:
        tasks = [NewTask(id=self.ids(), handler="video", queue="video", **options) for _ in range(number)]
        await self.put(tasks)
        return [task.id for task in tasks]

    async def one(self, task: str) -> Task:
        (found,) = await self.get([task])
        assert found is not None
        return found


@asynccontextmanager
async def claiming() -> AsyncIterator[tuple[CountingEngine, RemoteClaims]]:
    store = CountingEngine()
    await store.register([HandlerInfo(name="video", queue="video", remote=True)])
    claims = RemoteClaims(store, SessionInfo(host="here", kind="http"), lambda: ["video"])
    await claims.start()
    try:
        yield store, claims
    finally:
        await claims.stop()


def wish(worker: str = "w", **options: Any) -> RemoteWish:
    return RemoteWish(worker=worker, handlers=("video",), queues=("video",), lasts=LASTS, **options)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if true():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it never came true")


async def test_a_claim_without_a_wait_answers_at_once() -> None:
    async with claiming() as (store, claims):
        assert await claims.claim(wish()) == []
        (task,) = await store.add()
        (claim,) = await claims.claim(wish("w1"))
        assert claim.id == task
        assert (await store.one(task)).worker == "w1"


async def test_a_hundred_claims_that_come_together_are_served_by_two_calls() -> None:
    async with claiming() as (store, claims):
        await store.add(100)
        found = await asyncio.gather(*(claims.claim(wish(f"w{number}")) for number in range(100)))
        assert len({claim.id for got in found for claim in got}) == 100
        assert store.claims == 2


async def test_a_task_wakes_one_of_a_thousand_that_wait_the_first_of_them() -> None:
    async with claiming() as (store, claims):
        waiting = [asyncio.create_task(claims.claim(wish(f"w{number}"), wait=20)) for number in range(1000)]
        await until(lambda: claims.waiting == 1000 and store.claims >= 1)
        before = store.claims
        (task,) = await store.add()
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        assert [claim.id for one in done for claim in one.result()] == [task]
        assert (await store.one(task)).worker == "w0"
        await asyncio.sleep(0.02)
        assert store.claims - before <= 2
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_wait_ends_with_nothing() -> None:
    async with claiming() as (_, claims):
        assert await claims.claim(wish(), wait=0.05) == []
        assert claims.waiting == 0


async def test_a_task_that_falls_due_reaches_a_waiting_worker_without_a_ring() -> None:
    async with claiming() as (store, claims):
        (task,) = await store.add(delay=SECOND // 10)
        (claim,) = await claims.claim(wish(), wait=5)
        assert claim.id == task


async def test_what_was_claimed_for_a_client_that_hung_up_goes_back() -> None:
    async with claiming() as (store, claims):
        waiting = asyncio.create_task(claims.claim(wish(), wait=5))
        await until(lambda: claims.waiting == 1)
        (task,) = await store.add()
        # The claim and the hang-up meet in one turn of the loop.
        await until(lambda: store.tables.tasks[task].state is State.RUNNING)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: store.tables.tasks[task].state is not State.RUNNING or _got(waiting))
        found = await store.one(task)
        assert _got(waiting) or (found.state, found.attempts, found.crashes) == (State.PENDING, 0, 0)


def _got(waiting: "asyncio.Task[Any]") -> bool:
    return not waiting.cancelled() and bool(waiting.result())


async def test_a_store_that_is_away_is_told_to_every_waiting_claim() -> None:
    async with claiming() as (store, claims):
        store.away = True
        found = await asyncio.gather(*(claims.claim(wish()) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(one, StoreUnavailable) for one in found)
        store.away = False
        assert await claims.claim(wish()) == []


async def test_a_lost_session_is_replaced() -> None:
    async with claiming() as (store, claims):
        assert await claims.claim(wish()) == []
        for session in await store.sessions():
            await store.end_session(session.number)
        await store.add()
        assert len(await claims.claim(wish())) == 1


async def test_the_same_key_gets_the_same_task_though_the_queue_is_empty() -> None:
    async with claiming() as (store, claims):
        await store.add()
        (first,) = await claims.claim(wish(repeat="k"))
        again, other = await asyncio.gather(claims.claim(wish(repeat="k")), claims.claim(wish(repeat="l")))
        assert [one.token for one in again] == [first.token]
        assert other == []


def reporting(store: CountingEngine) -> RemoteReports:
    return RemoteReports(store, lambda _: POLICY, lambda: 0.5)


async def test_a_report_is_taken_by_a_server_that_did_not_give_the_claim() -> None:
    async with claiming() as (store, claims):
        (task,) = await store.add()
        await claims.claim(wish("w1"))
        done = await reporting(store).report(Report(task, "w1", outcome=Completed("1")))
        assert (done.state, done.refused) == (State.COMPLETED, None)


async def test_a_report_of_another_worker_or_an_earlier_claim_is_refused() -> None:
    async with claiming() as (store, claims):
        reports = reporting(store)
        (task,) = await store.add()
        (first,) = await claims.claim(wish("w1"))
        reports.note("w1", [first])
        assert (await reports.report(Report(task, "w2", outcome=Completed()))).refused == "other"
        await reports.report(Report(task, "w1", outcome=Released(started=True)))
        assert (await reports.report(Report(task, "w1", outcome=Completed()))).refused == "idle"
        await claims.claim(wish("w1"))
        assert (await reports.report(Report(task, "w1", str(first.token), Completed()))).refused == "over"
        assert (await reports.report(Report(task, "w1", outcome=Completed()))).state is State.COMPLETED
        assert (await reports.report(Report("no-such-task", "w1", outcome=Completed()))).refused == "missing"


async def test_a_repeated_report_is_accepted_again() -> None:
    async with claiming() as (store, claims):
        reports = reporting(store)
        (task,) = await store.add()
        (claim,) = await claims.claim(wish("w1"))
        for _ in range(2):
            done = await reports.report(Report(task, "w1", str(claim.token), Completed("1")))
            assert (done.state, done.refused) == (State.COMPLETED, None)
        assert (await store.one(task)).attempts == 1


async def test_a_failure_is_tried_again_as_often_as_the_policy_says() -> None:
    error = TaskError(category="net", message="no answer")
    async with claiming() as (store, claims):
        reports = reporting(store)
        (task,) = await store.add()
        for state in (State.PENDING, State.FAILED):
            assert len(await claims.claim(wish("w1"))) == 1
            assert (await reports.report(Report(task, "w1", outcome=Failed(error)))).state is state


async def test_a_sign_of_life_tells_of_a_cancellation() -> None:
    async with claiming() as (store, claims):
        reports = reporting(store)
        (task,) = await store.add()
        await claims.claim(wish("w1"))
        assert not (await reports.report(Report(task, "w1", percent=10))).cancel_asked
        await store.cancel(by(id=task), reason="stop")
        told = await reports.report(Report(task, "w1"))
        assert (told.cancel_asked, (await store.one(task)).progress) == (True, 10)
        done = await reports.report(Report(task, "w1", outcome=Released(started=True)))
        assert done.state is State.CANCELLED
