"""The fact hub with a real hook process: what reaches the hooks, and what happens when they misbehave."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pitboss import wiring
from pitboss.manager.hub import Hub, Limits
from pitboss.model.canonical import to_json
from pitboss.model.duration import SECOND
from pitboss.model.facts import AnyFact, TaskCompleted, TaskFailed, WorkerCrashed
from pitboss.model.filter import EVERYTHING
from pitboss.model.outcome import Cancelled, Completed, Failed, Outcome, Released, Snooze, decide
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, TaskError, Token
from pitboss.telemetry.logs.settings import LogSettings
from pitboss.testing.plugin import InLoop
from pitboss.worker.describe import described
from tests.manager.house import alive

TARGET = str(Path(__file__).with_name("hooked.py"))
CODE = Path(TARGET).read_text(encoding="utf-8")
QUICK = PoolSpec(name="hooks", concurrency=8, restart_delay=SECOND // 100)
KINDS = ["task_completed", "task_failed", "worker_crashed"]


class Office(InLoop):
    """A store in memory, a hub on it, and what its hooks left behind."""

    def __init__(self, traces: Path) -> None:
        self.traces = traces
        self.told: list[str] = []
        self.hubs: list[Hub] = []
        self.engine = wiring.make_engine("memory://")

    async def __aenter__(self) -> "Office":
        await self.engine.open()
        await self.engine.register(described(TARGET).handlers)
        return self

    async def __aexit__(self, *_: object) -> None:
        for hub in self.hubs:
            await hub.stop(0)
        await self.engine.close()
        left = [child for child in psutil.Process().children() if "hooks_main" in " ".join(child.cmdline())]
        assert not left

    def hub(self, kinds: list[str] | None = None, *, target: str = TARGET, **options: Any) -> Hub:
        """A hub with a quick restart, started."""
        hub = self.unstarted(kinds, target=target, **options)
        hub.start()
        return hub

    def unstarted(self, kinds: list[str] | None = None, *, target: str = TARGET, **options: Any) -> Hub:
        chosen = {"rules": QUICK, **options}
        hub = Hub(
            target,
            KINDS if kinds is None else kinds,
            self.engine,
            clock=wiring.SystemClock(),
            tell=self.told.append,
            **chosen,
        )
        self.hubs.append(hub)
        return hub

    def traced(self, word: str = "") -> list[list[str]]:
        if not self.traces.exists():
            return []
        lines = [line.split() for line in self.traces.read_text().splitlines()]
        return [line for line in lines if not word or line[0] == word]

    def said(self, text: str) -> list[str]:
        return [line for line in self.told if text in line]

    async def until(self, condition: Callable[[], object], within: float = 20.0) -> None:
        limit = asyncio.get_running_loop().time() + within
        while not condition():
            await asyncio.sleep(0.01)
            if asyncio.get_running_loop().time() > limit:
                figures = [hub.figures() for hub in self.hubs]
                raise AssertionError(f"{self.told}\n{self.traced()}\n{figures}")

    async def handled(self, hub: Hub, count: int) -> None:
        await self.until(lambda: hub.figures().handled >= count)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setenv("TRACES", str(tmp_path / "traces"))
    return Office(tmp_path / "traces")


def completed(number: int = 0, do: str = "", queue: str = "default", handler: str = "work") -> AnyFact:
    params = to_json({"number": number, "do": do})
    return TaskCompleted(
        id=f"t{number}", handler=handler, queue=queue, attempt=1, params=params, result=to_json(number + 1)
    )


def failed(number: int = 0, do: str = "") -> AnyFact:
    error = TaskError(category="error", message="broken")
    params = to_json({"number": number, "do": do})
    return TaskFailed(id=f"f{number}", handler="work", queue="default", attempt=3, params=params, error=error)


def finished(hub: Hub) -> bool:
    figures = hub.figures()
    return figures.waiting == 0 and figures.handled > 0


async def test_facts_reach_the_hooks_that_want_them_and_no_other(office: Office) -> None:
    hub = office.hub()
    hub.publish(completed(1))
    hub.publish(completed(2, queue="mail", handler="follow"))
    hub.publish(failed(3))
    hub.publish(WorkerCrashed(worker="download-1", pool="download", code=3))
    hub.publish(WorkerCrashed(worker="cut-1", pool="cut"))
    await office.handled(hub, 5)
    assert [line[:3] for line in office.traced("completed")] == [["completed", "1", "2"]]
    assert office.traced("mailed") == [["mailed", "t2"]]
    assert office.traced("failed") == [["failed", "f3", "broken"]]
    assert office.traced("crashed") == [["crashed", "download-1", "3"]]
    assert office.told == []


async def test_what_nobody_wants_is_neither_kept_nor_sent(office: Office) -> None:
    hub = office.hub(["task_failed"])
    assert hub.wants("task_failed")
    assert not hub.wants("task_completed")
    assert hub.wants_tasks
    hub.publish(completed(1))
    assert hub.figures().waiting == 0


async def test_without_hooks_there_is_no_process(office: Office) -> None:
    hub = office.hub([])
    hub.publish(completed(1))
    assert not hub.wants_tasks
    assert (hub.figures().pid, hub.figures().waiting) == (0, 0)
    await hub.stop()


async def test_a_hook_that_raises_is_logged_and_harms_nobody(office: Office, capfd: pytest.CaptureFixture[str]) -> None:
    hub = office.hub()
    for fact in (completed(1, "raise"), completed(2, "exit"), failed(3, "raise"), completed(4)):
        hub.publish(fact)
    await office.handled(hub, 4)
    assert (hub.figures().failed, hub.figures().restarts) == (3, 0)
    assert len({line[3] for line in office.traced("completed")}) == 1
    await hub.stop()
    said = capfd.readouterr().err
    assert "hook completed failed on task_completed of t1" in said
    assert 'raise ValueError("this hook is broken")' in said
    assert "ValueError: this async hook is broken" in said
    assert "SystemExit: 7" in said
    assert "hook_runner.py" not in said


async def test_what_hooks_log_stands_in_a_file_of_its_own(office: Office, tmp_path: Path) -> None:
    hub = office.hub(logs=LogSettings(folder=str(tmp_path / "logs")))
    hub.publish(completed(1, "raise"))
    await office.handled(hub, 1)
    await hub.stop()
    (line,) = (tmp_path / "logs" / "worker-hooks.log").read_text().splitlines()
    assert json.loads(line)["event"] == "hook completed failed on task_completed of t1"
    assert "this hook is broken" in line


async def test_a_hook_that_kills_its_process_loses_only_what_it_was_given(office: Office) -> None:
    hub = office.hub(rules=PoolSpec(name="hooks", concurrency=1, restart_delay=SECOND // 100))
    hub.publish(completed(0, "die"))
    for number in range(1, 11):
        hub.publish(completed(number))
    await office.until(lambda: finished(hub))
    assert office.said("ended with exit code 3, and 2 fact(s) with it; it is started again in 10ms")
    assert [int(line[1]) for line in office.traced("completed")] == [0, *range(2, 11)]
    figures = hub.figures()
    assert (figures.handled, figures.lost, figures.restarts) == (9, 2, 1)


async def test_hooks_that_always_kill_their_process_are_given_up(office: Office) -> None:
    hub = office.hub(rules=PoolSpec(name="hooks", concurrency=1, restart_delay=SECOND // 100, max_restarts=2))
    for _ in range(7):
        hub.publish(completed(1, "die"))
    await office.until(lambda: hub.figures().why)
    assert office.said("given up until the next start: their process ended with exit code 3")
    assert (hub.figures().restarts, hub.figures().lost, hub.figures().waiting) == (2, 7, 0)
    assert not hub.wants("task_completed")
    hub.publish(completed(2))
    assert hub.figures().waiting == 0


async def test_an_app_that_cannot_be_loaded_is_said_once_and_not_tried_again(
    office: Office, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken_app.py"
    broken.write_text("import no_such_thing_at_all\n")
    hub = office.hub(target=str(broken))
    await office.until(lambda: hub.figures().why)
    assert office.said("cannot be loaded in their process: ModuleNotFoundError: No module named 'no_such_thing_at_all'")
    assert hub.figures().restarts == 0
    assert "broken_app.py" in capfd.readouterr().err


async def test_where_too_many_wait_the_oldest_are_dropped_and_that_is_said_once(office: Office) -> None:
    hub = office.unstarted(limits=Limits(waiting=5))
    for number in range(12):
        hub.publish(completed(number))
    assert (hub.figures().waiting, hub.figures().dropped) == (5, 7)
    assert office.told == ["hooks do not keep up: 1 fact(s) dropped, the oldest first (1 in all)"]
    hub.start()
    await office.handled(hub, 5)
    assert sorted(int(line[1]) for line in office.traced("completed")) == [7, 8, 9, 10, 11]
    await hub.stop()
    assert office.told[1:] == ["hooks do not keep up: 6 fact(s) dropped, the oldest first (7 in all)"]


async def test_a_stop_lets_the_hooks_hear_what_waits_and_leaves_no_process(office: Office) -> None:
    hub = office.hub()
    for number in range(200):
        hub.publish(completed(number))
    pid = 0
    await office.until(lambda: hub.figures().handled)
    pid = hub.figures().pid
    await hub.stop(10)
    assert len(office.traced("completed")) == 200
    assert (hub.figures().handled, hub.figures().lost, hub.figures().pid) == (200, 0, 0)
    assert not alive(pid)
    hub.publish(completed(1))
    assert hub.figures().waiting == 0


async def test_a_stop_waits_no_longer_than_it_says_and_ends_what_hooks_started(office: Office) -> None:
    hub = office.hub()
    for number in range(20):
        hub.publish(completed(number, "detach"))
    child = office.traces.with_name("traces.child")
    await office.until(lambda: child.exists() and child.read_text())
    pid, loop = hub.figures().pid, asyncio.get_running_loop()
    began = loop.time()
    await hub.stop(0.2)
    assert loop.time() - began < 5
    assert not alive(pid)
    await office.until(lambda: not alive(int(child.read_text())))
    assert office.said("16 fact(s) were still with their hooks at the end")
    assert office.said("4 fact(s) did not reach their hooks before the end")
    assert hub.figures().lost == 20


async def test_a_stop_right_after_the_start_ends_at_once(office: Office) -> None:
    hub = office.hub()
    await hub.stop()
    assert hub.figures().pid == 0
    other = office.hub()
    await office.until(lambda: other.figures().pid)
    await other.stop()
    assert other.figures().pid == 0


async def test_hooks_can_enqueue_from_threads_and_coroutines(office: Office) -> None:
    hub = office.hub()
    hub.publish(completed(1, "enqueue"))
    hub.publish(failed(2, "enqueue"))
    hub.publish(failed(3, "enqueue plainly"))
    await office.handled(hub, 3)
    assert hub.figures().failed == 0
    tasks = (await office.engine.find(EVERYTHING)).tasks
    assert {(task.handler, task.queue, task.params) for task in tasks} == {
        ("follow", "mail", f'{{"number":{number}}}') for number in (1, 2, 3)
    }


async def test_an_async_hook_that_takes_too_long_is_cancelled_and_the_others_go_on(
    office: Office, capfd: pytest.CaptureFixture[str]
) -> None:
    hub = office.hub(limits=Limits(seconds=0.3))
    hub.publish(failed(1, "hang"))
    hub.publish(completed(2))
    await office.handled(hub, 2)
    assert (hub.figures().failed, hub.figures().restarts) == (1, 0)
    await hub.stop()
    assert "hook failed did not end within 0.3 s on task_failed of f1" in capfd.readouterr().err
    assert office.told == []


@pytest.mark.parametrize("fact", [completed(1, "hang"), failed(1, "block")], ids=["thread", "loop"])
async def test_a_hook_that_cannot_be_ended_is_named_and_its_process_replaced(
    office: Office, capfd: pytest.CaptureFixture[str], fact: AnyFact
) -> None:
    hub = office.hub(limits=Limits(seconds=0.3))
    hub.publish(fact)
    await office.until(lambda: hub.figures().pid)
    first = hub.figures().pid
    await office.handled(hub, 1)
    await office.until(lambda: hub.figures().pid not in (0, first))
    hub.publish(completed(2))
    hub.publish(failed(3))
    await office.handled(hub, 3)
    assert (hub.figures().failed, hub.figures().lost, hub.figures().restarts) == (1, 0, 0)
    assert not alive(first)
    assert office.said("a hook does not end")
    said = capfd.readouterr().err
    assert "cannot be ended, so its process will be; it is here:" in said
    assert "time.sleep(60)" in said


async def test_a_process_that_says_nothing_is_ended_and_another_one_started(office: Office) -> None:
    hub = office.hub(rules=PoolSpec(name="hooks", unresponsive=3 * SECOND))
    hub.publish(completed(1, "freeze"))
    await office.until(lambda: hub.figures().restarts)
    hub.publish(completed(2))
    await office.handled(hub, 1)
    assert office.said("has said nothing for 3 s; it is ended")
    assert office.said("was killed by SIGKILL, and 1 fact(s) with it; it is started again at once")


async def test_new_code_takes_the_place_of_the_old_and_what_waits_reaches_it(office: Office, tmp_path: Path) -> None:
    hub = office.hub()
    hub.publish(completed(1))
    await office.handled(hub, 1)
    first = hub.figures().pid
    other = tmp_path / "other_code.py"
    other.write_text(CODE.replace('f"completed {', 'f"other {'))
    hub.change(str(other), ["task_completed"])
    hub.publish(completed(2))
    hub.publish(failed(3))
    await office.handled(hub, 2)
    assert [line[1] for line in office.traced("other")] == ["2"]
    assert not office.traced("failed")
    assert hub.figures().pid != first
    assert (hub.figures().restarts, hub.figures().lost, office.told) == (0, 0, [])


async def test_hooks_that_were_given_up_are_tried_again_with_new_code(
    office: Office, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "mended.py"
    place.write_text("raise SystemExit\n")
    hub = office.hub(target=str(place))
    await office.until(lambda: hub.figures().why)
    hub.change(str(place), [])
    assert not hub.wants("task_completed")
    hub.change(TARGET, KINDS)
    hub.publish(completed(1))
    await office.handled(hub, 1)
    assert hub.figures().why == ""
    assert "SystemExit" in capfd.readouterr().err


async def test_the_hooks_end_with_their_manager(office: Office) -> None:
    manager = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.manager.hub_alone", TARGET, stdout=subprocess.PIPE
    )
    assert manager.stdout is not None
    pid = int(await manager.stdout.readline())
    assert alive(pid)
    manager.kill()
    await manager.wait()
    await office.until(lambda: not alive(pid))


CLAIM = Claim(id="t1", token=Token(1, 1), handler="work", queue="default", params='{"number":4}', attempt=2)
ERROR = TaskError(category="error", message="broken")


def settled(outcome: Outcome, policy: Policy) -> Settlement:
    transition = decide(CLAIM, outcome, policy, 0, 0.5)
    return Settlement(id="t1", token=CLAIM.token, transition=transition, worker="default-1", ran=5)


async def test_ended_attempts_become_events(office: Office) -> None:
    hub = office.unstarted(["task_completed", "task_failed", "task_retried", "task_cancelled"])
    last, again = Policy(max_attempts=2), Policy(max_attempts=5)
    for outcome, policy in (
        (Completed("7"), last),
        (Failed(ERROR), last),
        (Failed(ERROR), again),
        (Cancelled("bored"), last),
        (Released(started=True), last),
        (Snooze(SECOND), last),
    ):
        hub.note(CLAIM, settled(outcome, policy), "default")
    done, dead, retried, cancelled = hub._waiting
    assert isinstance(done, TaskCompleted)
    assert (done.kind, done.value(), done.arguments(), done.duration) == ("task_completed", 7, {"number": 4}, 5)
    assert (done.worker, done.pool, done.attempt) == ("default-1", "default", 2)
    assert done.host
    assert done.at
    assert isinstance(dead, TaskFailed)
    assert (dead.error, dead.reason) == (ERROR, "attempts used up")
    assert (retried.kind, cancelled.kind) == ("task_retried", "task_cancelled")
    unheard = office.unstarted(["worker_crashed"])
    unheard.note(CLAIM, settled(Completed("7"), last), "default")
    assert unheard.figures().waiting == 0
