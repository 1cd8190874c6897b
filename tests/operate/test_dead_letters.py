"""Retries at a rate: each failed task once, evenly spread, and no more when too many fail again."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pitboss.model.duration import SECOND
from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.limits import rate
from pitboss.model.states import State
from pitboss.model.task import Unique
from pitboss.operate.dead_letters import RetryPlan, RetryReport, retry_at_rate
from pitboss.testing.virtual import run_virtual
from tests.operate.bench import Bench


def plan(text: str = "", at: str = "10/s", **more: Any) -> RetryPlan:
    return RetryPlan(wanted=parsed(text) if text else EVERYTHING, rate=rate(at), **more)


def virtually(work: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """In virtual time, which is the store's too."""
    store = Bench()
    run_virtual(work(store), clock=store.time)


async def failed(store: Bench, number: int, **options: Any) -> None:
    await store.add(*(store.new(**options) for _ in range(number)))
    await store.run_all(fail="no")
    store.time.advance("2s")


async def often(work: Callable[[], Any]) -> None:
    """`work` is done every tenth of a second."""
    while True:
        await asyncio.sleep(0.1)
        await work()


async def retry(store: Bench, wanted: RetryPlan, *, fail: str | None = "again", **more: Any) -> RetryReport:
    """With workers that end what was retried at once."""
    working = asyncio.create_task(often(lambda: store.run_all(fail=fail)))
    try:
        return await retry_at_rate(store, wanted, **more)
    finally:
        working.cancel()


def test_each_is_retried_once_though_all_fail_again() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 25)
        began = asyncio.get_running_loop().time()
        seen = list[RetryReport]()
        done = await retry(store, plan(), progress=seen.append)
        assert (done.ended, done.matched, done.retried) == ("done", 25, 25)
        assert 2.0 <= asyncio.get_running_loop().time() - began <= 3.0
        assert next(one.retried for one in seen if one.ended is None) == 0
        assert await store.count(by(state=State.FAILED)) >= 20

    virtually(work)


def test_what_fails_after_the_start_is_left_alone() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 10)

        async def another() -> None:
            await store.add(store.new(tags=("late",)))
            await store.run_all(fail="again")

        working = asyncio.create_task(often(another))
        done = await retry_at_rate(store, plan(at="5/s"))
        working.cancel()
        assert (done.ended, done.retried) == ("done", 10)
        late = await store.find(by(tag="late"), limit=1000)
        assert {len(await store.attempts(task.id)) for task in late.tasks} == {1}

    virtually(work)


def test_it_stops_when_too_many_fail_again() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 100)
        done = await retry(store, plan(stop_on_failures=5))
        assert done.ended == "failures"
        assert 5 <= done.failed_again <= done.retried <= 15
        rest = await store.find(by(state=State.FAILED), limit=1000, oldest_first=True)
        runs = [len(await store.attempts(task.id)) for task in rest.tasks]
        assert runs.count(1) == 100 - done.retried

    virtually(work)


def test_a_failed_attempt_counts_also_if_others_follow() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 40)

        async def fail_once() -> None:
            await store.run_all(fail="again", retryable=True)

        working = asyncio.create_task(often(fail_once))
        done = await retry_at_rate(store, plan(stop_on_failures=3))
        working.cancel()
        assert done.ended == "failures"
        assert done.retried < 40

    virtually(work)


def test_a_caller_can_stop_it_and_another_call_goes_on() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 30)
        stop = asyncio.Event()

        def tell(report: RetryReport) -> None:
            if report.retried >= 10:
                stop.set()

        first = await retry(store, plan(), fail=None, stop=stop, progress=tell)
        assert (first.ended, first.retried) == ("stopped", 10)
        second = await retry(store, plan(began=first.began, after=first.after, seconds=0.9), fail=None)
        assert (second.ended, second.retried) == ("time", 10)
        third = await retry(store, plan(began=first.began, after=second.after), fail=None)
        assert (third.ended, third.retried) == ("done", 10)
        assert await store.count(by(state=State.FAILED)) == 0

    virtually(work)


def test_a_slow_rate_is_kept_and_a_filter_too() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 3, queue="mail")
        await failed(store, 3)
        began = asyncio.get_running_loop().time()
        done = await retry(store, plan("queue:mail", at="2/m"), fail=None)
        assert (done.matched, done.retried) == (3, 3)
        assert 60 <= asyncio.get_running_loop().time() - began <= 61
        assert plan(at="2/s, 60/m").per_second == 1.0
        assert done.began <= store.now - 60 * SECOND

    virtually(work)


def test_refused_tasks_are_named() -> None:
    async def work(store: Bench) -> None:
        await failed(store, 1, unique=Unique("k"))
        await store.add(store.new(unique=Unique("k")))
        done = await retry_at_rate(store, plan())
        assert (done.ended, done.retried, len(done.refused)) == ("done", 0, 1)

    virtually(work)
