"""A worker goes on by itself when its server was away."""

import threading
from itertools import pairwise
from typing import Any, ClassVar

import httpx
import pytest

from pitboss.remote import APIClient, APIConnectionError, Worker
from tests.remote.running import Echo, Time, running, settings
from tests.remote.stub_api import LIMIT, StubAPI


def pausing(worker: Worker, back: threading.Event) -> threading.Event:
    """Let the pauses of a worker's client end when the server is back; the event says that it met the outage."""
    noticed, now = threading.Event(), Time()

    def pause(seconds: float) -> None:
        noticed.set()
        assert back.wait(LIMIT)
        now.sleep(seconds)

    worker._client = APIClient(worker.api_url, "", clock=now.clock, sleep=pause)
    return noticed


def test_an_idle_worker_survives_a_restart(api: StubAPI) -> None:
    worker = Echo(api.url, "w1", settings(max_runs=1))
    back = threading.Event()
    noticed = pausing(worker, back)
    with running(worker) as run:
        api.until(lambda: api.count("/tasks/claim") >= 1)
        api.stop()
        assert noticed.wait(LIMIT)
        api.start()
        back.set()
        task_id = api.add()
        assert run.join() == 0
    assert api.tasks[task_id]["status"] == "completed"
    assert worker.consecutive_errors == 0


def test_a_result_is_kept_until_the_server_is_back(api: StubAPI) -> None:
    task_id = api.add()
    back = threading.Event()

    class Stopper(Worker):
        def process_task(self, task: Any) -> Any:
            api.stop()
            return "kept"

    worker = Stopper(api.url, "w1", settings(max_runs=1))
    noticed = pausing(worker, back)
    with running(worker) as run:
        assert noticed.wait(LIMIT)
        api.start()
        back.set()
        assert run.join() == 0
    assert api.tasks[task_id]["result"] == "kept"
    assert worker.stats == {"processed": 1, "failed": 0}


def test_a_report_whose_answer_was_lost_counts_once(api: StubAPI) -> None:
    task_id = api.add()
    api.fail("/complete", cut="after")
    back = threading.Event()
    back.set()
    worker = Echo(api.url, "w1", settings(max_runs=1))
    pausing(worker, back)
    assert worker.run() == 0
    assert (api.count("/complete"), api.tasks[task_id]["status"]) == (2, "completed")
    assert (worker.stats["processed"], worker.claims_lost) == (1, 0)


class Brave(Echo):
    def health_check(self) -> Any:
        return True


def test_by_default_a_worker_outlives_an_outage_of_a_minute_and_then_ends_with_1(
    api: StubAPI, caplog: pytest.LogCaptureFixture
) -> None:
    api.stop()
    worker = Brave(api.url, "w1", {"poll_interval": 0.01})
    now = Time()
    worker._client = APIClient(api.url, "", clock=now.clock, sleep=now.sleep)
    assert worker.run() == 1
    assert worker.consecutive_errors == 5
    assert now.now > 60
    assert "Cannot claim tasks after 5 attempts" in caplog.text


def test_a_server_that_is_back_is_noticed_within_seconds(api: StubAPI) -> None:
    now = Time()
    attempts: list[float] = []

    class Noting(APIClient):
        async def _send(self, request: dict[str, Any]) -> httpx.Response:
            attempts.append(now.now)
            return await super()._send(request)

    api.stop()
    client = Noting(api.url, "", retry_for=60, clock=now.clock, sleep=now.sleep)
    with client, pytest.raises(APIConnectionError):
        client.create_task("echo", {})
    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert 0.3 < gaps[0] < 0.7
    assert max(gaps) <= 5.01


def test_only_errors_of_the_api_end_a_worker(api: StubAPI) -> None:
    class Failing(Worker):
        def process_task(self, task: Any) -> Any:
            raise RuntimeError

    ids = [api.add() for _ in range(8)]
    worker = Failing(api.url, "w1", settings(max_consecutive_errors=2))
    with running(worker) as run:
        api.until(lambda: all(api.tasks[one]["status"] == "failed" for one in ids))
        worker.should_stop = True
        assert run.join() == 0


def test_a_key_that_is_refused_ends_a_worker_with_1(api: StubAPI) -> None:
    api.fail("/tasks/claim", status=401, times=3, body=b'{"error": "Unauthorized", "message": "wrong key"}')
    worker = Echo(api.url, "w1", settings(max_consecutive_errors=3))
    assert worker.run() == 1
    assert api.count("/tasks/claim") == 3


UNKNOWN = b'{"success": false, "error": "Task type not found"}'


def test_types_that_the_server_has_forgotten_are_registered_again(api: StubAPI) -> None:
    class Declared(Echo):
        task_types: ClassVar[dict[str, Any]] = {"echo": {}}

    api.fail("/tasks/claim", status=404, body=UNKNOWN)
    api.add()
    assert Declared(api.url, "w1", settings(max_runs=1)).run() == 0
    assert api.count("/task-types/register") == 2


def test_types_that_do_not_exist_end_a_worker_with_1(api: StubAPI, caplog: pytest.LogCaptureFixture) -> None:
    api.fail("/tasks/claim", status=404, body=UNKNOWN, times=2)
    assert Echo(api.url, "w1", settings(max_consecutive_errors=2, task_type_ids=[99])).run() == 1
    assert "Task type not found" in caplog.text


def test_errors_that_are_not_consecutive_do_not_add_up(api: StubAPI) -> None:
    worker = Echo(api.url, "w1", settings(max_consecutive_errors=2, max_runs=1))
    api.fail("/tasks/claim", status=401)
    api.fail("/tasks/claim", status=404, body=b'{"error": "No available tasks"}')
    api.fail("/tasks/claim", status=401)
    api.add()
    assert worker.run() == 0


def test_a_server_that_asks_to_slow_down_is_obeyed_and_never_ends_a_worker(api: StubAPI) -> None:
    pauses: list[float] = []

    class Patient(Echo):
        async def _pause(self, seconds: float) -> None:
            pauses.append(seconds)

    api.fail("/tasks/claim", status=429, headers={"Retry-After": "30"}, times=6)
    api.add()
    worker = Patient(api.url, "w1", settings(max_consecutive_errors=2, max_runs=1))
    assert worker.run() == 0
    assert pauses == [30.0] * 6


def test_a_stop_does_not_wait_for_the_repeats_of_a_claim(api: StubAPI) -> None:
    worker = Brave(api.url, "w1", settings())
    noticed = threading.Event()

    def pause(_seconds: float) -> None:
        noticed.set()

    api.stop()
    worker._client = APIClient(api.url, "", sleep=pause)
    with running(worker) as run:
        assert noticed.wait(LIMIT)
        worker.should_stop = True
        assert run.join() == 0
    assert worker.consecutive_errors == 0


def test_a_result_that_cannot_be_reported_ends_nothing(api: StubAPI, caplog: pytest.LogCaptureFixture) -> None:
    first = api.add()
    api.fail(f"/tasks/{first}/complete", cut="before")
    second = api.add()
    worker = Echo(api.url, "w1", settings(report_for=0, max_runs=1))
    assert worker.run() == 0
    assert "will run again when its claim has ended" in caplog.text
    assert (api.tasks[first]["status"], api.tasks[second]["status"]) == ("claimed", "completed")
    assert worker.stats == {"processed": 1, "failed": 0}
