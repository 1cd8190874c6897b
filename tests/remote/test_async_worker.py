"""The same worker for coroutines."""

import asyncio
import threading
from typing import Any

import pytest

from pitboss.remote import AsyncAPIClient, AsyncWorker, TaskValidationError
from tests.remote.running import Time, running, settings
from tests.remote.stub_api import LIMIT, StubAPI


class Echo(AsyncWorker):
    async def process_task(self, task: Any) -> Any:
        await asyncio.sleep(0)
        return {"said": task["params"]}


async def test_the_lifecycle_step_by_step(api: StubAPI) -> None:
    worker = Echo(api.url, "w1", settings())
    assert await worker.health_check()
    assert await worker.claim_task() is None
    made = await worker.client.create_task("echo", {"a": 1})
    task = await worker.claim_task()
    assert task
    assert await worker.update_progress(task["id"], 50)
    assert await worker.complete_task(task["id"], await worker.process_task(task)) is True
    assert await worker.fail_task(task["id"], "late") is False
    assert api.tasks[made["id"]]["result"] == {"said": {"a": 1}}
    task_id = api.add()
    assert await worker.claim_task()
    assert await worker.release_task(task_id) is True
    await worker.close()


def test_each_event_loop_has_connections_of_its_own(api: StubAPI) -> None:
    worker = Echo(api.url, "w1", settings())

    async def check() -> None:
        assert await worker.health_check()
        await worker.close()

    asyncio.run(check())
    asyncio.run(check())


def test_tasks_run_side_by_side(api: StubAPI) -> None:
    class Meeting(AsyncWorker):
        here: set[str]
        all_here: asyncio.Event

        async def process_task(self, task: Any) -> Any:
            self.here.add(task["id"])
            if len(self.here) == 30:
                self.all_here.set()
            await self.all_here.wait()

    ids = [api.add() for _ in range(30)]
    Meeting.here, Meeting.all_here = set(), asyncio.Event()
    worker = Meeting(api.url, "w1", settings(concurrency=30, max_runs=30))
    assert worker.run() == 0
    assert worker.stats == {"processed": 30, "failed": 0}
    assert all(api.tasks[one]["status"] == "completed" for one in ids)


def test_a_plain_function_runs_in_a_thread_with_the_context_of_its_task(api: StubAPI) -> None:
    class Plain(AsyncWorker):
        def process_task(self, task: Any) -> Any:
            assert threading.current_thread() is not threading.main_thread()
            return self.cancel_requested

    task_id = api.add()
    assert Plain(api.url, "w1", settings(max_runs=1)).run() == 0
    assert api.tasks[task_id]["result"] is False


def test_errors_and_services_may_be_async(api: StubAPI) -> None:
    class Failing(AsyncWorker):
        async def check_services(self) -> Any:
            return {"youtube_api": True}

        async def process_task(self, task: Any) -> Any:
            raise TaskValidationError("no")

    task_id = api.add()
    worker = Failing(api.url, "w1", settings())
    with running(worker):
        api.until(lambda: api.tasks[task_id]["status"] == "failed")
    assert worker.stats == {"processed": 0, "failed": 1}


def test_a_handler_that_is_cancelled_from_inside_fails_its_task(api: StubAPI) -> None:
    class Cancelled(AsyncWorker):
        async def process_task(self, task: Any) -> Any:
            raise asyncio.CancelledError

    task_id = api.add()
    with running(Cancelled(api.url, "w1", settings())):
        api.until(lambda: api.tasks[task_id]["status"] == "failed")


def test_claims_are_renewed_even_if_a_handler_blocks_the_loop(api: StubAPI) -> None:
    class Blocking(AsyncWorker):
        async def process_task(self, task: Any) -> Any:
            api.until(lambda: api.count("/heartbeat") >= 2)
            return "done"

    task_id = api.add()
    assert Blocking(api.url, "w1", settings(claim_timeout=1, max_runs=1)).run() == 0
    assert api.tasks[task_id]["status"] == "completed"


def test_an_operator_who_cancels_reaches_the_handler(api: StubAPI) -> None:
    task_id = api.add()

    class Obeying(AsyncWorker):
        async def process_task(self, task: Any) -> Any:
            api.cancel(task_id)
            assert await asyncio.to_thread(task.cancel_event.wait, LIMIT)
            assert self.cancel_requested
            return {"success": False, "error": "cancelled"}

    with running(Obeying(api.url, "w1", settings(claim_timeout=1))):
        api.until(lambda: api.tasks[task_id]["status"] == "failed")


async def test_a_cancelled_run_gives_its_tasks_back(api: StubAPI) -> None:
    ids = [api.add() for _ in range(3)]
    started = asyncio.Event()

    class Endless(AsyncWorker):
        async def process_task(self, task: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

    run = asyncio.create_task(Endless(api.url, "w1", settings(concurrency=2, prefetch=1)).run_async())
    async with asyncio.timeout(LIMIT):
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert [api.tasks[one]["status"] for one in ids] == ["pending"] * 3
    assert api.count("/release") == 3


def test_an_outage_is_survived(api: StubAPI) -> None:
    back, noticed, now = threading.Event(), threading.Event(), Time()

    class Hidden(Echo):
        @property
        def client(self) -> AsyncAPIClient:
            fresh = self._client is None
            client = super().client
            if fresh:
                client._pause, client._clock = pause, now.clock
            return client

    async def pause(seconds: float) -> None:
        noticed.set()
        await asyncio.to_thread(back.wait, LIMIT)
        now.sleep(seconds)

    worker = Hidden(api.url, "w1", settings(max_runs=1))
    with running(worker) as run:
        api.until(lambda: api.count("/tasks/claim") >= 1)
        api.stop()
        assert noticed.wait(LIMIT)
        api.start()
        back.set()
        task_id = api.add()
        assert run.join() == 0
    assert api.tasks[task_id]["status"] == "completed"
