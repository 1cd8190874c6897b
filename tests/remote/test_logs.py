"""Lines of JSON that name the worker and the task, also when many tasks log at the same time."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest

from pitboss.remote import JSONFormatter, WorkerMetrics, log_context, setup_logging
from tests.remote.stub_api import LIMIT

log = logging.getLogger("tests.remote.logs")


@pytest.fixture
def lines() -> Iterator[Any]:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.removeHandler(handler)


def test_the_fields_of_a_line(lines: Any) -> None:
    log.info("got %d", 3)
    (line,) = lines()
    assert line.keys() == {"timestamp", "level", "message", "worker_id", "task_id", "module", "function", "line"}
    assert (line["level"], line["message"], line["module"]) == ("INFO", "got 3", "test_logs")
    assert (line["function"], line["worker_id"], line["task_id"]) == ("test_the_fields_of_a_line", None, None)
    assert datetime.fromisoformat(line["timestamp"]).utcoffset() == timedelta(0)


def test_an_exception_and_extra_values(lines: Any) -> None:
    try:
        raise KeyError("mine")
    except KeyError:
        log.exception("failed", extra={"task_id": "t", "url": {1, 2}})
    (line,) = lines()
    assert "KeyError: 'mine'" in line["exception"]
    assert (line["task_id"], line["url"]) == ("t", "{1, 2}")


def test_a_context_adds_fields_and_may_be_nested(lines: Any) -> None:
    with log_context(worker_id="w"):
        with log_context(task_id="t", batch=3):
            log.info("inside")
        log.info("between")
    log.info("outside")
    inside, between, outside = lines()
    assert (inside["worker_id"], inside["task_id"], inside["batch"]) == ("w", "t", 3)
    assert (between["worker_id"], between["task_id"]) == ("w", None)
    assert outside["worker_id"] is None


def test_contexts_of_threads_do_not_mix(lines: Any) -> None:
    both = threading.Barrier(2)

    def work(name: str) -> None:
        with log_context(task_id=name):
            both.wait(LIMIT)
            log.info(name)
            both.wait(LIMIT)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((line["message"], line["task_id"]) for line in lines()) == [("a", "a"), ("b", "b")]


async def test_contexts_of_asyncio_tasks_do_not_mix(lines: Any) -> None:
    async def work(name: str) -> None:
        with log_context(task_id=name):
            await asyncio.sleep(0)
            log.info(name)
            await asyncio.sleep(0)

    await asyncio.gather(work("a"), work("b"))
    assert [(line["message"], line["task_id"]) for line in lines()] == [("a", "a"), ("b", "b")]


def test_logging_is_set_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.RootLogger(logging.WARNING)
    real = logging.getLogger
    monkeypatch.setattr(logging, "getLogger", lambda name=None: real(name) if name else root)
    setup_logging()
    setup_logging(debug=True)
    assert (len(root.handlers), root.level) == (1, logging.DEBUG)
    assert not real("httpx").isEnabledFor(logging.INFO)


def test_the_metrics_of_a_worker() -> None:
    metrics = WorkerMetrics(started_at=datetime.now())  # noqa: DTZ005
    assert (metrics.success_rate, metrics.avg_processing_time) == (0.0, 0.0)
    metrics.tasks_completed, metrics.tasks_failed, metrics.total_processing_time = 3, 1, 6.0
    report = WorkerMetrics(datetime.now(UTC) - timedelta(hours=1), 5, 3, 1, 6.0).report()
    assert 3600 <= report.pop("uptime_seconds") < 3700
    assert report == {
        "tasks_claimed": 5, "tasks_completed": 3, "tasks_failed": 1, "success_rate": 0.75, "avg_processing_time": 2.0,
    }  # fmt: skip
    assert metrics.report()["success_rate"] == 0.75
