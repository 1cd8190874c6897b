"""The sandbox as someone who tests their own handlers meets it."""

import asyncio

import pytest

from pitboss import App, Cancel, Context, Fail, Retry, Snooze, State, ctx
from pitboss.testing.sandbox import sandbox


def make_app() -> App:
    return App("sqlite:///never-opened.db")


def test_tasks_are_run_when_the_test_says_so() -> None:
    app = make_app()

    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    with sandbox(app) as box:
        handle = double.enqueue(21)
        box.assert_enqueued(double, number=21)
        box.refute_enqueued(double, number=22)
        assert handle.task().state is State.PENDING
        (ran,) = box.drain()
        assert ran.id == handle.id
        assert handle.result(timeout=1) == 42


def test_inline_runs_at_once_through_json() -> None:
    app = make_app()
    seen: list[object] = []

    @app.task
    def look(value: tuple[int, ...]) -> None:
        seen.append(value)

    with sandbox(app, inline=True):
        handle = look.enqueue((1, 2))
        assert seen == [(1, 2)]
        assert handle.task().state is State.COMPLETED


def test_the_signals_and_errors_of_a_handler_become_outcomes() -> None:
    app = make_app()

    @app.task(max_attempts=2)
    def act(what: str) -> str:
        match what:
            case "retry":
                raise Retry("later", after="10s")
            case "snooze" if ctx.token.claim == 1:
                raise Snooze("1h", "not yet")
            case "cancel":
                raise Cancel("never mind")
            case "fail":
                raise Fail("hopeless")
            case "break":
                raise KeyError("broken")
        return what

    with sandbox(app) as box:
        handles = {what: act.enqueue(what) for what in ("retry", "snooze", "cancel", "fail", "break", "fine")}
        box.drain_all()
        tasks = {what: handle.task() for what, handle in handles.items()}
    assert {what: task.state.value for what, task in tasks.items()} == {
        "retry": "failed",
        "snooze": "completed",
        "cancel": "cancelled",
        "fail": "failed",
        "break": "failed",
        "fine": "completed",
    }
    assert {what: task.attempts for what, task in tasks.items()} == {
        "retry": 2,
        "snooze": 1,
        "cancel": 1,
        "fail": 1,
        "break": 2,
        "fine": 1,
    }
    broken = tasks["break"].error
    assert broken is not None
    assert broken.type == "KeyError"
    assert "raise KeyError" in broken.traceback


def test_follow_ups_and_progress_reach_the_store() -> None:
    app = make_app()

    @app.task
    def child(number: int) -> int:
        return number

    @app.task
    def parent(count: int, context: Context = ctx) -> None:
        context.progress(50, "half way")
        for number in range(count):
            context.enqueue(child.using(priority=5), number)

    with sandbox(app) as box:
        handle = parent.enqueue(3)
        assert len(box.drain()) == 4
        assert (handle.task().progress, handle.task().note) == (50, "half way")
        children = box.assert_enqueued(child, 3)
        assert {task.parent for task in children} == {handle.id}
        assert {task.priority for task in children} == {5}


def test_nothing_follows_a_handler_that_fails() -> None:
    app = make_app()

    @app.task
    def child() -> None: ...

    @app.task(max_attempts=1)
    def parent() -> None:
        ctx.enqueue(child)
        raise RuntimeError("after all")

    with sandbox(app) as box:
        parent.enqueue()
        box.drain_all()
        box.refute_enqueued(child)


def test_what_was_expected_and_what_is_there_are_told() -> None:
    app = make_app()

    @app.task
    def note(text: str) -> None: ...

    with sandbox(app) as box:
        note.enqueue("hello")
        with pytest.raises(AssertionError, match=r"note .*hello.* \(pending\)"):
            box.assert_enqueued(note, text="good bye")


def test_queues_with_partitions_are_drained_too() -> None:
    divided = App()
    divided.queue("targets", partition_by="{state}", partitions={0: ["CA"], 1: ["TX"]}, max_per_key=1)

    @divided.task(queue="targets")
    def crawl(state: str) -> str:
        return state

    with sandbox(divided) as box:
        divided.declare()
        for state in ("CA", "TX", "CA", "ZZ"):
            crawl.enqueue(state)
        assert [task.value() for task in box.drain()] == ["CA", "TX", "ZZ", "CA"]
        crawl.enqueue("CA")
        assert [(task.partition, task.value()) for task in box.drain()] == [("CA", "CA")]
