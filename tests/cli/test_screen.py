"""How things look: for a person at 80 columns, without colour, for a pipe; and how errors are shown."""

import io
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pitboss.cli import errors, status
from pitboss.cli.errors import Exit
from pitboss.cli.formatting import age, ago, took
from pitboss.cli.main import COMMANDS, loaded
from pitboss.cli.screen import Column, Screen
from pitboss.cli.up_output import TaskLines
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.outcome import Transition
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, TaskError, Token
from tests.cli.command_line import PITBOSS, new, pitboss, put, run_all

BOLD = re.compile(r"\x1b\[[01]m")


def on_terminal(*args: str, columns: int = 80, env: dict[str, str] | None = None) -> str:
    """What a terminal of this width gets to see on stdout."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **(env or {})}
    process = subprocess.Popen([str(PITBOSS), *args], stdout=theirs, stderr=subprocess.DEVNULL, env=settings)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert process.wait(30) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_tables_fit_80_columns_and_keep_ids_whole() -> None:
    ids = put(*(new(queue="a-queue-with-a-rather-long-name-indeed") for _ in range(2)))
    run_all(fail="a message that goes on and on and on and on and on and on and on and on")
    shown = on_terminal("tasks", "list")
    plain = on_terminal("tasks", "list", env={"NO_COLOR": "1"})
    assert "\x1b[31m" in shown
    assert "\x1b[3" not in plain
    plain = BOLD.sub("", plain)
    assert all(task in plain for task in ids)
    assert max(len(line) for line in plain.splitlines()) <= 80
    for command in (["status"], ["dead", "list"], ["queues", "list"], ["config", "show", "--origin"]):
        page = BOLD.sub("", on_terminal(*command, env={"NO_COLOR": "1"}))
        assert max(len(line) for line in page.splitlines()) <= 80, command


def test_a_wide_terminal_shows_more_columns() -> None:
    put(new())
    assert "Queue" in on_terminal("tasks", "list", columns=160)
    assert "Queue" not in on_terminal("tasks", "list", columns=60)


def test_a_pipe_gets_everything_and_no_colour() -> None:
    put(new(queue="a-queue-with-a-rather-long-name-indeed"))
    run_all(fail="a message that goes on and on and on")
    answer = pitboss("tasks", "list", env={"COLUMNS": "40"})
    assert "a message that goes on and on and on" in answer.out
    assert "a-queue-with-a-rather-long-name-indeed" in answer.out
    assert "\x1b" not in answer.out


def test_status_looks_like_this() -> None:
    put(new(), new())
    run_all(fail="no")
    text = pitboss("status").out
    assert text.splitlines()[:7] == [
        "No manager is running, and nothing waits.",
        "Next: pitboss up",
        "Also: 2 tasks of the last 1h failed; the rest goes on.",
        "",
        "Queues",
        "QUEUE    PENDING  RUNNING  SCHEDULED  HELD  COMPLETED  FAILED  CANCELLED  FORECAST  LIMITED BY  LIMITS",
        "default        0        0          0     0          0       2          0  keeps up",
    ]


def test_columns_go_in_their_order_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    columns = [Column("A"), Column("B", drop=1), Column("C", drop=2)]
    stream = io.StringIO()
    for width, seen in ((60, "A B C"), (26, "A B"), (12, "A")):
        stream.truncate(0)
        screen.out = type(screen.out)(file=stream, force_terminal=True, width=width, no_color=True)
        screen.table(columns, [["x" * 10, "y" * 10, "z" * 10]])
        header = next(line for line in stream.getvalue().replace("\0", "").splitlines() if "A" in line)
        assert [word for word in "ABC" if word in header] == seen.split()


@pytest.mark.parametrize("debug", [False, True])
def test_something_unexpected_is_a_short_message_and_a_kept_traceback(
    monkeypatch: pytest.MonkeyPatch, *, debug: bool
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(status, "overview", broken)
    answer = pitboss(*(["--debug"] if debug else []))
    assert answer.code == Exit.FAILED
    assert "unexpected error: ZeroDivisionError: a fault of ours" in answer.err
    if debug:
        assert "Traceback" in answer.err
        return
    assert "Traceback" not in answer.err
    path = Path(answer.err.split("written to ")[1].split(";")[0])
    assert "ZeroDivisionError" in path.read_text()
    path.unlink()


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(status, "overview", interrupted)
    assert pitboss().code == Exit.INTERRUPTED


def test_a_closed_pipe_is_no_error() -> None:
    put(*(new() for _ in range(300)))
    command = f"{PITBOSS} tasks list -n 300 | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[1] == "0"
    assert done.stderr.count("\n") <= 1


def test_an_error_is_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code = errors.show(Screen(color=False), InvalidInput("what", why="why", fix="fix"))
    assert code == Exit.USAGE
    assert capsys.readouterr().err == "error: what\n  why: why\n  fix: fix\n"


def test_help_comes_at_once() -> None:
    """It loads the library that reads the command line, and nothing of what the commands need."""
    code = "import sys; from pitboss.cli.main import app\ntry: app(['--help'])\nexcept SystemExit: pass\n"
    code += (
        "print(*(m for m in sys.modules if m.startswith('pitboss.') or m in ('rich', 'pydantic', 'asyncio', 'uvloop')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    parts = {f"pitboss.cli.{part}" for part in ("main", "screen", "errors")}
    assert set(done.stdout.splitlines()[-1].split()) <= parts | {
        "pitboss.cli",
        "pitboss.model",
        "pitboss.model.errors",
        "pitboss.model.text",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    command = loaded(name)
    assert command.get_short_help_str(limit=200) == COMMANDS[name].line
    assert command.name == name
    alias = COMMANDS[name].alias
    assert not alias or loaded(alias).name == name


def test_times() -> None:
    now = 1_800_000_000 * SECOND
    assert (ago(now - 90 * SECOND, now), ago(now + 90 * SECOND, now), ago(now, now)) == ("1m30s ago", "in 1m30s", "now")
    assert (age(None, now), age(now, now), age(now - 61 * SECOND, now)) == ("", "0s", "1m1s")
    assert (took(1500), took(2_500_000), took(90_000_000), took(None)) == ("2ms", "2.5s", "1m30s", "")


class Output:
    """The lines of tasks, and what was shown."""

    def __init__(self, **options: bool) -> None:
        self.lines: list[str] = []
        self.time = 0.0
        options = {"quiet": False, "full": True} | options
        self.tasks = TaskLines(lambda text, _: self.lines.append(text), lambda: self.time, **options)

    def note(self, **change: object) -> None:
        claim = Claim(id=new().id, token=Token(1, 1), handler="greet", queue="default", params="{}", attempt=1)
        transition = Transition(**{"state": State.COMPLETED, "outcome": "completed", "charged": True} | change)  # type: ignore[arg-type]
        self.tasks.note(claim, Settlement(id=claim.id, token=claim.token, transition=transition, ran=12_000))


def test_no_more_lines_than_can_be_read() -> None:
    output = Output()
    for _ in range(100):
        output.note()
    assert len(output.lines) == 20
    output.time = 1.5
    output.note()
    assert output.lines[20:] == ["         … and 80 more tasks in between", "done     greet  12ms"]
    assert output.tasks.summary(2.5) == "stopped after 2.5s: 101 done, 0 failed"


def test_failures_and_retries_are_shown_without_a_terminal() -> None:
    output = Output(full=False)
    error = TaskError(category="error", type="OSError", message="no route\nmore")
    output.note()
    output.note(state=State.FAILED, error=error)
    output.note(state=State.SCHEDULED, error=error, delay=2 * SECOND)
    output.note(state=State.CANCELLED, reason="enough", charged=False)
    assert [line.split()[0] for line in output.lines] == ["failed", "again", "cancelled"]
    assert "again in 2s" in output.lines[1]
    assert output.tasks.summary(1) == "stopped after 1.0s: 1 done, 1 failed, 1 tried again, 1 cancelled"


def test_tasks_that_were_lost_with_their_worker_have_no_lines_of_their_own() -> None:
    output = Output()
    error = TaskError(category="crash", type="WorkerCrashed", message="worker default-1 was killed")
    for _ in range(16):
        output.note(state=State.PENDING, outcome="lost", error=error, lost=True, charged=False)
    assert output.lines == []
    output.note(state=State.FAILED, outcome="crashed", error=error, lost=True, charged=False)
    assert len(output.lines) == 1


def test_quiet_output_only_counts() -> None:
    output = Output(quiet=True)
    output.note()
    assert output.lines == []
    assert output.tasks.ended[State.COMPLETED] == 1


def test_watch_redraws_until_it_is_ended() -> None:
    put(new())
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(PITBOSS), "queues", "list", "--watch", "50ms"], stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    seen, ends = b"", time.monotonic() + 30
    while seen.count(b"\x1b[H") < 3 and time.monotonic() < ends:
        seen += os.read(ours, 65536)
    process.send_signal(2)
    assert process.wait(30) == 0
    os.close(ours)
    assert seen.count(b"\x1b[H") >= 3
