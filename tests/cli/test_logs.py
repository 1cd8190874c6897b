"""`pitboss logs`: whose lines, which of them, how they look, and how they are followed."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pitboss.cli import logs as command
from pitboss.cli.errors import Exit
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import Snapshot
from pitboss.telemetry.logs.files import Appender, manager_file, worker_file
from pitboss.telemetry.logs.lines import encoded, stamp
from tests.cli.command_line import PITBOSS, Process, pitboss, put, with_store
from tests.cli.test_screen import on_terminal

WHEN = re.compile(r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d{3} ")
ONE, TWO = "01900000-0000-7000-8000-0000000000aa", "01900000-0000-7000-8000-1111111111aa"


class Logs:
    """Log files as workers and a manager write them, the first line half an hour ago."""

    def __init__(self, folder: Path, *, size: int = 1_000_000) -> None:
        self._folder, self._size = folder / "logs", size
        self._now = time.time() - 1800

    def write(self, name: str, event: str, file: str = "", **fields: Any) -> None:
        is_manager = name == "manager"
        path = manager_file(self._folder) if is_manager else worker_file(self._folder, name, file)
        who = {"manager_pid": 5} if is_manager else {"pool": name.rpartition("-")[0], "worker": name, "pid": 7}
        self._now += 1
        line = {"time": stamp(self._now), "level": "info", "logger": "shop", "event": event, **who, **fields}
        appender = Appender(path, size=self._size, age=10**15, kept=100)
        appender.write(encoded(line), self._now)
        appender.close()


@pytest.fixture
def logs(folder: Path) -> Logs:
    found = Logs(folder)
    found.write("mail-1", "first", task_id=ONE, handler="send", queue="mail", attempt=1)
    found.write("download-1", "second", level="warning", size=5)
    found.write("manager", "worker started", worker="mail-1")
    found.write("download-2", "third", level="error", exception="Traceback\n  File x\nKeyError: 'y'")
    found.write("mail-1", "fourth", task_id=TWO, handler="send", queue="mail", attempt=2)
    return found


def seen(*args: str) -> list[str]:
    """The events of the lines that a command prints."""
    answer = pitboss("logs", *args, "--json")
    assert answer.code == 0, answer.err
    return [msgspec.json.decode(line)["event"] for line in answer.out.splitlines()]


def test_all_workers_are_merged_by_time(logs: Logs) -> None:
    assert seen() == ["first", "second", "third", "fourth"]
    assert seen("--lines", "2") == ["third", "fourth"]
    assert seen("-n", "0") == []


def test_a_worker_a_pool_or_the_manager(logs: Logs) -> None:
    assert seen("mail-1") == ["first", "fourth"]
    assert seen("download") == ["second", "third"]
    assert seen("manager") == ["worker started"]


def test_a_worker_whose_file_has_a_name_of_its_own_is_found_with_what_it_wrote_before(logs: Logs) -> None:
    logs.write("mail-1", "fifth", file="state_worker_0.log")
    logs.write("mail-2", "sixth", file="state_worker_1.log")
    assert seen("mail-1") == ["first", "fourth", "fifth"]
    assert seen("mail-1", "--lines", "1") == ["fifth"]
    assert seen("mail")[-2:] == ["fifth", "sixth"]


def test_a_task_over_all_files(logs: Logs) -> None:
    logs.write("download-2", "also", task_id=ONE, handler="send", queue="mail", attempt=2)
    assert seen(ONE) == ["first", "also"]
    assert seen(ONE.upper()) == ["first", "also"]
    assert seen("11111111aa") == ["fourth"]
    several = pitboss("logs", "01900000")
    assert several.code == Exit.USAGE
    assert TWO in several.err


def test_a_task_and_a_batch_by_option_with_what_the_manager_said_of_them(logs: Logs) -> None:
    batch = "01900000-0000-7000-8000-0000000000bb"
    logs.write("mail-2", "item", task_id=ONE, batch=batch)
    logs.write("manager", "task failed", level="error", task_id=ONE, batch=batch)
    lost = [{"task_id": TWO, "batch": batch}, {"task_id": "01900000-0000-7000-8000-22222222aaaa"}]
    logs.write("manager", "worker crashed", level="error", tasks=lost)
    assert seen("--task", ONE) == ["first", "item", "task failed"]
    assert seen("--task", "11111111aa") == ["fourth", "worker crashed"]
    assert seen("--batch", "0000bb") == ["item", "task failed", "worker crashed"]
    assert seen("--batch", batch, "--task", ONE, "--level", "error") == ["task failed"]
    assert seen("manager", "--batch", batch) == ["task failed", "worker crashed"]
    for option, wrong, code in (("--batch", "nightly", Exit.USAGE), ("--task", "abcdef123456", Exit.NOT_FOUND)):
        assert pitboss("logs", option, wrong).code == code
    assert pitboss("logs", ONE, "--task", TWO).code == Exit.USAGE


def test_the_manager_s_troubles_are_shown_with_the_lines_of_workers(logs: Logs) -> None:
    logs.write("manager", "task failed", level="error")
    assert seen() == ["first", "second", "third", "fourth", "task failed"]
    assert seen("--level", "warning") == ["second", "third", "task failed"]


def test_all_lines_of_a_task_and_of_a_time_are_shown(logs: Logs) -> None:
    for number in range(60):
        logs.write("mail-1", f"step {number}", task_id=ONE)
    assert len(seen()) == 50
    assert len(seen(ONE)) == 61
    assert len(seen("--since", "1h")) == 64
    assert len(seen("--since", "1h", "--lines", "3")) == 3
    assert seen("--since", "5m") == []


def test_from_a_level_on(logs: Logs) -> None:
    assert seen("--level", "warning") == ["second", "third"]
    wrong = pitboss("logs", "--level", "loud")
    assert wrong.code == Exit.USAGE
    assert "debug, info, warning, error, critical" in wrong.err


def test_a_person_reads_a_line_per_event_and_the_traceback_below(logs: Logs) -> None:
    out = [WHEN.sub("", line) for line in pitboss("logs").out.splitlines()]
    assert out == [
        "mail-1     INFO    shop: first  [send 0000000000aa #1]",
        "download-1 WARNING shop: second size=5",
        "download-2 ERROR   shop: third",
        "    Traceback",
        "      File x",
        "    KeyError: 'y'",
        "mail-1     INFO    shop: fourth  [send 1111111111aa #2]",
    ]
    assert WHEN.sub("", pitboss("logs", "manager").out) == "manager INFO    worker started worker=mail-1\n"


def test_a_terminal_gets_colour_and_no_commands(logs: Logs) -> None:
    logs.write("mail-1", "evil \x1b]0;title\x07", level="critical")
    shown = on_terminal("logs")
    assert "\x1b[33m" in shown
    assert "\x1b[31m" in shown
    assert "evil \\x1b]0;title\\x07" in shown


def test_unknown_names(logs: Logs) -> None:
    answer = pitboss("logs", "upload-1")
    assert answer.code == Exit.NOT_FOUND
    assert "download-1, download-2, mail-1, manager" in answer.err
    nothing = pitboss("logs", "abcdef123456")
    assert nothing.code == Exit.NOT_FOUND
    assert "there are no lines of task abcdef123456" in nothing.err


def test_no_logs_and_no_store() -> None:
    answer = pitboss("logs")
    assert answer.code == Exit.NOT_FOUND
    assert "pitboss up" in answer.err


def test_no_logs_here_but_on_another_host() -> None:
    put()

    async def elsewhere(store: Store) -> None:
        session = await store.open_session(SessionInfo(host="far-away", ttl=600 * SECOND))
        snapshot = msgspec.json.encode(Snapshot(logs="/srv/shop/logs")).decode()
        await store.renew(session.number, snapshot=snapshot)

    with_store(elsewhere)
    answer = pitboss("logs")
    assert answer.code == Exit.NOT_FOUND
    assert "far-away (in /srv/shop/logs)" in answer.err


def test_the_folder_is_that_of_the_project(logs: Logs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text("workers = 1\n")
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    assert len(seen()) == 4


def test_following_goes_on_over_files_set_aside_until_ctrl_c(folder: Path) -> None:
    logs = Logs(folder, size=300)
    logs.write("mail-1", "before")
    with Process("logs", "-f", cwd=folder) as process:
        process.until("before")
        for number in range(20):
            logs.write("mail-1", f"during {number}.")
        logs.write("new-1", "a new worker")
        process.until("a new worker")
        process.until("during 19.")
        process.tell(signal.SIGINT)
        assert process.ended() == Exit.OK
        shown = [line.split("shop: ")[1] for line in process.said.splitlines()]
    assert shown == ["before", *(f"during {number}." for number in range(20)), "a new worker"]


def test_a_task_can_be_followed_before_it_begins(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter(range(2))

    def sleep(_: float) -> None:
        if next(waits, None) is None:
            raise KeyboardInterrupt
        logs.write("mail-1", "not this", task_id=ONE)
        logs.write("mail-1", "it begins", task_id="01900000-0000-7000-8000-ffffff000000")

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    assert seen("-f", "ffffff000000") == ["it begins", "it begins"]


def test_a_closed_pipe_is_no_error(logs: Logs) -> None:
    for number in range(3000):
        logs.write("mail-1", f"line {number}")
    for flags in ("-n 3000", "-n 3000 --json"):
        command = f"{PITBOSS} logs {flags} | head -1 > {os.devnull}; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == "0"
