"""`pitboss plan` and `pitboss up --confirm`: what they show, and that they start and create nothing unasked."""

import os
import pty
import subprocess
import termios
from pathlib import Path

import pytest

from pitboss.cli.errors import Exit
from pitboss.engines.capabilities import resources_of
from pitboss.engines.protocol import Store
from pitboss.model.resource import NewResource
from pitboss.model.resource_keys import rules_of
from tests.cli.command_line import PITBOSS, new, pitboss, put, run_all, with_store
from tests.cli.fake_managers import manager, pool, snapshot, worker

APP = """
from pitboss import App, Lease

app = App()
proxies = app.resources("proxies", per_hour=50)
app.queue("targets", partition_by="{state}", partitions={0: ["CA", "MT"], 1: ["TX"]})
app.pool("web", queues=["targets"], workers=2, concurrency=1, delay="2-4s")

@app.task(queue="targets", usual="12s")
def crawl(state: str, proxy: Lease = proxies.lease()) -> None: ...
"""


@pytest.fixture
def app(folder: Path) -> Path:
    (folder / "app.py").write_text(APP)
    (folder / "pitboss.toml").write_text('app = "app.py"\nstore = "sqlite:///pitboss.db"\n')
    return folder


def fill(*states: str, members: int = 4) -> None:
    async def work(store: Store) -> None:
        resources = resources_of(store)
        await resources.declare_pool("proxies", rules_of({"per_hour": 50}))
        fields = '{"url":"http://127.0.0.1:1"}'
        await resources.add_resources("proxies", [NewResource(name=f"p{n}", fields=fields) for n in range(members)])

    with_store(work)
    put(*(new("crawl", f'{{"state":"{state}"}}', queue="targets") for state in states), handlers=())


def declare() -> None:
    """As a manager does when it starts."""
    code = "import app; app.app.ask(lambda one: one.store.declare(app.app.declared()), limit=9.0, what='declaring')"
    subprocess.run([str(PITBOSS.with_name("python")), "-c", code], check=True, env={**os.environ, "PYTHONPATH": "."})


def test_a_plan_needs_no_store_and_creates_none(app: Path) -> None:
    answer = pitboss("plan")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        "queue        targets\n"
        "workers      web: 2 workers × 1 task, 3 s pause\n"
        "resources    proxies: 0 of 0 usable, 0.0 per worker, 0 uses/h\n"
        "work         0 tasks left\n"
        "progress     0.0% (0 of 0)\n"
        "duration     12 s per task (declared)\n"
        "estimate     nothing is left to do\n"
        "\n"
        "SLOT   TASKS  SHARE  KEYS  WHICH\n"
        "web/0      0            2  CA, MT\n"
        "web/1      0            1  TX\n"
        "\n"
        f"ok       settings     settings in {app}\n"
        f"ok       app          {app}/app.py has 1 task\n"
        f"ok       store        sqlite:///{app}/pitboss.db does not exist yet: pitboss up creates it\n"
        "warning  resources    0 of 0 members of proxies are usable\n"
        "                      why: each task of queue targets needs one\n"
        "                      fix: pitboss resources add proxies NAME …, or resources import\n"
        'ok       partitions   queue "targets": by {state}, static: 2 slots, 3 keys; missing slots: hold\n'
        "ok       tasks        no tasks wait\n"
        "\n"
        "6 checks: 0 problems, 1 warning\n"
    )
    assert not (app / "pitboss.db").exists()


def test_a_plan_shows_work_per_slot_and_an_estimate_with_its_reason(app: Path) -> None:
    declare()
    fill(*["CA"] * 300, *["TX"] * 100)
    answer = pitboss("plan")
    assert answer.code == 0
    assert answer.out.startswith(
        "queue        targets\n"
        "workers      web: 2 workers × 1 task, 3 s pause\n"
        "resources    proxies: 4 of 4 usable, 2.0 per worker, 200 uses/h\n"
        "work         400 tasks left, 200 per worker\n"
        "progress     0.0% (0 of 400)\n"
        "duration     12 s per task (declared)\n"
        "rate         5.33/min, 320/h, 7,680/day\n"
        "estimate     bound by slot web/0, which has 75% of the work: 320/h; 400 tasks; 75 min (60–132)\n"
        "             with mode balanced: 75 min (60–132), bound by key CA, which has 75% of the work\n"
        "             with half the workers: 75 min (60–99), bound by workers; 100 tasks would wait\n"
        "             with twice the proxies: 75 min (56–94), bound by slot web/0, which has 75% of the work\n"
        "\n"
        "SLOT   TASKS  SHARE  KEYS  WHICH\n"
        "web/0    300    75%     2  CA, MT\n"
        "web/1    100    25%     1  TX\n"
    )
    document = pitboss("plan", "--json").json()
    (queue,) = document["queues"]
    assert (queue["left"], queue["estimate"]["bound_by"], queue["estimate"]["seconds"]) == (400, "slot", 4500.0)
    assert [one["check"] for one in document["checks"]] == ["settings", "app", "store", "resources", "partitions"]
    fewer = pitboss("plan", "--workers", "1")
    assert "tasks left: 300 can end, 300 per worker; 100 wait for slots that no worker has\n" in fewer.out
    assert "web/1 (no worker)" in fewer.out
    assert "warning  partitions" in fewer.out


def test_what_ended_says_how_long_a_task_takes() -> None:
    put(*(new() for _ in range(40)))
    assert "unknown until 20 tasks have ended" in pitboss("plan").out
    run_all()
    put(new())
    answer = pitboss("plan", "--json").json()["queues"][0]
    assert (answer["measured"], answer["done"], answer["left"]) == (40, 40, 1)
    assert "no worker serves queue" in pitboss("plan").out


def test_workers_that_run_count_without_an_app() -> None:
    put(new(), new())
    manager(snapshot(worker(), pools=(pool(wanted=2, concurrency=3),)))
    answer = pitboss("plan")
    assert answer.code == 0
    assert "workers      download: 2 workers × 3 tasks on box1\n" in answer.out


def test_without_an_app_a_plan_says_that_none_was_named(app: Path) -> None:
    declare()
    fill("CA")
    (app / "pitboss.toml").write_text('store = "sqlite:///pitboss.db"\n')
    said = pitboss("plan").out
    assert "warning  app          no app was named, so this shows only what the store has\n" in said
    assert "fix: name the app: pitboss plan app.py\n" in said
    assert "work         1 task left" in said
    assert "inf" not in said


def test_a_problem_fails_the_plan(app: Path) -> None:
    declare()
    fill("CA", members=0)
    answer = pitboss("plan")
    assert answer.code == Exit.UNHEALTHY
    assert "problem  resources    0 of 0 members of proxies are usable\n" in answer.out
    assert "bound by proxies, which has no enabled member: 1 task cannot end" in answer.out


def test_members_are_tested_on_demand(app: Path) -> None:
    declare()
    fill("CA", members=2)
    answer = pitboss("plan", "--test-resources")
    assert answer.code == 0
    assert "warning  test         0 of 2 members of proxies answer\n" in answer.out
    assert "p0: ConnectionRefusedError" in answer.out


def test_without_a_terminal_a_confirmation_says_yes_is_needed(app: Path) -> None:
    answer = pitboss("up", "--confirm")
    assert answer.code == Exit.REFUSED
    assert answer.err == (
        "error: confirmation required\n"
        "  why: --confirm asks a person, and stdin is not a terminal\n"
        "  fix: repeat with --yes, or leave --confirm out\n"
    )
    assert not (app / "pitboss.db").exists()


def answered(app: Path, text: str) -> tuple[int, str]:
    """`pitboss up --confirm` on a terminal that answers this; its exit code and all that it said. It is stopped when
    it shows live figures."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    process = subprocess.Popen([str(PITBOSS), "up", "--confirm"], cwd=app, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, acts = "", {"Start 2 workers?": lambda: os.write(ours, text.encode()), "Ctrl-C stops": process.terminate}
    try:
        while piece := _piece(ours):
            said += piece
            for sign in [sign for sign in acts if sign in said]:
                acts.pop(sign)()
        return process.wait(30), said
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _piece(terminal: int) -> str:
    """What comes next; nothing when the other side has closed the terminal."""
    try:
        return os.read(terminal, 4096).decode("utf-8", "replace")
    except OSError:
        return ""


def test_a_no_starts_nothing(app: Path) -> None:
    code, said = answered(app, "n\n")
    assert code == Exit.REFUSED
    assert "web/0" in said
    assert "nothing was done" in said
    assert not (app / "pitboss.db").exists()


def test_a_yes_starts_the_workers(app: Path) -> None:
    code, said = answered(app, "y\n")
    assert code == 0
    assert "stopping" in said
    assert (app / "pitboss.db").exists()
