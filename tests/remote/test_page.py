"""The code on the page about remote workers runs, and its tables are complete."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pitboss.remote.config import SETTINGS
from tests.remote.running import running, settings
from tests.remote.stub_api import LIMIT, StubAPI

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "remote-workers.md").read_text()
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def block(part: str) -> str:
    (found,) = [one for one in BLOCKS if part in one]
    return found


def run(part: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(block(part), names)
    return names


def test_the_first_worker_runs_as_a_program(api: StubAPI, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(block("class YouTubeWorker"))
    task_id = api.add("youtube.search", search_query=" pottery ")
    command = [sys.executable, "worker.py", "--poll-interval", "2", "--max-runs", "1", "--api-url", api.url]
    subprocess.run(command, cwd=tmp_path, env=dict(os.environ), check=True, capture_output=True, timeout=LIMIT)
    assert api.tasks[task_id]["result"]["data"]["query"] == "pottery"
    assert api.types["youtube.search"]["param_schema"]["required"] == ["search_query"]


def test_the_workers_run(api: StubAPI) -> None:
    for part, name, result in (
        ("class Counting", "Counting", "counted"),
        ("class Fetching", "Fetching", {"slept": True}),
    ):
        task_id = api.add()
        worker = run(part)[name](api.url, "w1", settings(max_runs=1))
        with running(worker) as ended:
            assert ended.join() == 0
        assert api.tasks[task_id]["result"] == result


def test_the_other_code_runs(api: StubAPI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TASKMANAGER_API_URL", api.url)
    run("class Checked")
    assert capsys.readouterr().out == "healthy\n"
    run("def videos")
    assert capsys.readouterr().out == "120\n"
    assert run("quota is used up")["error"].retry_after == 3600
    run("class Echo")


def test_a_task_is_created(api: StubAPI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("client.create_task").replace("http://localhost:8000", api.url), {})
    (task,) = api.tasks.values()
    assert task["type"] == "youtube.search"
    assert capsys.readouterr().out == f"{task['id']} pending\n"


def test_no_block_is_left_out() -> None:
    compiled = [compile(one, "page", "exec") for one in BLOCKS]
    assert len(compiled) == 9


def test_the_table_has_every_setting() -> None:
    rows = re.findall(r"^\| `(\w+)`, `--([\w-]+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == [(name, name.replace("_", "-"), said["env"]) for name, said in SETTINGS.items()]
