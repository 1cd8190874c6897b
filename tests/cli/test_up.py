"""`pitboss up` as a user starts it: real processes on a real file."""

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pitboss.cli.errors import Exit
from tests.cli.command_line import PITBOSS, Process, pitboss

APP = """
import time
from pitboss import App, ctx
app = App({store})

@app.task
async def quick(name: str = "you") -> str:
    return f"hello {{name}}"

@app.task
def slow(seconds: float) -> str:
    print("slow begins", flush=True)
    time.sleep(seconds)
    return "slept"

@app.task(max_attempts=1)
def broken() -> None:
    raise KeyError("missing")
"""


def write_app(folder: Path, store: str = "") -> None:
    (folder / "app.py").write_text(APP.format(store=store))


def enqueue(*args: str) -> str:
    answer = pitboss("tasks", "enqueue", *args)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def test_the_starter_project_runs_and_drains(folder: Path) -> None:
    pitboss("init", ".")
    with Process("up", "--workers", "1", cwd=folder) as process:
        process.until("is ready")
        assert enqueue("greet", '{"name": "you"}', "--wait", "--timeout", "30s") == '"Hello, you!"'
        process.until("again    flaky")
        process.tell(signal.SIGTERM)
        assert process.ended() == 0
        assert "stopping" in process.said
        assert " done, 0 failed" in process.said.splitlines()[-1]
        assert "pitboss tasks enqueue" in process.said
    counts = pitboss("queues", "list", "--json").json()["queues"][0]["counts"]
    assert counts["completed"] >= 1
    assert counts.get("running", 0) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_tasks_end(folder: Path, number: signal.Signals) -> None:
    write_app(folder)
    with Process("up", "app.py", "--workers", "1", cwd=folder) as process:
        process.until("is ready")
        task = enqueue("slow", '{"seconds": 1}')
        process.until("slow begins")
        process.tell(number)
        assert process.ended() == 0
        assert "waiting up to 30 s for 1 running task(s): 1 × slow" in process.said
        assert "1 done, 0 failed" in process.said
    assert pitboss("tasks", "show", task, "--json").json()["task"]["state"] == "completed"


def test_a_second_signal_stops_at_once_and_nothing_is_lost(folder: Path) -> None:
    write_app(folder)
    with Process("up", "app.py", "--workers", "1", cwd=folder) as process:
        process.until("is ready")
        task = enqueue("slow", '{"seconds": 60}')
        process.until("slow begins")
        process.tell(signal.SIGINT)
        process.until("waiting up to")
        began = time.monotonic()
        process.tell(signal.SIGINT)
        assert process.ended() == 0
        assert time.monotonic() - began < 10
        assert "go back to the queue; this costs no attempt" in process.said
    found = pitboss("tasks", "show", task, "--json").json()["task"]
    assert (found["state"], found["attempts"]) == ("pending", 0)


def test_failures_are_told_with_the_way_to_look_at_them(folder: Path) -> None:
    write_app(folder)
    with Process("up", "app.py", "--workers", "1", cwd=folder) as process:
        process.until("is ready")
        task = enqueue("broken")
        process.until("failed   broken")
        assert f"(pitboss tasks show {task[-12:]})" in process.said
        answer = pitboss("tasks", "enqueue", "broken", "--wait", "--timeout", "30s")
        assert answer.code == Exit.FAILED
        assert "KeyError" in pitboss("tasks", "show", task).out
        logged = pitboss("logs", "--task", task, "--level", "warning").out
        assert "ERROR   task failed" in logged
        assert f"[broken {task[-12:]} #1]" in logged
        process.tell(signal.SIGTERM)
        assert process.ended() == 0
    assert pitboss("dead", "list", "--json").json()["groups"][0]["count"] == 2


def test_status_sees_the_manager(folder: Path) -> None:
    write_app(folder)
    with Process("up", "app.py", "--workers", "2", cwd=folder) as process:
        process.until("is ready", times=2)
        document = pitboss("status", "--check", "--json").json()
        assert document["cause"] == "healthy"
        assert document["managers"][0]["alive"] is True
        with Process("up", "app.py", "--workers", "1", cwd=folder) as second:
            second.until("is ready")
            assert "on this host serves this store" in second.said
        process.tell(signal.SIGTERM)
        assert process.ended() == 0


def test_settings_reach_the_manager(folder: Path) -> None:
    write_app(folder)
    (folder / "pitboss.toml").write_text(
        'app = "app:app"\nstore = "sqlite:///other.db"\nworkers = 1\nonly_queues = ["mail"]\ndrain = "5s"\n'
    )
    (folder / "deep" / "down").mkdir(parents=True)
    with Process("up", cwd=folder / "deep" / "down", env={"PITBOSS_CONCURRENCY": "3"}) as process:
        process.until("is ready")
        for said in ("sqlite:///other.db", "pools    default  1 worker × 3 tasks, queues mail", "have 5s to finish"):
            assert said in process.said
        assert enqueue("quick", "{}", "--queue", "mail", "--wait", "--timeout", "30s") == '"hello you"'
        held_back = enqueue("quick")
        process.tell(signal.SIGTERM)
        assert process.ended() == 0
    assert pitboss("tasks", "show", held_back, "--json").json()["task"]["state"] == "pending"


def test_pools_of_code_file_environment_and_command_line_run_side_by_side(folder: Path) -> None:
    (folder / "app.py").write_text(
        "import os\nfrom pitboss import App\napp = App()\n"
        'app.pool("loud", queues=["loud"], workers=3, concurrency=2, env={"VOICE": "code"})\n'
        'app.pool("soft", queues=["soft"], env={"VOICE": "soft"})\n'
        'app.pool("elsewhere", queues=["far"])\n'
        '@app.task(queue="loud")\ndef speak() -> str: return os.environ["VOICE"]\n'
        '@app.task(queue="far")\ndef travel() -> None: ...\n'
    )
    (folder / "pitboss.yaml").write_text('pools:\n  loud:\n    memory: 1GB\n    env: {VOICE: "file"}\n')
    variables = {"PITBOSS_POOLS__LOUD__CONCURRENCY": "1"}
    options = ("--pool", "loud=1", "--only-pools", "loud,soft")
    with Process("up", "app.py", *options, cwd=folder, env=variables) as process:
        process.until("is ready", times=2)
        assert "loud  1 worker × 1 task, queues loud, at most 1.0 GB" in process.said
        assert "soft  1 worker × 16 tasks, queues soft" in process.said
        assert "elsewhere" not in process.said
        assert enqueue("speak", "{}", "--wait", "--timeout", "30s") == '"file"'
        assert enqueue("speak", "{}", "--queue", "soft", "--wait", "--timeout", "30s") == '"soft"'
        process.tell(signal.SIGTERM)
        assert process.ended() == 0


def test_the_store_named_in_code_is_used_and_told(folder: Path) -> None:
    write_app(folder, '"sqlite:///mine.db"')
    with Process("up", "app.py", "--workers", "1", cwd=folder) as process:
        process.until("is ready")
        assert "named in code" in process.said
        assert "pitboss status --store sqlite:///" in process.said
        process.tell(signal.SIGTERM)
        assert process.ended() == 0
    assert (folder / "mine.db").exists()
    assert not (folder / "pitboss.db").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = ", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(7)", "ended with exit code 7"),
        ("x = 1", "does not say which app to run"),
        ("from pitboss import App\napp = App()", "has an app without tasks"),
        (
            "from pitboss import App\napp = App()\n@app.task\ndef f(): ...\n@app.task(name='f')\ndef g(): ...",
            "two handlers",
        ),
    ],
)
def test_code_that_cannot_be_loaded_is_one_clear_message(folder: Path, code: str, said: str) -> None:
    (folder / "app.py").write_text(code)
    answer = pitboss("up", "app.py")
    assert answer.code == Exit.USAGE
    assert answer.err.count("error: ") == 1
    assert said in answer.err
    assert "importlib" not in answer.err
    assert not (folder / "pitboss.db").exists()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ([], Exit.USAGE, "no app to run"),
        (["nothing.py"], Exit.USAGE, "there is no file"),
        (["nothing:app"], Exit.USAGE, 'there is no module "nothing"'),
        (["app:other"], Exit.USAGE, 'has no app named "other"'),
        (["app.py", "--workers", "0"], Exit.USAGE, "workers = 0 cannot be used"),
        (["app.py", "--drain", "long"], Exit.USAGE, "drain = 'long' cannot be used"),
        (["app.py", "--queues", "a b"], Exit.USAGE, "queues = 'a b' cannot be used"),
        (["app.py", "--on-start", "nothing"], Exit.USAGE, "on_start names nothing"),
        (["app.py", "--bind", "8000"], Exit.USAGE, "No such option: --bind"),
        (["app.py", "--port", "70000"], Exit.USAGE, "http.port = 70000 cannot be used"),
        (["app.py", "--store", "sqlite:///missing/x.db"], Exit.UNREACHABLE, "does not exist"),
        (["app.py", "--store", "postgresql://127.0.0.1:1/x"], Exit.UNREACHABLE, "cannot be reached"),
    ],
)
def test_what_cannot_be_run(folder: Path, args: list[str], code: int, said: str) -> None:
    write_app(folder)
    answer = pitboss("up", *args)
    assert answer.code == code
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_reload_takes_new_code_and_outlives_bad_code(folder: Path) -> None:
    write_app(folder)
    good = (folder / "app.py").read_text()
    with Process("up", "app.py", "--workers", "1", "--reload", cwd=folder) as process:
        process.until("is ready")
        (folder / "app.py").write_text(good + "\nx = \n")
        process.until("until then the old code runs on")
        assert enqueue("quick", "{}", "--wait", "--timeout", "30s") == '"hello you"'
        (folder / "app.py").write_text(good.replace('f"hello', 'f"goodbye'))
        process.until("is ready", times=2)
        assert enqueue("quick", "{}", "--wait", "--timeout", "30s") == '"goodbye you"'
        process.tell(signal.SIGTERM)
        assert process.ended() == 0


def test_a_hangup_reads_settings_and_code_anew(folder: Path) -> None:
    write_app(folder)
    good = (folder / "app.py").read_text()
    with Process("up", "app.py", cwd=folder) as process:
        process.until("is ready")
        (folder / "pitboss.toml").write_text("workers = 1\nconcurrency = 3\n")
        (folder / "app.py").write_text(good.replace('f"hello', 'f"goodbye'))
        process.tell(signal.SIGHUP)
        process.until("settings and code were reloaded")
        process.until("goes from 2 to 1 worker")
        assert enqueue("quick", "{}", "--wait", "--timeout", "30s") in ('"hello you"', '"goodbye you"')
        process.until("is ready", times=3)
        assert enqueue("quick", "{}", "--wait", "--timeout", "30s") == '"goodbye you"'
        process.tell(signal.SIGTERM)
        assert process.ended() == 0


def test_on_start_enqueues_once(folder: Path) -> None:
    write_app(folder)
    for _ in range(2):
        with Process(
            "up", "app.py", "--workers", "1", "--on-start", "quick", "--queues", "none", cwd=folder
        ) as process:
            process.until("is ready")
            process.tell(signal.SIGTERM)
            assert process.ended() == 0
    tasks = pitboss("tasks", "list", "--json").json()["tasks"]
    assert [(task["handler"], task["state"]) for task in tasks] == [("quick", "pending")]


def test_figures_stand_under_what_scrolls_and_the_terminal_is_given_back(folder: Path) -> None:
    write_app(folder)
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "rows", "24", "cols", "80"], stdin=theirs, check=True)
    command = [str(PITBOSS), "up", "app.py", "--workers", "1"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen, ends = b"", time.monotonic() + 40
    while b"tasks/s" not in seen:
        assert time.monotonic() < ends, seen
        seen += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        seen += part
    assert process.wait(30) == 0
    os.close(ours)
    assert b"\x1b[1;23r" in seen
    assert b"0 running" in seen
    assert seen.rindex(b"\x1b[r") > seen.rindex(b"\x1b[1;23r")
    assert b"stopped after" in seen[seen.rindex(b"\x1b[r") :]
