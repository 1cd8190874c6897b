"""The life of a worker: check, claim, process, report, count, end."""

import threading
from typing import Any, ClassVar

import httpx
import pytest
import requests

from pitboss.remote import (
    APIConnectionError,
    Task,
    TaskProcessingError,
    TaskValidationError,
    Worker,
    error_result,
    success_result,
)
from tests.remote.running import Echo, echo, running, settings
from tests.remote.stub_api import LIMIT, StubAPI


def test_the_lifecycle_step_by_step(api: StubAPI) -> None:
    worker = echo(api)
    assert worker.health_check()
    assert worker.claim_task() is None
    task_id = worker.client.create_task("echo", {"a": 1})["id"]
    task = worker.claim_task()
    assert task
    assert (task["id"], task["params"], task["attempts"]) == (task_id, {"a": 1}, 1)
    assert worker.complete_task(task_id, worker.process_task(task)) is True
    assert api.tasks[task_id]["result"] == {"said": {"a": 1}}
    assert api.sent("/complete")[0].body["claim_token"] == task["claim_token"]
    assert worker.complete_task(task_id, {"another": "result"}) is False
    worker.close()


def test_a_run_processes_what_there_is(api: StubAPI) -> None:
    ids = [api.add(n=n) for n in range(3)]
    worker = echo(api, max_runs=3)
    assert worker.run() == 0
    assert [api.tasks[one]["result"] for one in ids] == [{"said": {"n": n}} for n in range(3)]
    assert worker.stats == {"processed": 3, "failed": 0}
    report = worker.metrics.report()
    assert (report["tasks_claimed"], report["tasks_completed"], report["success_rate"]) == (3, 3, 1.0)
    assert report["avg_processing_time"] > 0
    assert api.workers["w1"]["status"] == "offline"


def test_max_runs_counts_successes_only(api: StubAPI) -> None:
    class Picky(Worker):
        def process_task(self, task: dict[str, Any]) -> Any:
            if task["params"]["n"] < 2:
                raise TaskValidationError("too small")
            return None

    for n in range(5):
        api.add(n=n)
    worker = Picky(api.url, "w1", settings(max_runs=2))
    assert worker.run() == 0
    assert worker.stats == {"processed": 2, "failed": 2}
    assert [task["status"] for task in api.tasks.values()] == ["failed", "failed", "completed", "completed", "pending"]


class Raising(Worker):
    error: BaseException

    def process_task(self, task: dict[str, Any]) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (TaskValidationError("no"), "validation", False),
        (ValueError("no"), "validation", False),
        (TypeError("no"), "validation", False),
        (APIConnectionError("no"), "connection", True),
        (ConnectionResetError("no"), "connection", True),
        (TimeoutError("no"), "connection", True),
        (httpx.ReadTimeout("no"), "connection", True),
        (httpx.ConnectError("no"), "connection", True),
        (requests.exceptions.ConnectTimeout("no"), "connection", True),
        (TaskProcessingError("no"), "unknown", False),
        (KeyError("no"), "unknown", False),
        (SystemExit(3), "unknown", False),
        (TaskProcessingError("no", retryable=True), "unknown", True),
    ],
)
def test_each_error_is_reported_by_its_kind(api: StubAPI, error: BaseException, kind: str, retryable: bool) -> None:
    task_id = api.add()
    worker = Raising(api.url, "w1", settings())
    worker.error = error
    with running(worker):
        api.until(lambda: api.tasks[task_id]["status"] == "failed")
    (said,) = [one.body for one in api.sent("/fail")]
    named = kind == "unknown" and not isinstance(error, TaskProcessingError)
    text = f"{type(error).__name__}: {error}" if named else str(error)
    assert (said["error"], said["error_type"], said["retryable"]) == (text, kind, retryable)
    # A ValueError may be a mistake in the handler, so that its traceback is worth having.
    assert ("traceback" in said) is (kind == "unknown" or type(error) in (ValueError, TypeError))
    assert worker.stats == {"processed": 0, "failed": 1}


def test_an_error_may_say_when_to_try_again(api: StubAPI) -> None:
    task_id = api.add()
    worker = Raising(api.url, "w1", settings())
    worker.error = APIConnectionError("quota", retry_after=60)
    with running(worker):
        api.until(lambda: api.tasks[task_id]["status"] == "failed")
    assert api.sent("/fail")[0].body["retry_after"] == 60


class Returning(Worker):
    result: Any

    def process_task(self, task: dict[str, Any]) -> Any:
        return self.result() if callable(self.result) else self.result


def run_once(api: StubAPI, result: Any) -> tuple[Worker, dict[str, Any]]:
    task_id = api.add()
    worker = Returning(api.url, "w1", settings())
    worker.result = result
    with running(worker):
        api.until(lambda: api.tasks[task_id]["status"] in ("completed", "failed"))
    return worker, api.tasks[task_id]["reports"][-1]


@pytest.mark.parametrize("result", [{"videos": [1]}, {"success": True, "data": 1}, None, [], "text", {}])
def test_a_result_is_sent_as_it_is(api: StubAPI, result: Any) -> None:
    worker, report = run_once(api, result)
    assert (report["verb"], report["success"], report["result"]) == ("complete", True, result)
    assert worker.stats == {"processed": 1, "failed": 0}


def test_a_returned_failure_is_a_failure(api: StubAPI) -> None:
    result = {"success": False, "error": "no such video", "error_type": "validation", "retryable": False}
    worker, report = run_once(api, result)
    assert (report["success"], report["error"]) == (False, "no such video")
    assert (report["error_type"], report["retryable"]) == ("validation", False)
    assert worker.stats == {"processed": 0, "failed": 1}


def test_a_failure_without_a_word_has_an_error_text_and_keeps_its_data(api: StubAPI) -> None:
    _, report = run_once(api, {"success": False, "results": [], "errors": [{"video_id": 1}]})
    assert "success: false" in report["error"]
    assert report["result"]["errors"] == [{"video_id": 1}]
    assert "retryable" not in report


def test_the_standard_results(api: StubAPI) -> None:
    _, report = run_once(api, lambda: success_result([1, 2], "two videos"))
    result = report["result"]
    assert (result["success"], result["data"], result["message"]) == (True, [1, 2], "two videos")
    assert result["metadata"]["worker_id"] == "w1"
    assert result["metadata"]["processing_time"] >= 0
    assert result["metadata"]["processed_at"]
    _, report = run_once(api, lambda: error_result(TimeoutError("slow")))
    assert (report["error"], report["error_type"], report["retryable"]) == ("slow", "connection", True)
    assert report["result"]["metadata"]["failed_at"]
    assert error_result("no", "quota", retryable=True)["error_type"] == "quota"


@pytest.mark.parametrize("result", [{"a": object()}, {"a": float("nan")}])
def test_a_result_that_is_not_json_fails_the_task(api: StubAPI, result: Any) -> None:
    worker, report = run_once(api, result)
    assert report["verb"] == "fail"
    assert "not JSON" in report["error"]
    assert worker.stats == {"processed": 0, "failed": 1}


def test_a_result_that_the_api_does_not_accept_fails_the_task(api: StubAPI) -> None:
    api.fail("/complete", status=413, body=b'{"success": false, "error": "Body too large"}')
    worker, report = run_once(api, {"a": "long"})
    assert report["verb"] == "fail"
    assert "Body too large" in report["error"]
    assert worker.stats == {"processed": 0, "failed": 1}


def test_fail_task_takes_a_text(api: StubAPI) -> None:
    task_id = api.add()
    worker = echo(api)
    worker.claim_task()
    assert worker.fail_task(task_id, "no", retryable=False) is True
    assert api.tasks[task_id]["reports"][-1]["error"] == "no"
    worker.close()


def test_a_task_can_be_given_back(api: StubAPI) -> None:
    task_id = api.add()
    worker = echo(api)
    task = worker.claim_task()
    assert task
    assert worker.release_task(task_id, delay=60, reason="quota") is True
    said = api.sent("/release")[0].body
    assert said == {"worker_id": "w1", "claim_token": task["claim_token"], "delay": 60, "reason": "quota"}
    assert worker.release_task(task_id) is False
    worker.close()


def test_a_handler_may_give_its_task_back_or_report_by_itself(api: StubAPI) -> None:
    class Own(Worker):
        def process_task(self, task: dict[str, Any]) -> Any:
            self.should_stop = self.stats["processed"] == 1
            if task["params"]["n"] == 0:
                return self.complete_task(task["id"], "mine")
            return self.release_task(task["id"])

    done, released = api.add(n=0), api.add(n=1)
    worker = Own(api.url, "w1", settings())
    assert worker.run() == 0
    assert (api.tasks[done]["result"], api.tasks[released]["status"]) == ("mine", "pending")
    assert (worker.stats, worker.claims_lost) == ({"processed": 1, "failed": 0}, 0)
    assert api.count("/complete") == 1


def test_health_tells_all_that_is_checked(api: StubAPI) -> None:
    class Checked(Echo):
        def check_services(self) -> dict[str, Any]:
            return {"youtube_api": True}

    report = Checked(api.url, "w1").health_check()
    named = {"api_connectivity", "memory_usage_mb", "cpu_percent", "tasks_processed", "consecutive_errors", "healthy"}
    assert named | {"youtube_api"} == set(report)
    assert report["healthy"] is True
    assert bool(report) is True
    assert report["memory_usage_mb"] > 1


@pytest.mark.parametrize("services", [{"youtube_api": False, "youtube_error": "quota"}, RuntimeError("quota")])
def test_a_service_that_fails_makes_the_worker_unhealthy(api: StubAPI, services: Any) -> None:
    class Checked(Echo):
        def check_services(self) -> Any:
            if isinstance(services, Exception):
                raise services
            return services

    worker = Checked(api.url, "w1")
    report = worker.health_check()
    assert report["api_connectivity"]
    assert not report["healthy"]
    assert not report
    assert "quota" in str(dict(report))
    assert worker.run() == 1


def test_without_an_api_a_worker_is_unhealthy_and_does_not_run(api: StubAPI) -> None:
    api.stop()
    worker = echo(api)
    report = worker.health_check()
    assert (report["api_connectivity"], bool(report)) == (False, False)
    assert "Cannot reach" in report["api_error"]
    assert worker.run() == 1


class Declared(Echo):
    task_types: ClassVar[dict[str, dict[str, Any]]] = {
        "youtube.search": {"required": ["search_query"]},
        "youtube.video": {"param_schema": {"type": "object"}, "timeout": 60, "version": "2.0.0"},
    }


def test_declared_types_are_registered_once_and_claimed(api: StubAPI) -> None:
    other, wanted = api.add("other"), api.add("youtube.video")
    worker = Declared(api.url, "w1", settings(max_runs=1))
    assert worker.health_check()
    assert worker.run() == 0
    assert api.types == {
        "youtube.search": {
            "name": "youtube.search", "version": "1.0.0", "activate": False,
            "param_schema": {"type": "object", "required": ["search_query"]},
        },
        "youtube.video": {
            "name": "youtube.video", "version": "2.0.0", "activate": False, "param_schema": {"type": "object"},
            "timeout": 60,
        },
    }  # fmt: skip
    assert api.count("/task-types/register") == 2
    assert (api.tasks[wanted]["status"], api.tasks[other]["status"]) == ("completed", "pending")
    assert api.workers["w1"]["types"] == ["youtube.search", "youtube.video"]


def test_a_setting_narrows_the_declared_types(api: StubAPI) -> None:
    other, wanted = api.add("youtube.search"), api.add("youtube.video")
    assert Declared(api.url, "w1", settings(max_runs=1, type_pattern="%.video")).run() == 0
    assert (api.tasks[wanted]["status"], api.tasks[other]["status"]) == ("completed", "pending")


def test_a_type_that_is_refused_makes_the_worker_unhealthy(api: StubAPI) -> None:
    api.fail("/task-types/register", status=400, body=b'{"error": "Invalid JSON schema format"}')
    report = Declared(api.url, "w1").health_check()
    assert "Invalid JSON schema" in report["task_types_error"]
    assert not report


@pytest.mark.parametrize(
    ("chosen", "asked"),
    [
        ({"task_type_ids": [1, 2]}, {"task_type_ids": [1, 2]}),
        ({"type_pattern": "y.%"}, {"type_pattern": "y.%"}),
        ({}, {}),
    ],
)
def test_a_selection_is_part_of_the_claim(api: StubAPI, chosen: dict[str, Any], asked: dict[str, Any]) -> None:
    worker = Echo(api.url, "w1", {**chosen, "claim_timeout": 60})
    worker.claim_task()
    assert api.requests[-1].body == {"worker_id": "w1", "claim_timeout": 60, **asked}
    worker.close()


def test_a_refused_registration_of_the_worker_is_harmless(api: StubAPI) -> None:
    api.fail("/workers/register", status=404, body=b'{"detail": "Not Found"}')
    api.fail("/status", status=500)
    api.add()
    assert echo(api, max_runs=1).run() == 0


def test_an_idle_worker_waits_at_the_server_for_tasks(api: StubAPI) -> None:
    worker = echo(api, max_runs=1, poll_interval=3600)
    with running(worker) as run:
        api.until(lambda: api.count("/tasks/claim") == 1)
        api.add()
        assert run.join() == 0
    assert api.sent("/tasks/claim")[0].body["wait"] == 5


def test_a_worker_of_a_server_that_does_not_wait_pauses(api: StubAPI) -> None:
    paused = threading.Event()

    class Pausing(Echo):
        async def _pause(self, seconds: float) -> None:
            assert 3 < seconds <= 4
            paused.set()
            await super()._pause(seconds)

    api.fail("/tasks/claim", status=404, body=b'{"error": "No available tasks"}')
    with running(Pausing(api.url, "w1", settings(poll_interval=4))) as run:
        assert paused.wait(LIMIT)
        run.worker.should_stop = True
        assert run.join() == 0
    assert api.count("/tasks/claim") == 1


def test_a_class_without_a_handler_claims_nothing(api: StubAPI) -> None:
    api.add()
    with pytest.raises(NotImplementedError, match="has no process_task"):
        Worker(api.url, "w1").run()

    class Wrong(Worker):
        async def process_task(self, task: dict[str, Any]) -> Any:
            return None

    with pytest.raises(TypeError, match="AsyncWorker"):
        Wrong(api.url, "w1").run()
    assert api.count("/tasks/claim") == 0


def test_tasks_run_side_by_side_and_are_claimed_together(api: StubAPI) -> None:
    together = threading.Barrier(4)

    class Meeting(Worker):
        def process_task(self, task: dict[str, Any]) -> Any:
            together.wait(LIMIT)
            return threading.current_thread().name

    ids = [api.add() for _ in range(8)]
    worker = Meeting(api.url, "w1", settings(concurrency=4, max_runs=8))
    assert worker.run() == 0
    assert worker.stats == {"processed": 8, "failed": 0}
    assert len({api.tasks[one]["result"] for one in ids}) == 4
    assert api.sent("/tasks/claim")[0].body["limit"] == 4


def test_one_task_at_a_time_runs_in_the_thread_of_run(api: StubAPI) -> None:
    _, report = run_once(api, lambda: threading.current_thread().name)
    assert not report["result"].startswith("pitboss-lane")


def test_a_stop_finishes_what_runs_and_gives_prefetched_tasks_back(api: StubAPI) -> None:
    ids = [api.add() for _ in range(4)]

    class Stopping(Worker):
        def process_task(self, task: dict[str, Any]) -> Any:
            self.should_stop = True

    worker = Stopping(api.url, "w1", settings(prefetch=2))
    assert worker.run() == 0
    assert [api.tasks[one]["status"] for one in ids] == ["completed", "pending", "pending", "pending"]
    assert [api.tasks[one]["attempts"] for one in ids] == [1, 1, 1, 0]
    assert api.count("/release") == 2


def test_prefetched_tasks_are_never_more_than_max_runs_allows(api: StubAPI) -> None:
    for _ in range(5):
        api.add()
    assert echo(api, prefetch=10, max_runs=3).run() == 0
    assert [one.body.get("limit") for one in api.sent("/tasks/claim")] == [3]


def test_a_subclass_may_claim_from_elsewhere(api: StubAPI) -> None:
    class Own(Echo):
        def claim_task(self) -> Any:
            return {"id": api.add("own"), "params": 1}

        def complete_task(self, task_id: object, result: Any) -> Any:
            self.should_stop = True

    worker = Own(api.url, "w1", settings())
    assert worker.run() == 0
    assert worker.stats["processed"] == 1


def test_a_handler_may_set_should_stop_while_nothing_comes(api: StubAPI) -> None:
    with running(echo(api)) as run:
        api.until(lambda: api.count("/tasks/claim") > 1)
        run.worker.should_stop = True
        assert run.join() == 0


def test_a_task_says_who_claimed_it() -> None:
    task = Task({"id": 7, "claim_token": "t"}, "w", 30)
    assert (task.id, task.claim) == ("7", {"worker_id": "w", "claim_token": "t"})
