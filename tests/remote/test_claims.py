"""A claim is renewed while its task runs; a claim that is lost is not reported; an operator's cancellation is told."""

import logging
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from pitboss.remote import Worker
from pitboss.remote.routes import Answer
from pitboss.remote.tasks import tasks_in
from tests.remote.running import echo, running, settings
from tests.remote.stub_api import LIMIT, StubAPI


class Waiting(Worker):
    """Runs each task until the test lets it go, or until it should stop."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.started, self.go = threading.Event(), threading.Event()
        self.cancelled: list[bool] = []

    def process_task(self, task: Any) -> Any:
        self.started.set()
        assert self.go.wait(LIMIT)
        self.cancelled.append(self.cancel_requested)
        return "done"


def renewals(api: StubAPI, task_id: str) -> int:
    return sum(report["verb"] == "heartbeat" for report in api.tasks[task_id]["reports"])


def test_a_claim_is_renewed_while_the_task_runs(api: StubAPI) -> None:
    task_id = api.add()
    worker = Waiting(api.url, "w1", settings(claim_timeout=1))
    with running(worker):
        api.until(lambda: renewals(api, task_id) >= 2)
        worker.go.set()
        api.until(lambda: api.tasks[task_id]["status"] == "completed")
    assert worker.stats == {"processed": 1, "failed": 0}
    token = api.tasks[task_id]["claim_token"]
    assert all(report["claim_token"] == token for report in api.tasks[task_id]["reports"])


def test_prefetched_tasks_are_renewed_too_in_the_same_call(api: StubAPI) -> None:
    ids = [api.add() for _ in range(3)]
    worker = Waiting(api.url, "w1", settings(claim_timeout=1, prefetch=2))
    with running(worker):
        api.until(lambda: all(renewals(api, one) for one in ids))
        worker.go.set()
        api.until(lambda: all(api.tasks[one]["status"] == "completed" for one in ids))
    assert len(api.sent("/workers/w1/heartbeat")[0].body["tasks"]) == 3


def test_claims_are_renewed_one_by_one_if_the_server_cannot_renew_them_together(api: StubAPI) -> None:
    task_id = api.add()
    api.fail("/workers/w1/heartbeat", status=404, times=1000)
    worker = Waiting(api.url, "w1", settings(claim_timeout=1))
    with running(worker):
        api.until(lambda: renewals(api, task_id) >= 1)
        worker.go.set()
        api.until(lambda: api.tasks[task_id]["status"] == "completed")
    assert api.count(f"/tasks/{task_id}/heartbeat") >= 1


def test_a_renewal_that_fails_is_repeated_soon(api: StubAPI) -> None:
    task_id = api.add()
    api.fail("/heartbeat", cut="before", times=3)
    worker = Waiting(api.url, "w1", settings(claim_timeout=1))
    with running(worker):
        api.until(lambda: renewals(api, task_id) >= 1)
        worker.go.set()
        api.until(lambda: api.tasks[task_id]["status"] == "completed")
    assert worker.claims_lost == 0


def test_an_operator_who_cancels_reaches_the_handler(api: StubAPI) -> None:
    task_id = api.add()

    class Obeying(Worker):
        def process_task(self, task: Any) -> Any:
            api.cancel(task_id)
            assert task.cancel_event.wait(LIMIT)
            assert self.cancel_requested
            assert not task.claim_lost
            return {"success": False, "error": "cancelled", "retryable": False}

    with running(Obeying(api.url, "w1", settings(claim_timeout=1))):
        api.until(lambda: api.tasks[task_id]["status"] == "failed")


def test_progress_tells_a_cancellation_and_a_lost_claim(api: StubAPI) -> None:
    task_id = api.add()
    worker = echo(api)
    task = worker.claim_task()
    assert task
    assert worker.update_progress(task_id, 50, "half") is True
    assert not task.cancel_requested
    api.cancel(task_id)
    assert worker.update_progress(task_id, 60) is True
    assert task.cancel_requested
    api.fail("/progress", cut="before")
    assert worker.update_progress(task_id, 70) is True  # best effort
    api.give_to_another(task_id)
    assert worker.update_progress(task_id, 80) is False
    assert task.claim_lost
    assert [report["progress"] for report in api.tasks[task_id]["reports"]] == [50, 60]
    worker.close()


def test_a_lost_claim_is_told_counted_and_not_reported(api: StubAPI, caplog: pytest.LogCaptureFixture) -> None:
    task_id = api.add()

    class Losing(Worker):
        def process_task(self, task: Any) -> Any:
            api.give_to_another(task_id)
            assert task.cancel_event.wait(LIMIT)
            assert task.claim_lost
            self.should_stop = True

    worker = Losing(api.url, "w1", settings(claim_timeout=1))
    with caplog.at_level(logging.WARNING):
        assert worker.run() == 0
    assert (worker.claims_lost, worker.consecutive_errors) == (1, 0)
    assert worker.stats == {"processed": 0, "failed": 0}
    assert api.count("/complete") == api.count("/fail") == api.count("/release") == 0
    assert "claim is lost" in caplog.text


@pytest.mark.parametrize("change", ["another worker", "another claim", "finished", "deleted"])
def test_a_report_on_a_stale_claim_is_refused_once_and_is_no_error_of_the_connection(api: StubAPI, change: str) -> None:
    task_id = api.add()

    class Late(Worker):
        def process_task(self, task: Any) -> Any:
            if change == "deleted":
                del api.tasks[task_id]
                return
            token = task["claim_token"] if change == "another worker" else "later"
            api.tasks[task_id].update(claimed_by="w2", claim_token=token)
            if change == "finished":
                api.tasks[task_id].update(status="completed", reports=[{}])

        def complete_task(self, *report: Any) -> bool:
            self.should_stop = True
            return super().complete_task(*report)

    worker = Late(api.url, "w1", settings())
    assert worker.run() == 0
    assert (worker.claims_lost, worker.consecutive_errors) == (1, 0)
    assert worker.stats == {"processed": 0, "failed": 0}
    assert api.count("/complete") == 1


def test_a_prefetched_task_that_was_cancelled_is_given_back_and_a_lost_one_forgotten(api: StubAPI) -> None:
    first, cancelled, lost = (api.add() for _ in range(3))

    class Slow(Worker):
        def process_task(self, task: Any) -> Any:
            api.cancel(cancelled)
            api.give_to_another(lost)
            held = {one.id: one for one in self._keeper.held()}
            assert held[cancelled].cancel_event.wait(LIMIT)
            assert held[lost].cancel_event.wait(LIMIT)
            assert task["id"] == first

    worker = Slow(api.url, "w1", settings(claim_timeout=1, prefetch=2))
    with running(worker):
        api.until(lambda: api.tasks[cancelled]["status"] == "cancelled" and worker.claims_lost)
    assert api.tasks[first]["status"] == "completed"
    assert worker.stats == {"processed": 1, "failed": 0}


def test_a_task_that_the_worker_gets_a_second_time_is_reported_by_the_second_run_only(api: StubAPI) -> None:
    task_id = api.add()
    second = threading.Event()

    class Twice(Worker):
        def process_task(self, task: Any) -> Any:
            if task["attempts"] == 1:
                with api.changed:
                    api.tasks[task_id]["status"] = "pending"  # its claim has run out
                    api.changed.notify_all()
                assert task.cancel_event.wait(LIMIT)
                self.stale = self.complete_task(task_id, "first")
                second.set()
                return "first"
            assert second.wait(LIMIT)
            return "second"

    worker = Twice(api.url, "w1", settings(concurrency=2))
    with running(worker):
        api.until(lambda: api.tasks[task_id]["status"] == "completed")
    assert worker.stale is False
    assert api.tasks[task_id]["result"] == "second"
    assert (worker.claims_lost, worker.stats["processed"]) == (1, 1)


def test_a_heartbeat_that_is_refused_because_the_report_was_faster_is_no_loss(api: StubAPI) -> None:
    task_id = api.add()
    worker = Waiting(api.url, "w1", settings())
    with running(worker):
        assert worker.started.wait(LIMIT)
        (task,) = worker._keeper.held()
        task.reporting = True
        api.tasks[task_id]["status"] = "completed"
        assert worker._keeper._renew_one(worker.client, task) is None
        assert not task.claim_lost
        api.tasks[task_id]["status"] = "claimed"
        worker.go.set()
    assert worker.claims_lost == 0


def test_the_time_limit_is_computed_from_the_clock_of_the_server() -> None:
    ends = datetime(2001, 1, 1, 0, 5, tzinfo=UTC)
    answer = Answer(id="1", claim_expires_at=ends.isoformat().replace("+00:00", "Z"))
    answer.timestamp = ends.timestamp() - 120
    assert tasks_in(answer, "w", None)[0].time_limit == 120
    assert tasks_in(answer, "w", 60)[0].time_limit == 60
    answer.timestamp = None
    assert tasks_in(answer, "w", None)[0].time_limit == 300
    assert tasks_in(Answer(), "w", None) == []
