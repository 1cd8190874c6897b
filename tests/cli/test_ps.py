"""`pitboss ps` and `pitboss top`: managers and workers, on a page and live."""

import os
import pty
import subprocess
import time
from typing import Any

import pytest

from pitboss.cli.errors import Exit
from pitboss.cli.top import Look, Picture, RateMeter, picture
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND
from pitboss.model.errors import StoreUnavailable
from pitboss.model.figures import RAW
from pitboss.model.filter import by
from pitboss.model.fleet import manager_view
from pitboss.model.queue import Queue
from pitboss.model.queue_forecast import QueueForecast, Trend
from pitboss.model.session import Session, SessionInfo
from pitboss.model.snapshot import Snapshot, WorkerState
from pitboss.model.states import State
from pitboss.model.verdict import Health, Verdict
from pitboss.operate.remote_workers import RemoteWorkers, WorkerCard
from pitboss.operate.status import Status
from pitboss.testing.clock import FakeClock
from tests.cli.command_line import PITBOSS, new, pitboss, put, with_store
from tests.cli.fake_managers import TASK, busy, crashed, encoded, manager, now, pool, snapshot, worker
from tests.cli.test_screen import BOLD, on_terminal
from tests.operate.bench import Bench


def rows(text: str, heading: str) -> list[str]:
    """The lines of the table under a heading."""
    return text.split(f"\n{heading}\n")[1].partition("\n\n")[0].splitlines()[1:]


def test_ps_shows_managers_and_workers_of_all_hosts() -> None:
    manager(snapshot(busy(), worker("download-2"), term=3))
    manager(snapshot(worker("mail-1"), pools=(pool("mail", 1),), draining=True), host="box2", pid=200)
    text = pitboss("ps").out
    head, first, second = text.splitlines()[:3]
    assert head.split() == ["HOST", "MANAGER", "STATE", "PID", "WORKERS", "RUNNING", "UP", "LEADS", "RELEASE", "APP"]
    assert first.split()[:6] == ["box1", "1", "alive", "100", "2", "1"]
    assert first.split()[-3:] == ["yes", "0.1.0", "app.py"]
    assert second.split()[:6] == ["box2", "2", "draining", "200", "1", "0"]
    assert [line.split()[:4] for line in rows(text, "Workers")] == [
        ["box1", "download-1", "download", "processing"],
        ["box1", "download-2", "download", "idle"],
        ["box2", "mail-1", "mail", "idle"],
    ]


def test_the_slots_of_workers_are_shown_if_there_are_any() -> None:
    manager(snapshot(worker("mail-1"), worker("scrapers-1", slot=7), pools=(pool("mail", 1), pool("scrapers", 1))))
    text = pitboss("ps").out
    assert text.split("\nWorkers\n")[1].splitlines()[0].split()[:5] == ["HOST", "WORKER", "POOL", "SLOT", "STATE"]
    assert [line.split()[2:5] for line in rows(text, "Workers")] == [
        ["mail", "idle", "4001"],
        ["scrapers", "7", "idle"],
    ]
    assert [one["slot"] for one in pitboss("ps", "--json").json()["managers"][0]["workers"]] == [None, 7]


def test_a_worker_is_told_with_what_it_does_did_and_uses() -> None:
    manager(snapshot(busy(tasks=3, crashes=2, why="its event loop is blocked")))
    (line,) = rows(pitboss("ps").out, "Workers")
    for said in ("2m5s", f"fetch {TASK[-12:]} 12.", "+2", "1,234", "1,230", "250ms", "64 MB", "0.25", "event loop"):
        assert said in line


def test_a_worker_without_a_process_has_no_pid_and_no_age() -> None:
    manager(snapshot(crashed("download-1")))
    (line,) = rows(pitboss("ps").out, "Workers")
    assert "crashed" in line
    assert "5 restarts are allowed" in line
    document = pitboss("ps", "--json").json()["managers"][0]["workers"][0]
    assert (document["pid"], document["started_at"], document["mean"]) == (None, None, None)


def test_ps_for_programs() -> None:
    manager(snapshot(busy(), term=3))
    (found,) = pitboss("ps", "--json").json()["managers"]
    assert (found["host"], found["session"], found["alive"], found["term"]) == ("box1", 1, True, 3)
    assert found["pools"][0]["name"] == "download"
    (told,) = found["workers"]
    assert (told["state"], told["running"], told["mean"], told["rss"]) == ("processing", 1, 0.25, 64 * 1024**2)
    assert told["started_at"].endswith("Z")
    assert told["tasks"][0]["id"] == TASK
    assert told["tasks"][0]["since"].endswith("Z")


def test_ps_can_be_narrowed() -> None:
    manager(snapshot(worker(), worker("mail-1"), pools=(pool(wanted=1), pool("mail", 1))))
    manager(snapshot(worker()), host="box2", pid=200)
    assert [line.split()[1] for line in rows(pitboss("ps", "--pool", "mail").out, "Workers")] == ["mail-1"]
    only = pitboss("ps", "--host", "box2", "--json").json()["managers"]
    assert [one["host"] for one in only] == ["box2"]
    narrowed = pitboss("ps", "--pool", "mail", "--json").json()["managers"][0]
    assert [one["name"] for one in narrowed["pools"]] == ["mail"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "bxo1"], "did you mean box1?"),
        (["--host", "elsewhere"], "managers are running on box1"),
        (["--pool", "downlaod"], "did you mean download?"),
        (["--pool", "x"], "the worker pools are download"),
    ],
)
def test_a_host_or_pool_that_is_not_there(words: list[str], said: str) -> None:
    manager(snapshot(worker()))
    answer = pitboss("ps", *words)
    assert answer.code == Exit.NOT_FOUND
    assert said in answer.err
    assert answer.out == ""


def test_no_manager_runs() -> None:
    put(new())
    answer = pitboss("ps")
    assert (answer.code, answer.out) == (0, "")
    assert "pitboss up" in answer.err
    assert pitboss("ps", "--json").json()["managers"] == []


def test_those_that_ended_are_shown_if_asked_for() -> None:
    number = manager(snapshot(worker()))
    with_store(lambda store: store.end_session(number))
    assert "gone" not in pitboss("ps").out
    assert pitboss("ps", "--all").out.splitlines()[1].split()[:3] == ["box1", "1", "gone"]
    assert pitboss("ps", "--all", "--json").json()["managers"][0]["alive"] is False


def test_a_manager_that_goes_over_to_another_session_is_counted_once() -> None:
    manager(snapshot(worker()))
    manager(snapshot(worker()))
    assert [one["session"] for one in pitboss("ps", "--json").json()["managers"]] == [2]


@pytest.mark.parametrize("text", ["not json", '{"workers": 5}', "[]"])
def test_a_snapshot_that_cannot_be_read_is_no_reason_to_fail(text: str) -> None:
    number = manager(None)
    with_store(lambda store: store.renew(number, text))
    assert pitboss("ps").out.splitlines()[1].split()[:3] == ["box1", "1", "alive"]
    assert pitboss("pools", "list").code == 0
    assert pitboss("top").code == 0


def test_a_store_that_is_not_there_is_not_created() -> None:
    for command in (["ps"], ["top"], ["pools", "list"], ["stop"], ["drain"], ["pools", "scale", "x", "1"]):
        assert pitboss(*command).code == Exit.UNREACHABLE, command


def test_tables_fit_a_narrow_terminal() -> None:
    manager(snapshot(busy(), worker("download-2", why="x" * 100), crashed("download-3")))
    for command in (["ps"], ["pools", "list"]):
        page = BOLD.sub("", on_terminal(*command, env={"NO_COLOR": "1"}))
        assert max(len(line) for line in page.splitlines()) <= 80, command
        assert "download" in page
    wide = on_terminal("ps", columns=250, env={"NO_COLOR": "1"})
    assert "Crashes" in wide
    assert TASK[-12:] in wide


def test_rates_are_between_looks() -> None:
    meter = RateMeter(over=5 * SECOND)
    assert meter.rate("a") is None
    meter.add("a", 0, 100)
    assert meter.rate("a") is None
    meter.add("a", SECOND, 110)
    meter.add("a", SECOND, 999)  # the same moment says nothing new
    assert meter.rate("a") == 10
    for second in range(2, 20):
        meter.add("a", second * SECOND, 110)
    assert meter.rate("a") == 0
    meter.add("a", 20 * SECOND, 3)  # pruned, or another process
    assert meter.rate("a") is None


def seen(at: int, processed: int) -> Session:
    """A manager with this snapshot at that moment."""
    told = Snapshot(pools=(pool(wanted=1),), workers=(worker(processed=processed),))
    info = SessionInfo(host="box1", pid=1, ttl=15 * SECOND)
    return Session(number=1, info=info, opened_at=0, expires_at=at + info.ttl, snapshot=encoded(told))


def test_top_counts_by_the_moment_at_which_it_was_told() -> None:
    meter, start = RateMeter(), now()

    def looked(second: int, processed: int) -> Picture:
        at = start + second * SECOND
        queue = Queue(name="mail", counts={State.PENDING: 3, State.COMPLETED: processed})
        return picture([manager_view(seen(at, processed))], [queue], meter, at)

    looked(0, 1000)
    looked(0, 1000)
    shown = looked(5, 1100)
    panels = {panel.title: panel for panel in shown.panels}
    assert list(panels) == ["Pools", "Queues", "Workers"]
    assert panels["Pools"].rows[0][5] == "20"
    assert panels["Workers"].rows[0][4] == "20"
    assert panels["Queues"].rows[0][5:7] == ["", ""]
    assert "1 manager · 1 worker · 0 running · 3 waiting" in shown.headline


async def test_top_counts_what_came_and_ended_also_while_tasks_are_pruned() -> None:
    store = Bench()
    store.time.advance(-store.now % RAW / SECOND)
    look, shown = Look(store), []
    for _ in range(2):
        for _ in range(10):
            await store.add(*(store.new() for _ in range(5)))
            await store.run_all()
            store.time.advance(1)
        shown.append(await look.picture())
        await store.prune(by(state=State.COMPLETED))
    for one in shown:
        queues = next(panel for panel in one.panels if panel.title == "Queues")
        assert queues.rows[0][5:7] == ["5.0", "5.0"]


async def test_top_goes_on_while_the_store_is_away() -> None:
    store: Any = MemoryEngine(clock=FakeClock())
    look = Look(store)
    shown = await look.picture()
    assert shown.said[0].startswith("No manager is running")
    store.clock.advance(10)

    async def away() -> None:
        raise StoreUnavailable("the store does not answer", why="connection refused")

    store.queues = away
    gone = await look.picture()
    assert gone.headline == shown.headline
    assert gone.said == ("The store does not answer.", "Cause: connection refused")


async def test_top_does_not_begin_without_a_store() -> None:
    store: Any = MemoryEngine(clock=FakeClock())

    async def away() -> None:
        raise StoreUnavailable("the store does not answer")

    store.queues = away
    with pytest.raises(StoreUnavailable):
        await Look(store).picture()


def test_top_shows_the_last_hour_and_the_forecast() -> None:
    found = QueueForecast(trend=Trend.GROWS, inflow=12, outflow=9, came=(0, 720) * 30, went=(0, 540) * 30)
    queue = Queue(name="mail", counts={State.PENDING: 300})
    verdict = Verdict(health=Health.ATTENTION, cause="grows", sentence="It grows.", until=now(), until_note="when done")
    told = Status(
        now=now(), verdict=verdict, next="", findings=(), queues=(queue,), forecasts={"mail": found}, sessions=()
    )
    shown = picture([], [queue], RateMeter(), now(), told)
    (panel,) = shown.panels
    came, went, text = panel.rows[0][-3:]
    assert (len(came), len(went)) == (12, 12)
    assert came > went
    assert text == "grows: 12/s in, 9/s out"
    assert shown.said[0] == "It grows."
    assert shown.said[1].startswith("Until: about ")


def test_top_puts_trouble_first() -> None:
    told = snapshot(worker("download-1", cpu=0.1), worker("download-2", cpu=0.9), crashed("download-3"))
    session = Session(
        number=1, info=SessionInfo(host="b"), opened_at=0, expires_at=now() + SECOND, snapshot=encoded(told)
    )
    shown = picture([manager_view(session)], [], RateMeter(), now())
    assert [row[0] for row in shown.panels[-1].rows] == ["download-3", "download-2", "download-1"]
    assert shown.panels[0].rows[0][2] == WorkerState.CRASHED


def test_top_prints_once_where_there_is_no_terminal() -> None:
    put(new())
    manager(snapshot(busy()))
    answer = pitboss("top")
    assert answer.code == 0
    assert answer.out.count("Workers\n") == 1
    assert "1 manager" in answer.out
    assert "\x1b" not in answer.out


@pytest.mark.parametrize("end", [b"q", b"\x03"])
def test_top_is_live_until_q_or_ctrl_c_and_leaves_the_terminal_as_it_was(end: bytes) -> None:
    manager(snapshot(busy()))
    ours, theirs = pty.openpty()
    # setsid makes the terminal its own, so that Ctrl-C comes as a signal.
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", str(PITBOSS), "top"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
    )
    text, ends = b"", time.monotonic() + 30
    while text.count(b"download-1") < 2:  # drawn twice: it is live
        assert time.monotonic() < ends, text
        text += os.read(ours, 65536)
    os.write(ours, end)
    assert process.wait(30) == 0
    os.close(theirs)
    try:
        while part := os.read(ours, 65536):
            text += part
    except OSError:
        pass
    os.close(ours)
    assert b"q quits" in text
    assert text.index(b"\x1b[?1049h") < text.index(b"\x1b[?1049l")  # the alternate screen, and back
    assert text.rindex(b"\x1b[?25h") > text.rindex(b"\x1b[?25l")  # the cursor is shown again
    assert b"Traceback" not in text


def test_remote_workers_are_listed_while_they_are_heard_of() -> None:
    async def register(store: Store) -> None:
        workers = RemoteWorkers(store)
        await workers.register("encoder-1", WorkerCard(types=("video",)))
        await workers.register("encoder-2", WorkerCard(status="offline"))

    with_store(register)
    shown = pitboss("ps")
    assert "encoder-1" in shown.out
    assert "video" in shown.out
    assert "encoder-2" not in shown.out
    (worker,) = pitboss("ps", "--json").json()["remote_workers"]
    assert (worker["worker_id"], worker["status"]) == ("encoder-1", "active")
