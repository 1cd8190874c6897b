"""`python -m pitboss.remote` finds a worker; SIGTERM and SIGINT stop it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pitboss.remote.__main__ import main
from tests.remote.stub_api import LIMIT, StubAPI

WORKERS = '''
"""Workers for the tests of signals: they tell their progress, then wait."""

import asyncio
import threading
import time

from pitboss.remote import AsyncWorker, Worker


class Plain(Worker):
    """Waits in this thread, or in several."""

    def process_task(self, task):
        self.update_progress(task["id"], 1)
        if task["params"].get("endless"):
            threading.Event().wait()
        while not self.should_stop:
            time.sleep(0.01)
        return "finished"


class Coroutine(AsyncWorker):
    async def process_task(self, task):
        await self.update_progress(task["id"], 1)
        if task["params"].get("endless"):
            await asyncio.Event().wait()
        while not self.should_stop:
            await asyncio.sleep(0.01)
        return "finished"
'''

KINDS = pytest.mark.parametrize(
    ("name", "concurrency"), [("Plain", 1), ("Plain", 2), ("Coroutine", 1)], ids=["plain", "threads", "async"]
)


class Process:
    def __init__(self, api: StubAPI, target: str, *flags: str) -> None:
        command = [
            sys.executable,
            "-m",
            "pitboss.remote",
            target,
            "--api-url",
            api.url,
            "--poll-interval",
            "0.05",
            *flags,
        ]
        self.child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "WORKER_ID": "w1"})

    def read_until(self, said: str) -> dict[str, Any]:
        assert self.child.stderr
        lines = []
        for line in self.child.stderr:
            lines.append(line)
            if said in line:
                found: dict[str, Any] = json.loads(line)
                return found
        raise AssertionError(f"it never said {said!r}: {lines}")

    def end(self) -> int:
        try:
            self.child.communicate(timeout=LIMIT)
            return self.child.returncode
        finally:
            self.child.kill()
            self.child.wait()


Start = Callable[..., Process]


@pytest.fixture
def start(api: StubAPI, tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "worker.py").write_text(WORKERS)
    processes = []

    def run(name: str, *flags: str) -> Process:
        processes.append(Process(api, f"worker.py:{name}", *flags))
        return processes[-1]

    yield run
    for process in processes:
        process.child.kill()
        process.child.communicate()


@KINDS
def test_the_first_signal_lets_the_running_task_end_and_gives_prefetched_ones_back(
    api: StubAPI, start: Start, name: str, concurrency: int
) -> None:
    ids = [api.add() for _ in range(concurrency + 1)]
    process = start(name, "--concurrency", str(concurrency), "--prefetch", "1")
    api.until(lambda: api.count("/progress") == concurrency)
    process.child.send_signal(signal.SIGTERM)
    line = process.read_until("Stopping on signal 15")
    assert (line["level"], line["worker_id"]) == ("INFO", "w1")
    assert process.end() == 0
    assert [api.tasks[one]["status"] for one in ids] == [*["completed"] * concurrency, "pending"]
    assert api.tasks[ids[-1]]["reports"][-1]["verb"] == "release"
    assert api.workers["w1"]["status"] == "offline"


@KINDS
def test_the_second_signal_stops_at_once_and_gives_all_tasks_back(
    api: StubAPI, start: Start, name: str, concurrency: int
) -> None:
    ids = [api.add(endless=True) for _ in range(concurrency + 1)]
    process = start(name, "--concurrency", str(concurrency), "--prefetch", "1")
    api.until(lambda: api.count("/progress") == concurrency)
    process.child.send_signal(signal.SIGINT)
    process.read_until("Stopping on signal 2")
    process.child.send_signal(signal.SIGINT)
    assert process.end() == 0
    assert [api.tasks[one]["status"] for one in ids] == ["pending"] * (concurrency + 1)
    assert api.count("/release") == concurrency + 1


@pytest.mark.parametrize("name", ["Plain", "Coroutine"])
def test_the_end_of_the_grace_stops_at_once(api: StubAPI, start: Start, name: str) -> None:
    task_id = api.add(endless=True)
    process = start(name, "--shutdown-grace", "0.1")
    api.until(lambda: api.count("/progress") == 1)
    process.child.send_signal(signal.SIGTERM)
    process.read_until("time for running tasks is over")
    assert process.end() == 0
    assert api.tasks[task_id]["status"] == "pending"


@pytest.mark.parametrize("name", ["Plain", "Coroutine"])
def test_an_idle_worker_stops(api: StubAPI, start: Start, name: str) -> None:
    process = start(name)
    api.until(lambda: api.count("/tasks/claim") >= 2)
    process.child.send_signal(signal.SIGINT)
    assert process.end() == 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "jobs.py").write_text(
        "from worker_base import Base\n\n\nclass Done(Base):\n    '''Says it is done.'''\n"
    )
    (tmp_path / "worker_base.py").write_text(
        "from pitboss.remote import Worker\n\n\nclass Base(Worker):\n"
        "    def process_task(self, task):\n        return 'done'\n"
    )
    yield tmp_path
    for name in ("jobs", "worker_base"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("target", ["jobs:Done", "jobs.py:Done", "jobs", "jobs.py"])
def test_a_worker_is_found_by_module_or_file(api: StubAPI, folder: Path, target: str) -> None:
    task_id = api.add()
    assert main([target, "--api-url", api.url, "--max-runs", "1", "--worker-id", "w9"]) == 0
    assert (api.tasks[task_id]["result"], api.tasks[task_id]["claimed_by"]) == ("done", "w9")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("none:Done", "No module named 'none'"), ("none.py:Done", "No module named 'none'"),
        ("jobs:Other", "its workers are: Done"), ("os", "its workers are: none"), ("--debug", "usage"),
    ],
)  # fmt: skip
def test_a_wrong_target_says_why(folder: Path, target: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([target]) == 2
    assert why in capsys.readouterr().err


def test_help_has_the_first_line_of_the_class_and_all_flags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["jobs:Done", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "Says it is done." in said
    assert "TASKMANAGER_API_URL" in said
    assert main(["--help"]) == 0


def test_a_wrong_flag_ends_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs:Done", "--poll-interval", "x"]) == 2
    assert "--poll-interval is 'x'" in capsys.readouterr().err


def test_a_worker_that_cannot_reach_the_api_ends_with_1(api: StubAPI, folder: Path) -> None:
    api.stop()
    assert main(["jobs:Done", "--api-url", api.url]) == 1
