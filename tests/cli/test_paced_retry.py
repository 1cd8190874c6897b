"""`pitboss dead retry --rate`."""

import signal
import threading
import time
from pathlib import Path

import pytest

from pitboss.cli.errors import Exit
from pitboss.model.filter import by
from pitboss.model.states import State
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
    assert (newest["act"], newest["details"]) == ("dead retry", {"rate": "100/s", "stop-on-failures": 3})


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
    assert with_store(lambda store: store.count(by(state=State.FAILED))) == 6


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
    assert with_store(lambda store: store.count(by(state=State.FAILED))) == 1


def test_ctrl_c_stops_it_and_says_how_many(folder: Path) -> None:
    failed(50)
    with Process("dead", "retry", "--all", "--rate", "2/s", "--yes", cwd=folder) as process:
        deadline = time.monotonic() + 30
        while with_store(lambda store: store.count(by(state=State.PENDING))) < 1:
            assert time.monotonic() < deadline
        process.tell(signal.SIGINT)
        assert process.ended() == Exit.INTERRUPTED
        retried = with_store(lambda store: store.count(by(state=State.PENDING)))
        assert f"interrupted: {retried} task" in process.said
        assert f"{50 - retried} tasks not retried" in process.said
