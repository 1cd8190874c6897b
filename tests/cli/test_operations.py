"""Acts on many tasks, and `pitboss operations`."""

import asyncio
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from pitboss.cli import operations
from pitboss.cli.errors import Exit
from pitboss.cli.screen import Screen
from pitboss.model.filter import by
from pitboss.model.operation import Operation
from pitboss.model.states import State
from pitboss.model.task import Unique
from pitboss.operate.operations import find_operation
from tests.cli.command_line import Process, new, pitboss, put, run_all, with_store


def failed(number: int = 6) -> None:
    put(*(new() for _ in range(number)))
    run_all(fail="no route")


def test_they_are_retried_by_filter_and_by_group() -> None:
    failed()
    answer = pitboss("dead", "retry", "task:greet", "--rate", "100/s", "--yes")
    assert (answer.code, answer.err) == (0, "6 tasks set to run again\n")
    assert run_all(fail="no route") == 6
    answer = pitboss("dead", "retry", "abcd1234", "--rate", "100/s", "--stop-on-failures", "3", "--yes")
    assert (answer.code, answer.err) == (0, "6 tasks set to run again\n")
    newest = pitboss("audit", "--json").json()["entries"][0]
    assert len(newest["details"].pop("operation")) == 36
    assert (newest["act"], newest["details"]) == ("dead retry", {"rate": "100/s", "stop-on-failures": 3, "tasks": 6})


def test_it_stops_when_too_many_fail_again() -> None:
    failed(20)
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            run_all(fail="again")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        answer = pitboss("dead", "retry", "--all", "--rate", "4/s", "--stop-on-failures", "3", "--yes")
    finally:
        ended.set()
        worker.join()
    assert answer.code == Exit.FAILED
    assert answer.err.startswith("stopped: ")
    assert "failed again" in answer.err
    assert "tasks not retried" in answer.err


def test_a_dry_run_says_how_long_it_takes() -> None:
    failed()
    answer = pitboss("dead", "retry", "--all", "--rate", "1/m", "--dry-run")
    assert (answer.code, "this takes about 6m; nothing was changed" in answer.err) == (0, True)
    assert pitboss("dead", "retry", "--all", "--rate", "1/m").code == Exit.REFUSED
    assert with_store(lambda store: store.count(by(state=State.FAILED))).number == 6


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--all", "--stop-on-failures", "3"], Exit.USAGE, "needs a rate"),
        (["--all", "--rate", "fast", "--yes"], Exit.USAGE, "is not a rate"),
        (["--all", "--rate", "0/s", "--yes"], Exit.USAGE, "not a rate"),
        (["queue:none", "--rate", "1/s", "--yes"], Exit.NOT_FOUND, "no failed task matches"),
        (["--rate", "1/s"], Exit.USAGE, "no tasks selected"),
    ],
)
def test_what_cannot_be_done_is_refused(args: list[str], code: Exit, said: str) -> None:
    failed(1)
    answer = pitboss("dead", "retry", *args)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert with_store(lambda store: store.count(by(state=State.FAILED))).number == 1


def begin(number: int = 1_200) -> str:
    """More tasks than one act changes, and the operation that was begun for them, which no process performs."""
    failed(number)
    answer = pitboss("dead", "retry", "--all", "--yes", "--no-wait")
    assert answer.code == 0
    assert "0 tasks set to run again" in answer.err
    assert "no manager runs" in answer.err
    found = re.search("operations show ([0-9a-f]+)", answer.err)
    assert found is not None
    return found[1]


def test_many_tasks_are_an_operation_that_anyone_can_look_at() -> None:
    name = begin()
    (shown,) = pitboss("operations", "list", "--json").json()["operations"]
    assert (shown["verb"], shown["status"], shown["matched"], shown["done"]) == ("retry", "running", 1200, 0)
    assert shown["filter"] == "state:failed"
    assert shown["id"].endswith(name)
    assert name in pitboss("operations", "list", "--running").out
    page = pitboss("operation", "show", name).out
    assert "state:failed" in page
    assert "running" in page
    assert pitboss("operations", "show", name, "--json").json()["id"] == shown["id"]
    answer = pitboss("operations", "wait", name)
    assert (answer.code, answer.err) == (0, "1,200 tasks set to run again\n")
    assert pitboss("operations", "list", "--running").err == "no operations\n"
    assert "1,200 of 1,200 100 %" in pitboss("operations", "show", name).out
    assert with_store(lambda store: store.count(by(state=State.PENDING))).number == 1200


def test_an_operation_is_cancelled() -> None:
    name = begin()
    answer = pitboss("operations", "cancel", name)
    assert (answer.code, f"operation {name} is cancelled; 0 tasks set to run again" in answer.err) == (0, True)
    assert "1,200 tasks not retried" in answer.err
    assert pitboss("audit", "--json").json()["entries"][0]["act"] == "operations cancel"
    answer = pitboss("operations", "wait", name)
    assert (answer.code, answer.err.startswith("cancelled: ")) == (Exit.FAILED, True)
    assert "is over already: cancelled" in pitboss("operations", "cancel", name).err
    assert "nothing was changed" in pitboss("operations", "rate", name, "1/s").err


def test_the_rate_of_an_operation_is_changed() -> None:
    name = begin()
    assert pitboss("operations", "rate", name, "1/h").err == f"operation {name} goes on at 1/1h\n"
    assert "1/1h" in pitboss("operations", "show", name).out
    assert pitboss("operations", "rate", name, "none").err == f"operation {name} goes on at full speed\n"
    assert pitboss("operations", "rate", name, "fast").code == Exit.USAGE
    assert pitboss("operations", "show", "ffffff").code == Exit.NOT_FOUND


def test_many_tasks_are_deleted_but_for_those_that_must_stay() -> None:
    failed(1_100)
    put(new(unique=Unique("k", 3_600_000_000)))
    run_all(fail="no")
    answer = pitboss("dead", "discard", "--all", "--yes")
    assert answer.code == Exit.REFUSED
    assert "1,100 tasks deleted" in answer.err
    assert "it must stay for now" in answer.err


def test_many_running_tasks_are_asked_to_stop() -> None:
    put(*(new() for _ in range(1_100)))
    run_all(stay=True)
    answer = pitboss("tasks", "cancel", "--all", "--yes")
    assert (answer.code, "1,100 running tasks asked to stop" in answer.err) == (0, True)


def test_ctrl_c_leaves_it_to_the_background(folder: Path) -> None:
    failed(50)
    with Process("dead", "retry", "--all", "--rate", "2/s", "--yes", cwd=folder) as process:
        deadline = time.monotonic() + 30
        while with_store(lambda store: store.count(by(state=State.PENDING))).number < 1:
            assert time.monotonic() < deadline
        process.tell(signal.SIGINT)
        assert process.ended() == Exit.INTERRUPTED
        retried = with_store(lambda store: store.count(by(state=State.PENDING))).number
        assert f"goes on in the background; {retried} task" in process.said
        assert f"{50 - retried} tasks not retried" in process.said
        assert "cancel it: pitboss operations cancel" in process.said
    assert pitboss("operations", "list", "--json").json()["operations"][0]["status"] == "running"


def test_a_person_who_presses_ctrl_c_may_cancel_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    name = begin(1_001)
    screen = Screen()
    monkeypatch.setattr(Screen, "interactive", True)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: True)

    async def work(store: Any) -> Operation:
        operation = await find_operation(store, name)
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        return await operations.follow(screen, store, operation)

    assert with_store(work).status == "cancelled"
