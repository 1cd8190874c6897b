"""The buffer of facts with a real hook process: which facts reach the hooks, and what happens when hooks misbehave."""

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
from pitboss.manager.hooks import FactBuffer, Limits
from pitboss.model.canonical import to_json
from pitboss.model.duration import SECOND
from pitboss.model.facts import AnyFact, TaskCompleted, TaskFailed, WorkerCrashed
from pitboss.model.filter import EVERYTHING
from pitboss.model.log_settings import LogSettings
from pitboss.model.outcome import Cancelled, Completed, Failed, Outcome, Released, Snooze, decide
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, TaskError, Token
from pitboss.testing.plugin import InLoop
from pitboss.worker.describe import described
from tests.manager.cluster import alive

TARGET = str(Path(__file__).with_name("hooked.py"))
CODE = Path(TARGET).read_text(encoding="utf-8")
QUICK = PoolSpec(name="hooks", concurrency=8, restart_delay=SECOND // 100)
KINDS = ["task_completed", "task_failed", "worker_crashed"]


class Bench(InLoop):
    """A store in memory, buffers of facts on it, and the traces of their hooks."""

    def __init__(self, traces: Path) -> None:
        self.traces = traces
        self.told: list[str] = []
        self.buffers: list[FactBuffer] = []
        self.engine = wiring.make_engine("memory://")

    async def __aenter__(self) -> "Bench":
        await self.engine.open()
        await self.engine.register(described(TARGET).handlers)
        return self

    async def __aexit__(self, *_: object) -> None:
        for buffer in self.buffers:
            await buffer.stop(0)
        await self.engine.close()
        left = [child for child in psutil.Process().children() if "hooks_main" in " ".join(child.cmdline())]
        assert not left

    def buffer(self, kinds: list[str] | None = None, *, target: str = TARGET, **options: Any) -> FactBuffer:
        """A buffer whose process restarts quickly, started."""
        buffer = self.unstarted(kinds, target=target, **options)
        buffer.start()
        return buffer

    def unstarted(self, kinds: list[str] | None = None, *, target: str = TARGET, **options: Any) -> FactBuffer:
        chosen = {"rules": QUICK, **options}
        buffer = FactBuffer(
            target,
            KINDS if kinds is None else kinds,
            self.engine,
            clock=wiring.SystemClock(),
            tell=self.told.append,
            **chosen,
        )
        self.buffers.append(buffer)
        return buffer

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
                figures = [buffer.figures() for buffer in self.buffers]
                raise AssertionError(f"{self.told}\n{self.traced()}\n{figures}")

    async def handled(self, buffer: FactBuffer, count: int) -> None:
        await self.until(lambda: buffer.figures().handled >= count)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("TRACES", str(tmp_path / "traces"))
    return Bench(tmp_path / "traces")


def completed(number: int = 0, do: str = "", queue: str = "default", handler: str = "work") -> AnyFact:
    params = to_json({"number": number, "do": do})
    return TaskCompleted(
        id=f"t{number}", handler=handler, queue=queue, attempt=1, params=params, result=to_json(number + 1)
    )


def failed(number: int = 0, do: str = "") -> AnyFact:
    error = TaskError(category="error", message="broken")
    params = to_json({"number": number, "do": do})
    return TaskFailed(id=f"f{number}", handler="work", queue="default", attempt=3, params=params, error=error)


def finished(buffer: FactBuffer) -> bool:
    figures = buffer.figures()
    return figures.waiting == 0 and figures.handled > 0


async def test_facts_reach_the_hooks_that_want_them_and_no_other(bench: Bench) -> None:
    buffer = bench.buffer()
    buffer.publish(completed(1))
    buffer.publish(completed(2, queue="mail", handler="follow"))
    buffer.publish(failed(3))
    buffer.publish(WorkerCrashed(worker="download-1", pool="download", code=3))
    buffer.publish(WorkerCrashed(worker="cut-1", pool="cut"))
    await bench.handled(buffer, 5)
    assert [line[:3] for line in bench.traced("completed")] == [["completed", "1", "2"]]
    assert bench.traced("mailed") == [["mailed", "t2"]]
    assert bench.traced("failed") == [["failed", "f3", "broken"]]
    assert bench.traced("crashed") == [["crashed", "download-1", "3"]]
    assert bench.told == []


async def test_a_fact_that_no_hook_wants_is_neither_kept_nor_sent(bench: Bench) -> None:
    buffer = bench.buffer(["task_failed"])
    assert buffer.wants("task_failed")
    assert not buffer.wants("task_completed")
    assert buffer.wants_tasks
    buffer.publish(completed(1))
    assert buffer.figures().waiting == 0


async def test_without_hooks_there_is_no_process(bench: Bench) -> None:
    buffer = bench.buffer([])
    buffer.publish(completed(1))
    assert not buffer.wants_tasks
    assert (buffer.figures().pid, buffer.figures().waiting) == (0, 0)
    await buffer.stop()


async def test_a_hook_that_raises_is_logged_and_the_others_continue(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    buffer = bench.buffer()
    for fact in (completed(1, "raise"), completed(2, "exit"), failed(3, "raise"), completed(4)):
        buffer.publish(fact)
    await bench.handled(buffer, 4)
    assert (buffer.figures().failed, buffer.figures().restarts) == (3, 0)
    assert len({line[3] for line in bench.traced("completed")}) == 1
    await buffer.stop()
    said = capfd.readouterr().err
    assert "hook completed failed on task_completed of t1" in said
    assert 'raise ValueError("this hook is broken")' in said
    assert "ValueError: this async hook is broken" in said
    assert "SystemExit: 7" in said
    assert "hook_runner.py" not in said


async def test_what_hooks_log_stands_in_a_file_of_its_own(bench: Bench, tmp_path: Path) -> None:
    buffer = bench.buffer(logs=LogSettings(folder=str(tmp_path / "logs")))
    buffer.publish(completed(1, "raise"))
    await bench.handled(buffer, 1)
    await buffer.stop()
    (line,) = (tmp_path / "logs" / "worker-hooks.log").read_text().splitlines()
    assert json.loads(line)["event"] == "hook completed failed on task_completed of t1"
    assert "this hook is broken" in line


async def test_a_hook_that_kills_its_process_loses_only_what_it_was_given(bench: Bench) -> None:
    buffer = bench.buffer(rules=PoolSpec(name="hooks", concurrency=1, restart_delay=SECOND // 100))
    buffer.publish(completed(0, "die"))
    for number in range(1, 11):
        buffer.publish(completed(number))
    await bench.until(lambda: finished(buffer))
    assert bench.said("the hook process ended with exit code 3, and 2 fact(s) are lost; it starts again in 10ms")
    assert [int(line[1]) for line in bench.traced("completed")] == [0, *range(2, 11)]
    figures = buffer.figures()
    assert (figures.handled, figures.lost, figures.restarts) == (9, 2, 1)


async def test_hooks_that_always_kill_their_process_are_given_up(bench: Bench) -> None:
    buffer = bench.buffer(rules=PoolSpec(name="hooks", concurrency=1, restart_delay=SECOND // 100, max_restarts=2))
    for _ in range(7):
        buffer.publish(completed(1, "die"))
    await bench.until(lambda: buffer.figures().why)
    assert bench.said(
        "stays down until the manager is reloaded or restarted: it ended with exit code 3, and it crashed 3 times"
    )
    assert (buffer.figures().restarts, buffer.figures().lost, buffer.figures().waiting) == (2, 7, 0)
    assert not buffer.wants("task_completed")
    buffer.publish(completed(2))
    assert buffer.figures().waiting == 0


async def test_an_app_that_cannot_be_loaded_is_said_once_and_not_tried_again(
    bench: Bench, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken_app.py"
    broken.write_text("import no_such_thing_at_all\n")
    buffer = bench.buffer(target=str(broken))
    await bench.until(lambda: buffer.figures().why)
    assert bench.said("the app cannot be loaded: ModuleNotFoundError: No module named 'no_such_thing_at_all'")
    assert buffer.figures().restarts == 0
    assert "broken_app.py" in capfd.readouterr().err


async def test_where_too_many_wait_the_oldest_are_dropped_and_that_is_said_once(bench: Bench) -> None:
    buffer = bench.unstarted(limits=Limits(waiting=5))
    for number in range(12):
        buffer.publish(completed(number))
    assert (buffer.figures().waiting, buffer.figures().dropped) == (5, 7)
    assert bench.told == ["hooks are too slow: the oldest 1 fact(s) were dropped (1 in all)"]
    buffer.start()
    await bench.handled(buffer, 5)
    assert sorted(int(line[1]) for line in bench.traced("completed")) == [7, 8, 9, 10, 11]
    await buffer.stop()
    assert bench.told[1:] == ["hooks are too slow: the oldest 6 fact(s) were dropped (7 in all)"]


async def test_a_stop_lets_the_hooks_hear_what_waits_and_leaves_no_process(bench: Bench) -> None:
    buffer = bench.buffer()
    for number in range(200):
        buffer.publish(completed(number))
    pid = 0
    await bench.until(lambda: buffer.figures().handled)
    pid = buffer.figures().pid
    await buffer.stop(10)
    assert len(bench.traced("completed")) == 200
    assert (buffer.figures().handled, buffer.figures().lost, buffer.figures().pid) == (200, 0, 0)
    assert not alive(pid)
    buffer.publish(completed(1))
    assert buffer.figures().waiting == 0


async def test_a_stop_waits_no_longer_than_it_says_and_ends_what_hooks_started(bench: Bench) -> None:
    buffer = bench.buffer()
    for number in range(20):
        buffer.publish(completed(number, "detach"))
    child = bench.traces.with_name("traces.child")
    await bench.until(lambda: child.exists() and child.read_text())
    pid, loop = buffer.figures().pid, asyncio.get_running_loop()
    began = loop.time()
    await buffer.stop(0.2)
    assert loop.time() - began < 5
    assert not alive(pid)
    await bench.until(lambda: not alive(int(child.read_text())))
    assert bench.said("16 fact(s) were still with the hooks at the stop")
    assert bench.said("4 fact(s) had not reached the hooks at the stop")
    assert buffer.figures().lost == 20


async def test_a_stop_right_after_the_start_ends_at_once(bench: Bench) -> None:
    buffer = bench.buffer()
    await buffer.stop()
    assert buffer.figures().pid == 0
    other = bench.buffer()
    await bench.until(lambda: other.figures().pid)
    await other.stop()
    assert other.figures().pid == 0


async def test_hooks_can_enqueue_from_threads_and_coroutines(bench: Bench) -> None:
    buffer = bench.buffer()
    buffer.publish(completed(1, "enqueue"))
    buffer.publish(failed(2, "enqueue"))
    buffer.publish(failed(3, "enqueue plainly"))
    await bench.handled(buffer, 3)
    assert buffer.figures().failed == 0
    tasks = (await bench.engine.find(EVERYTHING)).tasks
    assert {(task.handler, task.queue, task.params) for task in tasks} == {
        ("follow", "mail", f'{{"number":{number}}}') for number in (1, 2, 3)
    }


async def test_an_async_hook_that_takes_too_long_is_cancelled_and_the_others_go_on(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    buffer = bench.buffer(limits=Limits(seconds=0.3))
    buffer.publish(failed(1, "hang"))
    buffer.publish(completed(2))
    await bench.handled(buffer, 2)
    assert (buffer.figures().failed, buffer.figures().restarts) == (1, 0)
    await buffer.stop()
    assert "hook failed did not end within 0.3 s on task_failed of f1" in capfd.readouterr().err
    assert bench.told == []


@pytest.mark.parametrize("fact", [completed(1, "hang"), failed(1, "block")], ids=["thread", "loop"])
async def test_a_hook_that_cannot_be_ended_is_named_and_its_process_replaced(
    bench: Bench, capfd: pytest.CaptureFixture[str], fact: AnyFact
) -> None:
    buffer = bench.buffer(limits=Limits(seconds=0.3))
    buffer.publish(fact)
    await bench.until(lambda: buffer.figures().pid)
    first = buffer.figures().pid
    await bench.handled(buffer, 1)
    await bench.until(lambda: buffer.figures().pid not in (0, first))
    buffer.publish(completed(2))
    buffer.publish(failed(3))
    await bench.handled(buffer, 3)
    assert (buffer.figures().failed, buffer.figures().lost, buffer.figures().restarts) == (1, 0, 0)
    assert not alive(first)
    assert bench.said("a hook does not return")
    said = capfd.readouterr().err
    assert "ignores its cancellation, so its process will be replaced; the hook is here:" in said
    assert "time.sleep(60)" in said


async def test_a_process_that_says_nothing_is_ended_and_another_one_started(bench: Bench) -> None:
    buffer = bench.buffer(rules=PoolSpec(name="hooks", unresponsive=3 * SECOND))
    buffer.publish(completed(1, "freeze"))
    await bench.until(lambda: buffer.figures().restarts)
    buffer.publish(completed(2))
    await bench.handled(buffer, 1)
    assert bench.said("the hook process has said nothing for 3 s and is killed")
    assert bench.said("was killed by SIGKILL, and 1 fact(s) are lost; it starts again at once")


async def test_new_code_takes_the_place_of_the_old_and_what_waits_reaches_it(bench: Bench, tmp_path: Path) -> None:
    buffer = bench.buffer()
    buffer.publish(completed(1))
    await bench.handled(buffer, 1)
    first = buffer.figures().pid
    other = tmp_path / "other_code.py"
    other.write_text(CODE.replace('f"completed {', 'f"other {'))
    buffer.change(str(other), ["task_completed"])
    buffer.publish(completed(2))
    buffer.publish(failed(3))
    await bench.handled(buffer, 2)
    assert [line[1] for line in bench.traced("other")] == ["2"]
    assert not bench.traced("failed")
    assert buffer.figures().pid != first
    assert (buffer.figures().restarts, buffer.figures().lost, bench.told) == (0, 0, [])


async def test_hooks_that_were_given_up_are_tried_again_with_new_code(
    bench: Bench, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "mended.py"
    place.write_text("raise SystemExit\n")
    buffer = bench.buffer(target=str(place))
    await bench.until(lambda: buffer.figures().why)
    buffer.change(str(place), [])
    assert not buffer.wants("task_completed")
    buffer.change(TARGET, KINDS)
    buffer.publish(completed(1))
    await bench.handled(buffer, 1)
    assert buffer.figures().why == ""
    assert "SystemExit" in capfd.readouterr().err


async def test_the_hooks_end_with_their_manager(bench: Bench) -> None:
    manager = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.manager.hooks_alone", TARGET, stdout=subprocess.PIPE
    )
    assert manager.stdout is not None
    pid = int(await manager.stdout.readline())
    assert alive(pid)
    manager.kill()
    await manager.wait()
    await bench.until(lambda: not alive(pid))


CLAIM = Claim(id="t1", token=Token(1, 1), handler="work", queue="default", params='{"number":4}', attempt=2)
ERROR = TaskError(category="error", message="broken")


def settled(outcome: Outcome, policy: Policy) -> Settlement:
    transition = decide(CLAIM, outcome, policy, 0, 0.5)
    return Settlement(id="t1", token=CLAIM.token, transition=transition, worker="default-1", ran=5)


async def test_ended_attempts_become_facts(bench: Bench) -> None:
    buffer = bench.unstarted(["task_completed", "task_failed", "task_retried", "task_cancelled"])
    last, again = Policy(max_attempts=2), Policy(max_attempts=5)
    for outcome, policy in (
        (Completed("7"), last),
        (Failed(ERROR), last),
        (Failed(ERROR), again),
        (Cancelled("bored"), last),
        (Released(started=True), last),
        (Snooze(SECOND), last),
    ):
        buffer.note(CLAIM, settled(outcome, policy), "default")
    done, dead, retried, cancelled = buffer._waiting
    assert isinstance(done, TaskCompleted)
    assert (done.kind, done.value(), done.arguments(), done.duration) == ("task_completed", 7, {"number": 4}, 5)
    assert (done.worker, done.pool, done.attempt) == ("default-1", "default", 2)
    assert done.host
    assert done.at
    assert isinstance(dead, TaskFailed)
    assert (dead.error, dead.reason) == (ERROR, "attempts used up")
    assert (retried.kind, cancelled.kind) == ("task_retried", "task_cancelled")
    unheard = bench.unstarted(["worker_crashed"])
    unheard.note(CLAIM, settled(Completed("7"), last), "default")
    assert unheard.figures().waiting == 0
