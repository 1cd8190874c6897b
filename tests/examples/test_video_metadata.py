"""The video metadata worker: its own tests, the document's integration test, and the whole demonstration."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "video_metadata"
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
PER_SECOND, PAUSE = 10, 1.5  # of the short demonstration
OWN_SETTINGS = ("TASKMANAGER_", "WORKER_", "YOUTUBE_", "PITBOSS_", "POLL_INTERVAL", "MAX_RUNS", "DEBUG")
PATIENCE = 30.0


def environment(**more: str) -> dict[str, str]:
    """Nothing that this machine says about a worker counts."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OWN_SETTINGS)} | more


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=EXAMPLE, env=environment(**more), capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@contextmanager
def running(log: Path, pattern: str, *command: str) -> Iterator[str]:
    """A process until the end of the block; gives what the pattern finds in its output."""
    with log.open("w") as output:
        own = environment(PITBOSS_LOGS=str(log.parent / "logs"))
        process = subprocess.Popen(command, cwd=EXAMPLE, env=own, stdout=output, stderr=output)
    try:
        ends = time.monotonic() + PATIENCE
        while (found := re.search(pattern, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.02)
        yield found[1]
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_its_unit_tests() -> None:
    done = run(sys.executable, "-m", "unittest", "discover", "--top-level-directory", ".", "--start-directory", "tests")
    found = re.search(r"Ran (\d+) tests", done.stderr)
    assert found is not None, done.stderr
    assert int(found[1]) >= 40


def test_the_integration_test_of_the_document(tmp_path: Path) -> None:
    """Only the port is another one: 8000 may be in use."""
    serve = (PITBOSS, "serve", "--store", f"sqlite:///{tmp_path / 'test.db'}", "--port", "0", "--quiet")
    stand_in = (sys.executable, "-m", "demo.video_api", "--port", "0")
    with (
        running(tmp_path / "serve.log", r"the HTTP API is at http://127\.0\.0\.1:(\d+)", *serve) as port,
        running(tmp_path / "video_api.log", r"YOUTUBE_API_URL=(\S+)\s", *stand_in) as video_api,
    ):
        declared = {"name": "test.task", "version": "1.0.0", "param_schema": {"type": "object"}}
        httpx.post(f"http://127.0.0.1:{port}/api/task-types/register", json=declared).raise_for_status()
        text = (EXAMPLE / "tests" / "integration.py").read_text()
        assert "localhost:8000" in text
        (tmp_path / "integration.py").write_text(text.replace("localhost:8000", f"localhost:{port}"))
        path = os.pathsep.join((str(tmp_path), str(EXAMPLE)))
        settings = {"YOUTUBE_API_URL": video_api, "YOUTUBE_API_KEY": "demo-key", "PYTHONPATH": path}
        done = run(sys.executable, "-m", "unittest", "integration", **settings)
        assert "Ran 2 tests" in done.stderr


def test_the_demonstration(tmp_path: Path) -> None:
    done = run(str(EXAMPLE / "run"), "--short", "--folder", str(tmp_path), PYTHON=sys.executable)
    passed = re.search(r"(\d+) of (\d+) checks passed", done.stdout)
    assert passed is not None, done.stdout
    assert passed[1] == passed[2]
    check_far_side(lines(tmp_path / "requests.jsonl"))
    check_tasks(lines(tmp_path / "tasks.jsonl"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_far_side(arrivals: list[dict[str, Any]]) -> None:
    """Counted here from the log of the stand-in, not by the demonstration's own audit."""
    clients = defaultdict(list)
    for arrival in arrivals:
        clients[arrival["client"]].append(arrival)
    assert set(clients) == {f"video-metadata-worker/1.0 (worker-{number})" for number in (1, 2, 3)}
    for seen in clients.values():
        times = [arrival["at"] for arrival in seen]
        assert all(after - before > 1 for before, after in zip(times, times[PER_SECOND:], strict=False))
        for before, after in pairwise(seen):
            assert after["at"] >= before["at"] + before["retry_after"]
            assert before["reason"] != "quotaExceeded" or after["at"] >= before["at"] + PAUSE
        answered = Counter(one for arrival in seen if arrival["path"] == "videos" for one in asked(arrival))
        assert max(answered.values(), default=1) == 1
    reasons = Counter(arrival["reason"] for arrival in arrivals)
    assert reasons["quotaExceeded"] >= 1
    assert reasons["rateLimitExceeded"] >= 1
    assert reasons["backendError"] >= 1


def asked(arrival: dict[str, Any]) -> list[str]:
    """The videos that the far side answered."""
    return arrival["asked"] if arrival["status"] == 200 else []


def check_tasks(tasks: list[dict[str, Any]]) -> None:
    statuses = Counter(task["status"] for task in tasks)
    assert statuses["failed"] == 2
    assert statuses["completed"] == len(tasks) - 2
    partial = [task for task in tasks if task["status"] == "completed" and task["result"]["data"].get("errors")]
    assert len(partial) == 3
    for task in partial:
        data = task["result"]["data"]
        items = [one["video_id"] for one in (*data["results"], *data["errors"])]
        assert sorted(items) == sorted(task["params"]["video_ids"])
